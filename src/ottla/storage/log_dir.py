"""One data directory: its lock, its identity, its checkpoints, and whether it was left in order."""

import contextlib
import json
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from ottla.env.disk import DirectoryLock, Disk
from ottla.model.ids import METADATA_TOPIC, TopicPartition
from ottla.storage.checkpoints import CorruptCheckpointError, read_offset_checkpoint, write_offset_checkpoint
from ottla.storage.file_names import (
    DELETE_DIR_SUFFIX,
    FUTURE_DIR_SUFFIX,
    STRAY_DIR_SUFFIX,
    parse_partition_dir,
)
from ottla.storage.meta_properties import (
    MetaProperties,
    RefusedDirectoryError,
    read_meta_properties,
    write_meta_properties,
)

logger = logging.getLogger("ottla.storage")

LOCK_FILE = ".lock"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"


class LogDir:
    """Taking it: locks it, reads it, and removes the clean-shutdown marker, so that a crash from now on shows."""

    def __init__(self, disk: Disk, path: str) -> None:
        """Raises RefusedDirectoryError where it is another's, OSError where the disk fails."""
        self.path = path
        self._disk = disk
        self._writing = threading.Lock()
        self._written_directly = 0
        disk.make_dirs(path)
        self._lock = self._take_lock()
        try:
            self.meta = read_meta_properties(disk, path)
            self.recovery_points = self._read_checkpoint(RECOVERY_POINTS)
            self.log_start_offsets = self._read_checkpoint(LOG_START_OFFSETS)
            self.high_watermarks = self._read_checkpoint(HIGH_WATERMARKS)
            self.cleaner_offsets = self._read_checkpoint(CLEANER_OFFSETS)
            self.partitions: set[TopicPartition] = set()
            self.deleted_directories: list[str] = []
            self.future_directories: list[str] = []  # names
            self.has_data = False
            self._list()
            self.broker_epoch, self.clean_shutdown = self._read_clean_shutdown()
        except BaseException:
            self._lock.release()
            raise

    def _take_lock(self) -> DirectoryLock:
        try:
            return self._disk.lock(f"{self.path}/{LOCK_FILE}")
        except BlockingIOError:
            raise RefusedDirectoryError(
                f"the data directory {self.path} is in use by another broker: stop that one or choose another directory"
            ) from None

    def _read_checkpoint(self, name: str) -> dict[TopicPartition, int]:
        try:
            return read_offset_checkpoint(self._disk, f"{self.path}/{name}")
        except CorruptCheckpointError as error:
            logger.warning("going on without a checkpoint: %s", error)
            return {}

    def _list(self) -> None:
        for name in self._disk.list_dir(self.path):
            partition = parse_partition_dir(name)
            if partition is not None:
                if partition.topic != METADATA_TOPIC:  # that one is the quorum's
                    self.partitions.add(partition)
            elif name.endswith(DELETE_DIR_SUFFIX):
                self.deleted_directories.append(f"{self.path}/{name}")
            elif name.endswith(FUTURE_DIR_SUFFIX):
                self.future_directories.append(name)
            elif name.endswith(STRAY_DIR_SUFFIX):
                logger.warning("%s/%s is a folder that was set aside: it is left alone", self.path, name)
            else:
                continue
            self.has_data = True

    def _read_clean_shutdown(self) -> tuple[int, bool]:
        """(the broker epoch of the last run or -1, whether that run ended in order)"""
        path = f"{self.path}/{CLEAN_SHUTDOWN_FILE}"
        try:
            data = self._disk.read_bytes(path)
        except FileNotFoundError:
            return -1, False
        self._disk.remove(path)
        self._disk.sync_dir(self.path)
        try:
            return int(json.loads(data)["brokerEpoch"]), True
        except (ValueError, KeyError, TypeError) as error:
            if data:  # older brokers left an empty file
                logger.warning("%s says no broker epoch: %s", path, error)
            return -1, True

    def write_meta(self, meta: MetaProperties) -> None:
        write_meta_properties(self._disk, self.path, meta)
        self.meta = meta

    def write_checkpoint(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """At once. A `Checkpoint` that was made before and is not written yet is out of date then."""
        with self._writing:
            self._written_directly += 1
            write_offset_checkpoint(self._disk, f"{self.path}/{name}", offsets)

    def plan_checkpoint(self, name: str, offsets: dict[TopicPartition, int]) -> "Checkpoint":
        return Checkpoint(self, name, offsets, self._written_directly)

    def write_planned(self, checkpoint: "Checkpoint") -> None:
        with self._writing:
            if checkpoint.made_after == self._written_directly:
                write_offset_checkpoint(self._disk, f"{self.path}/{checkpoint.name}", checkpoint.offsets)

    def write_clean_shutdown(self, broker_epoch: int) -> None:
        """The last word of an orderly stop: everything else is on disk."""
        content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
        self._disk.write_atomically(f"{self.path}/{CLEAN_SHUTDOWN_FILE}", content.encode())

    def release(self) -> None:
        with contextlib.suppress(OSError):
            self._lock.release()

    def checkpointed(self, name: str) -> dict[TopicPartition, int]:
        """What the checkpoint of this name says."""
        return {
            RECOVERY_POINTS: self.recovery_points,
            LOG_START_OFFSETS: self.log_start_offsets,
            HIGH_WATERMARKS: self.high_watermarks,
            CLEANER_OFFSETS: self.cleaner_offsets,
        }[name]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint file that is to be written."""

    log_dir: LogDir
    name: str
    offsets: dict[TopicPartition, int]
    made_after: int  # how many checkpoints had been written at once

    def write(self) -> None:
        """Safe in any thread. Raises OSError."""
        self.log_dir.write_planned(self)

    def written(self) -> None:
        known = self.log_dir.checkpointed(self.name)
        known.clear()
        known.update(self.offsets)
