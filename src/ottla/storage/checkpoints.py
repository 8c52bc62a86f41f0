"""Kafka's small text files: offset checkpoints, the leader epoch checkpoint, partition.metadata.

A checkpoint has its version, the number of entries, and one entry per line.
"""

import re
import uuid
from collections.abc import Iterable, Mapping

from ottla.env.disk import Disk
from ottla.model.ids import TopicPartition, uuid_from_string, uuid_to_string

_VERSION = "0"
_BEFORE_TOPIC_ID = b"version: 0\ntopic_id: "
_TORN_TOPIC_ID = re.compile(_BEFORE_TOPIC_ID + rb"[\w-]{,21}")  # the whole id has 22 characters of base64


class CorruptCheckpointError(Exception):
    """A checkpoint cannot be read. The message names the file and the line."""


def read_offset_checkpoint(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """Returns no offsets if the file is missing."""
    offsets = {}
    for line in _read_lines(disk, path):
        fields = line.split()
        try:
            topic, partition, offset = fields
            offsets[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError:
            raise _malformed(path, line) from None
    return offsets


def write_offset_checkpoint(disk: Disk, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())]
    disk.write_atomically(path, _encode(lines))


def read_epoch_checkpoint(disk: Disk, path: str) -> list[tuple[int, int]]:
    """Returns (epoch, start offset), the oldest first; empty if the file is missing."""
    entries = []
    for line in _read_lines(disk, path):
        try:
            epoch, start_offset = map(int, line.split())
        except ValueError:
            raise _malformed(path, line) from None
        entries.append((epoch, start_offset))
    return entries


def encode_epoch_checkpoint(entries: Iterable[tuple[int, int]]) -> bytes:
    return _encode([f"{epoch} {start_offset}" for epoch, start_offset in entries])


def read_partition_metadata(disk: Disk, path: str) -> uuid.UUID | None:
    """The topic id; None if the file is missing, or if a power loss left only its beginning.

    Raises CorruptCheckpointError for any other content, because the topic of the records must not be guessed.
    """
    try:
        data = disk.read_bytes(path)
    except FileNotFoundError:
        return None
    written = data.rstrip(b"\0")
    if _BEFORE_TOPIC_ID.startswith(written) or _TORN_TOPIC_ID.fullmatch(written):
        return None
    fields = dict(line.split(": ", 1) for line in _decode(path, data).splitlines() if ": " in line)
    try:
        return uuid_from_string(fields["topic_id"])
    except (KeyError, ValueError):
        raise CorruptCheckpointError(
            f"{path} has no readable topic_id. Restore the file. If the records in its folder certainly belong to the "
            "current topic of this name, remove the file: the broker writes it again"
        ) from None


def encode_partition_metadata(topic_id: uuid.UUID) -> bytes:
    return _BEFORE_TOPIC_ID + uuid_to_string(topic_id).encode()


def _encode(lines: list[str]) -> bytes:
    return "\n".join([_VERSION, str(len(lines)), *lines, ""]).encode()


def _read_lines(disk: Disk, path: str) -> list[str]:
    try:
        lines = _decode(path, disk.read_bytes(path)).splitlines()
    except FileNotFoundError:
        return []
    if not lines:
        return []
    if lines[0] != _VERSION:
        raise CorruptCheckpointError(
            f"{path} has version {lines[0]!r}, but only version {_VERSION} is supported. "
            "If a newer broker has written it, start that broker; if the file is damaged, remove it"
        )
    entries = lines[2:]
    if len(lines) < 2 or not lines[1].isdecimal() or int(lines[1]) != len(entries):
        raise CorruptCheckpointError(
            f"{path} should have {lines[1] if len(lines) > 1 else 'an unknown number of'} entries, but has "
            f"{len(entries)}. Remove the file: the broker writes it again"
        )
    return entries


def _decode(path: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise CorruptCheckpointError(
            f"{path} is damaged at byte {error.start}: it is not text. Restore the file, or remove it"
        ) from None


def _malformed(path: str, line: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        f"{path} has an unreadable line: {line!r}. Remove the file: the broker writes it again"
    )
