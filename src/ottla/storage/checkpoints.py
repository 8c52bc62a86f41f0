"""Kafka's small text files: offset checkpoints, the leader epoch checkpoint, partition.metadata.

A checkpoint is its version, the number of its lines, and the lines.
"""

import re
import uuid
from collections.abc import Iterable, Mapping

from ottla.env.disk import Disk
from ottla.model.ids import TopicPartition, uuid_from_string, uuid_to_string

_VERSION = "0"
_BEFORE_TOPIC_ID = b"version: 0\ntopic_id: "
_TORN_TOPIC_ID = re.compile(_BEFORE_TOPIC_ID + rb"[\w-]{,21}")  # of 22 characters of base64


class CorruptCheckpointError(Exception):
    """A checkpoint that cannot be read. The message names the file and the line."""


def read_offset_checkpoint(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """Empty where the file is missing."""
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
    """(epoch, start offset), oldest first; empty where the file is missing."""
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
    """The topic's id; None if the file is missing, or a power loss left only its beginning.

    CorruptCheckpointError if it has anything else: to which topic the records belong must not be guessed.
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
            f"{path} has no topic_id that can be read. Restore the file, or remove it if the records beside it are "
            "surely of the topic with this name: the topic's id is written then"
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
            f"{path} has version {lines[0]!r}; version {_VERSION} is known. "
            "If it was written by a newer broker, start that one; if it is damaged, remove the file"
        )
    entries = lines[2:]
    if len(lines) < 2 or not lines[1].isdecimal() or int(lines[1]) != len(entries):
        raise CorruptCheckpointError(
            f"{path} promises {lines[1] if len(lines) > 1 else 'no number of'} entries and has {len(entries)}; "
            "remove the file to have it made anew"
        )
    return entries


def _decode(path: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise CorruptCheckpointError(
            f"{path} is damaged at byte {error.start}: no text. Restore the file, or remove it to do without it"
        ) from None


def _malformed(path: str, line: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        f"{path} has a line that cannot be read: {line!r}; remove the file to have it made anew"
    )
