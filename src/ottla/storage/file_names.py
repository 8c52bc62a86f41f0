"""How Kafka names the files and folders of its data directories."""

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
CLEANED_SUFFIX = ".cleaned"  # compaction was writing it
SWAP_SUFFIX = ".swap"  # compaction had finished it
# An empty file beside a segment (only Ottla's): the segment before it ends where it begins, and was not flushed then.
UNFLUSHED_SUFFIX = ".unflushed"

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"

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
    """The partition whose log lies in a folder of this name; None where it is not the folder of a live log."""
    if name.endswith((DELETE_DIR_SUFFIX, STRAY_DIR_SUFFIX, FUTURE_DIR_SUFFIX)):
        return None
    match = _PARTITION_DIR.fullmatch(name)
    return TopicPartition(match["topic"], int(match["partition"])) if match else None


def parse_future_dir(name: str) -> TopicPartition | None:
    """The partition whose copy, for a move between directories, lies in a folder of this name."""
    match = _FUTURE_DIR.fullmatch(name)
    return parse_partition_dir(match["partition_dir"]) if match else None


def has_future_dir_name(topic_partition: TopicPartition) -> bool:
    """Whether the name of a future folder can hold the whole topic; a cut one would not say whose it is."""
    return len(f"{topic_partition}.{uuid.UUID(int=0).hex}{FUTURE_DIR_SUFFIX}") <= _MAX_NAME_LENGTH


def marked_dir_name(topic_partition: TopicPartition, suffix: str, unique_id: uuid.UUID) -> str:
    """The name of a folder that waits for its deletion: cut in the topic where a file system's limit asks for it."""
    ending = f"-{topic_partition.partition}.{unique_id.hex}{suffix}"
    return topic_partition.topic[: _MAX_NAME_LENGTH - len(ending)] + ending
