"""Finishes or undoes the moves of replicas between data directories that the end of the last run interrupted."""

import logging
from collections.abc import Iterator, Mapping
from itertools import count
from uuid import UUID

from ottla.env.disk import Disk
from ottla.model.ids import TopicPartition
from ottla.storage.checkpoints import CorruptCheckpointError, read_partition_metadata
from ottla.storage.deletion import Deletion
from ottla.storage.file_names import (
    DELETE_DIR_SUFFIX,
    PARTITION_METADATA,
    dir_name_with_suffix,
    parse_future_dir,
)
from ottla.storage.log_dir import LogDir
from ottla.storage.replica_move import read_moved_from, remove_moved_from

logger = logging.getLogger("ottla.storage")


def keep_future_folders(log_dir: LogDir) -> None:
    """While a directory is offline, the partition may be there, so the next start decides about the copy."""
    found = (parse_future_dir(name) for name in log_dir.future_directories)
    log_dir.unfinished_moves = {partition for partition in found if partition is not None}


def settle_future_folders(
    disk: Disk, log_dir: LogDir, existing: Mapping[TopicPartition, LogDir]
) -> Iterator[TopicPartition | Deletion]:
    """Yields each partition whose move it has finished, and the deletion of each copy that is not needed.

    A complete copy becomes the partition if its original is gone. `existing` are the partitions that have a folder; the
    caller adds the finished ones. Raises OSError.
    """
    for name in log_dir.future_directories:
        partition, directory = parse_future_dir(name), f"{log_dir.path}/{name}"
        topic_id, original = (
            read_topic_id(disk, directory),
            None if partition is None else existing.get(partition),
        )
        if original is not None and topic_id is not None:
            other_id = read_topic_id(disk, f"{original.path}/{partition}")
            if other_id not in (None, topic_id):
                # The directory of that folder was offline while its topic was deleted and created again.
                logger.error(
                    "%s is a copy of a partition of another topic than the folder in %s. Remove it if it is not needed",
                    directory,
                    original.path,
                )
                continue
        if partition is None or (original is None and topic_id is None):
            # There is no original here. If it was deleted, the copy has the only records, so it is kept.
            logger.error(
                "%s is an incomplete copy of a partition that is not here. Remove it if it is not needed",
                directory,
            )
        elif original is not None:
            logger.info("removing %s: the move of the replica was not finished", directory)
            yield Deletion(0, directory, is_directory=True)
        else:
            disk.rename(directory, f"{log_dir.path}/{partition}")
            disk.sync_dir(log_dir.path)
            logger.info("finished the move of %s to %s", partition, log_dir.path)
            yield partition


def remove_replaced_folder(
    disk: Disk, partition: TopicPartition, new: LogDir, old: LogDir
) -> Deletion | None:
    """Renames the folder in `old` if the one in `new` was moved from there; None if it was not. Raises OSError."""
    if read_moved_from(disk, f"{new.path}/{partition}") != old.path:
        return None
    names = (dir_name_with_suffix(partition, DELETE_DIR_SUFFIX, UUID(int=number)) for number in count())
    target = next(path for name in names if not disk.exists(path := f"{old.path}/{name}"))
    disk.rename(f"{old.path}/{partition}", target)
    disk.sync_dir(old.path)
    remove_moved_from(disk, f"{new.path}/{partition}")
    old.partitions.discard(partition)
    logger.info("removing %s/%s: the replica was moved to %s", old.path, partition, new.path)
    return Deletion(0, target, is_directory=True)


def read_topic_id(disk: Disk, directory: str) -> UUID | None:
    """The topic id of a folder; None if it is missing or damaged. It is the last file of a copy. Raises OSError."""
    try:
        return read_partition_metadata(disk, f"{directory}/{PARTITION_METADATA}")
    except CorruptCheckpointError as error:
        logger.error("%s", error)
        return None
