"""Folders of the same partition in several data directories: left by a move, or of topics with the same name.

A directory may be offline while a topic is deleted and created again. When it is back, it still has the folder of the
old topic, and another directory has that of the new one. Only the metadata can say which one to use.
"""

from collections.abc import Sequence
from itertools import permutations
from typing import NamedTuple
from uuid import UUID

from ottla.env.disk import Disk
from ottla.model.ids import TopicPartition
from ottla.storage.checkpoints import CorruptCheckpointError, read_partition_metadata
from ottla.storage.deletion import Deletion
from ottla.storage.file_names import PARTITION_METADATA
from ottla.storage.future_folders import remove_replaced_folder
from ottla.storage.log_dir import LogDir
from ottla.storage.meta_properties import UnusableDirectoryError


class Folders(NamedTuple):
    dir_of: dict[TopicPartition, LogDir]
    # Partitions with several folders, whose topic ids differ.
    duplicates: dict[TopicPartition, dict[LogDir, UUID | None]]
    deletions: list[Deletion]


def find_folders(disk: Disk, log_dirs: Sequence[LogDir]) -> Folders:
    """The folders of all partitions. Raises UnusableDirectoryError and OSError, see `_remove_replaced_folders`."""
    found: dict[TopicPartition, list[LogDir]] = {}
    for log_dir in log_dirs:
        for partition in log_dir.partitions:
            found.setdefault(partition, []).append(log_dir)
    unfinished = [path for log_dir in log_dirs for path in log_dir.deleted_directories]  # by the last run
    folders = Folders(
        {partition: holders[0] for partition, holders in found.items()},
        {},
        [Deletion(0, path, is_directory=True) for path in unfinished],
    )
    for partition in sorted(partition for partition, holders in found.items() if len(holders) > 1):
        remaining, deletions = _remove_replaced_folders(disk, partition, found[partition])
        folders.dir_of[partition] = next(iter(remaining))
        folders.deletions.extend(deletions)
        if len(remaining) > 1:
            folders.duplicates[partition] = remaining
    return folders


def _topic_id(disk: Disk, directory: str) -> UUID | None:
    """None if it is missing or damaged. Raises OSError."""
    try:
        return read_partition_metadata(disk, f"{directory}/{PARTITION_METADATA}")
    except CorruptCheckpointError:
        return None


def _remove_replaced_folders(
    disk: Disk, partition: TopicPartition, log_dirs: Sequence[LogDir]
) -> tuple[dict[LogDir, UUID | None], list[Deletion]]:
    """A power loss at the end of a move may leave the folders of both directories: renames the old one.

    Returns the directories that remain, with the topic ids of their folders. If there are several, all are different.
    Raises UnusableDirectoryError if nothing tells which folder is the right one, and OSError.
    """
    topic_ids = {log_dir: _topic_id(disk, f"{log_dir.path}/{partition}") for log_dir in log_dirs}
    remaining, deletions = dict(topic_ids), []
    for new, old in permutations(log_dirs, 2):
        # The mark of a move may be older than the topic of the other folder.
        is_other_topic = None not in (topic_ids[new], topic_ids[old]) and topic_ids[new] != topic_ids[old]
        if is_other_topic or new not in remaining or old not in remaining:
            continue
        if (deletion := remove_replaced_folder(disk, partition, new, old)) is not None:
            del remaining[old]
            deletions.append(deletion)
    left = set(remaining.values())
    if len(remaining) > 1 and (None in left or len(left) < len(remaining)):
        raise UnusableDirectoryError(
            f"{partition} lies both in {' and in '.join(log_dir.path for log_dir in remaining)}: "
            "move the folder that is not needed out of the data directories"
        )
    return remaining, deletions
