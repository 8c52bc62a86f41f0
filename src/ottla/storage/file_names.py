"""The names of files and folders in Kafka's data directories."""

import re
import uuid

from ottla.model.ids import TopicPartition

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
SEGMENT_SUFFIXES = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)

DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"  # compaction has not finished it
SWAP_SUFFIX = ".swap"  # compaction has finished it; it replaces other segments
# An empty file for a segment, which Kafka does not have: the previous segment ended at the base offset of this one, and
# was not flushed when this one was created.
UNFLUSHED_SUFFIX = ".unflushed"

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
# Kafka does not have it either. A replica that was moved has it, with the path of the data directory that it came from,
# until the folder there is gone for good.
MOVED_FROM = "moved-from"

DELETE_DIR_SUFFIX = "-delete"
STRAY_DIR_SUFFIX = "-stray"
FUTURE_DIR_SUFFIX = "-future"

_MAX_NAME_LENGTH = 255
_SEGMENT_FILE = re.compile(r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)")
_FUTURE_DIR = re.compile(r"(?P<partition_dir>.+-\d+)\.[0-9a-f]{32}-future")
_PARTITION_DIR = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>\d+)")


def segment_file(directory: str, base_offset: int, suffix: str) -> str:
    return f"{directory}/{base_offset:020d}{suffix}"


def parse_segment_file(name: str) -> tuple[int, str] | None:
    """(offset, suffix) of a segment's file or a producer snapshot; None for any other name."""
    match = _SEGMENT_FILE.fullmatch(name)
    return (int(match[1]), match[2]) if match else None


def parse_unflushed_file(name: str) -> int | None:
    """The base offset in the name of an `.unflushed` file; None for any other name."""
    stem = name.removesuffix(UNFLUSHED_SUFFIX)
    return int(stem) if stem != name and len(stem) == 20 and stem.isdecimal() else None


def parse_partition_dir(name: str) -> TopicPartition | None:
    """The partition of a folder with this name; None if it is not the folder of a live log."""
    if name.endswith((DELETE_DIR_SUFFIX, STRAY_DIR_SUFFIX, FUTURE_DIR_SUFFIX)):
        return None
    match = _PARTITION_DIR.fullmatch(name)
    return TopicPartition(match["topic"], int(match["partition"])) if match else None


def parse_future_dir(name: str) -> TopicPartition | None:
    """The partition of a future folder, which holds its copy during a move between data directories."""
    match = _FUTURE_DIR.fullmatch(name)
    return parse_partition_dir(match["partition_dir"]) if match else None


def future_dir_name_fits(topic_partition: TopicPartition) -> bool:
    """Whether the name of the future folder fits the file system's limit without shortening the topic."""
    return len(f"{topic_partition}.{uuid.UUID(int=0).hex}{FUTURE_DIR_SUFFIX}") <= _MAX_NAME_LENGTH


def dir_name_with_suffix(topic_partition: TopicPartition, suffix: str, unique_id: uuid.UUID) -> str:
    """The name of a deleted, stray or future folder. Shortens the topic if the file system's limit requires it."""
    ending = f"-{topic_partition.partition}.{unique_id.hex}{suffix}"
    return topic_partition.topic[: _MAX_NAME_LENGTH - len(ending)] + ending
