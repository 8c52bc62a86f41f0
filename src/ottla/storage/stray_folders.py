"""Folders of partitions that are not in the metadata: they are renamed and kept (KAFKA-14616)."""

import logging
import uuid

from ottla.env.disk import Disk
from ottla.model.ids import TopicPartition
from ottla.storage.file_names import STRAY_DIR_SUFFIX, dir_name_with_suffix

logger = logging.getLogger("ottla.storage")


def set_folder_aside(disk: Disk, directory: str, partition: TopicPartition, unique_id: uuid.UUID) -> None:
    """Renames the folder, as Kafka does. Raises OSError."""
    target = f"{directory}/{dir_name_with_suffix(partition, STRAY_DIR_SUFFIX, unique_id)}"
    disk.rename(f"{directory}/{partition}", target)
    logger.error(
        "the folder of %s was renamed to %s, and nothing deletes it. Remove it if its records are not needed. "
        "To get them back, stop the broker, restore the metadata or partition.metadata, and rename it to %s",
        partition, target, partition,
    )  # fmt: skip
