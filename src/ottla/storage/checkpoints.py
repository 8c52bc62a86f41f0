"""Kafka's small text files: offset checkpoints, the leader epoch checkpoint, partition.metadata.

A checkpoint is its version, the number of its lines, and the lines.
"""

import uuid
from collections.abc import Iterable, Mapping

from ottla.env.disk import Disk
from ottla.model.ids import TopicPartition, uuid_from_string, uuid_to_string

_VERSION = "0"


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
    """The topic's id; None where the file is missing or a crash left it without one."""
    try:
        text = disk.read_bytes(path).decode()
    except FileNotFoundError:
        return None
    fields = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    try:
        return uuid_from_string(fields["topic_id"])
    except (KeyError, ValueError):
        return None


def encode_partition_metadata(topic_id: uuid.UUID) -> bytes:
    return f"version: 0\ntopic_id: {uuid_to_string(topic_id)}".encode()


def _encode(lines: list[str]) -> bytes:
    return "\n".join([_VERSION, str(len(lines)), *lines, ""]).encode()


def _read_lines(disk: Disk, path: str) -> list[str]:
    try:
        lines = disk.read_bytes(path).decode().splitlines()
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
    if len(lines) < 2 or not lines[1].isdigit() or int(lines[1]) != len(entries):
        raise CorruptCheckpointError(
            f"{path} promises {lines[1] if len(lines) > 1 else 'no number of'} entries and has {len(entries)}; "
            "remove the file to have it made anew"
        )
    return entries


def _malformed(path: str, line: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        f"{path} has a line that cannot be read: {line!r}; remove the file to have it made anew"
    )
