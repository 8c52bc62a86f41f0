"""One data directory: its lock, its identity, its checkpoints, and whether it was left in order."""

import contextlib
import json
import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from ottla.storage.log import Log

logger = logging.getLogger("ottla.storage")

LOCK_FILE = ".lock"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
CHECKPOINTS = (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS, CLEANER_OFFSETS)


class LogDir:
    """Taking it: locks it, reads it, and removes the clean-shutdown marker, so that a crash from now on shows."""

    def __init__(self, disk: Disk, path: str) -> None:
        """Raises RefusedDirectoryError where it is another's, OSError where the disk fails."""
        self.path = path
        self._disk = disk
        self._writing = threading.Lock()
        self._planned = 0  # counts checkpoints, of all names
        # By name, the number of the newest checkpoint on disk (under `_writing`) and of the newest in `checkpointed`.
        self._written: dict[str, int] = {}
        self._known: dict[str, int] = {}
        self._under_way: list[Checkpoint] = []  # planned, and perhaps written
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
            self.unfinished_moves: set[TopicPartition] = set()  # their checkpoint entries are still needed
            self.renamed_logs: list[Log] = []  # deleted, and the new name may not be on disk yet
            # The last run may have been interrupted in a deletion, so there is something to sync from the start.
            self.deletions, self.deletions_synced = 1, 0
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

    def write_checkpoint(self, name: str, offsets: dict[TopicPartition, int]) -> None:
        """At once. Raises OSError."""
        checkpoint = self.plan_checkpoint(name, dict(offsets))
        checkpoint.write()
        checkpoint.written()

    def plan_checkpoint(self, name: str, offsets: dict[TopicPartition, int]) -> "Checkpoint":
        self._planned += 1
        checkpoint = Checkpoint(self, name, offsets, self._planned)
        self._under_way.append(checkpoint)
        return checkpoint

    def write_planned(self, checkpoint: "Checkpoint") -> None:
        """Unless a newer one is on disk: an old one could name partitions that are deleted by now."""
        with self._writing:
            if checkpoint.number > self._written.get(checkpoint.name, 0):
                write_offset_checkpoint(self._disk, f"{self.path}/{checkpoint.name}", checkpoint.offsets)
                self._written[checkpoint.name] = checkpoint.number

    def note_written(self, checkpoint: "Checkpoint") -> None:
        if checkpoint.number <= self._known.get(checkpoint.name, 0):
            return
        self._known[checkpoint.name] = checkpoint.number
        self._under_way = [
            other
            for other in self._under_way
            if other.name != checkpoint.name or other.number > checkpoint.number
        ]
        known = self.checkpointed(checkpoint.name)
        known.clear()
        known.update(checkpoint.offsets)

    def has_entries_of(self, partition: TopicPartition) -> bool:
        """Whether a checkpoint file may name `partition`."""
        planned = [checkpoint.offsets for checkpoint in self._under_way]
        known = [self.checkpointed(name) for name in CHECKPOINTS]
        return any(partition in offsets for offsets in (*known, *planned))

    def outlived_entries(self, name: str) -> set[TopicPartition]:
        """Partitions that the checkpoint file may name, now or once a worker has written it, and that are gone."""
        planned = (checkpoint.offsets for checkpoint in self._under_way if checkpoint.name == name)
        return set(self.checkpointed(name)).union(*planned) - self.partitions - self.unfinished_moves

    def sync_names(self) -> None:
        """Brings renamed and new folders to the disk. Safe in any thread. Raises OSError."""
        self._disk.sync_dir(self.path)

    def write_clean_shutdown(self, broker_epoch: int) -> None:
        """The last word of an orderly stop: everything else is on disk."""
        content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
        self._disk.write_atomically(f"{self.path}/{CLEAN_SHUTDOWN_FILE}", content.encode())

    def release(self) -> None:
        with contextlib.suppress(OSError):
            self._lock.release()

    def checkpointed(self, name: str) -> dict[TopicPartition, int]:
        """What the checkpoint file of this name says: its entries stay until a file without them is on disk."""
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
    number: int  # a later plan has a greater one

    def write(self) -> None:
        """Safe in any thread. Raises OSError."""
        self.log_dir.write_planned(self)

    def written(self) -> None:
        """On the event loop, after `write`."""
        self.log_dir.note_written(self)


@dataclass(frozen=True, slots=True)
class DeletionSync:
    """Makes the deletions in one data directory durable: folders stay renamed, and no checkpoint names their logs.

    After it a partition of the same name may be created there. Checkpoints are Kafka's files and have no topic id, so
    an entry that outlived its partition would be taken for the new one's.
    """

    log_dir: LogDir
    checkpoints: list[Checkpoint]
    logs: tuple["Log", ...]
    deletions: int  # how many there had been when this was planned

    def sync(self) -> None:
        """Safe in any thread. Raises OSError."""
        for log in self.logs:
            log.wait_for_epoch_write()
        if not self.checkpoints:
            self.log_dir.sync_names()
        for checkpoint in self.checkpoints:
            checkpoint.write()  # syncs the names in its directory too

    def completed(self) -> None:
        """On the event loop, after `sync`."""
        for checkpoint in self.checkpoints:
            checkpoint.written()
        synced = frozenset(self.logs)
        self.log_dir.renamed_logs = [log for log in self.log_dir.renamed_logs if log not in synced]
        self.log_dir.deletions_synced = max(self.log_dir.deletions_synced, self.deletions)
