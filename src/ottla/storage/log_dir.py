"""One data directory: its lock, its identity, its checkpoints, and whether the last shutdown was clean."""

import contextlib
import json
import logging
import threading
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.env.disk import DirectoryLock, Disk
from ottla.model.ids import METADATA_TOPIC, TopicPartition
from ottla.storage.checkpoints import CorruptCheckpointError, read_offset_checkpoint, write_offset_checkpoint
from ottla.storage.directory_creation import create_directory
from ottla.storage.file_names import (
    DELETE_DIR_SUFFIX,
    FUTURE_DIR_SUFFIX,
    STRAY_DIR_SUFFIX,
    parse_partition_dir,
)
from ottla.storage.meta_properties import (
    MetaProperties,
    UnusableDirectoryError,
    check_identity,
    missing_identity_error,
    read_meta_properties,
    write_meta_properties,
)

if TYPE_CHECKING:
    from ottla.storage.log import Log

logger = logging.getLogger("ottla.storage")

LOCK_FILE = ".lock"
_CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
CHECKPOINTS = (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS, CLEANER_OFFSETS)


class LogDir:
    """Locks the directory and reads its small files.

    The clean-shutdown file stays until logs are opened: a start that fails before that leaves the logs as they are.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        """Raises UnusableDirectoryError if another broker uses it, and OSError if the disk fails."""
        self.path = path
        self._disk = disk
        self._writing = threading.Lock()
        self._planned = 0  # the number of checkpoint writes planned so far
        # By name: the newest checkpoint on disk (guarded by `_writing`), and the newest one in `checkpointed`.
        self._written: dict[str, int] = {}
        self._known: dict[str, int] = {}
        self._pending: list[CheckpointWrite] = []  # planned, and perhaps written
        create_directory(disk, path)
        self._lock = self._take_lock()
        self._has_clean_shutdown_file = False
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
            self.unfinished_moves: set[TopicPartition] = set()  # their checkpoint entries must be kept
            # Of deleted partitions; the new name may not be synced yet. Each new partition is looked up here.
            self.renamed_logs: dict[TopicPartition, tuple[Log, ...]] = {}
            # Counters. The first begins at 1, because the last run may have been interrupted during a deletion.
            self.deletions, self.deletions_synced = 1, 0
            self._list_folders()
            self.broker_epoch, self.clean_shutdown = self._read_clean_shutdown()
        except BaseException:
            self._lock.release()
            raise

    def _take_lock(self) -> DirectoryLock:
        try:
            return self._disk.lock(f"{self.path}/{LOCK_FILE}")
        except BlockingIOError:
            raise UnusableDirectoryError(
                f"the data directory {self.path} is in use by another broker: stop that one or choose another directory"
            ) from None

    def _read_checkpoint(self, name: str) -> dict[TopicPartition, int]:
        try:
            return read_offset_checkpoint(self._disk, f"{self.path}/{name}")
        except CorruptCheckpointError as error:
            logger.warning("continuing without a checkpoint: %s", error)
            return {}

    def _list_folders(self) -> None:
        for name in self._disk.list_dir(self.path):
            partition = parse_partition_dir(name)
            if partition is not None:
                if partition.topic != METADATA_TOPIC:  # the quorum opens that one
                    self.partitions.add(partition)
            elif name.endswith(DELETE_DIR_SUFFIX):
                self.deleted_directories.append(f"{self.path}/{name}")
            elif name.endswith(FUTURE_DIR_SUFFIX):
                self.future_directories.append(name)
            elif name.endswith(STRAY_DIR_SUFFIX):
                logger.warning(
                    "%s/%s is a stray folder and is ignored. Remove it if its records are not needed",
                    self.path,
                    name,
                )
            else:
                continue
            self.has_data = True

    def _read_clean_shutdown(self) -> tuple[int, bool]:
        """Returns the broker epoch of the last run, or -1, and whether the shutdown was clean."""
        path = f"{self.path}/{_CLEAN_SHUTDOWN_FILE}"
        try:
            data = self._disk.read_bytes(path)
        except FileNotFoundError:
            return -1, False
        self._has_clean_shutdown_file = True
        try:
            return int(json.loads(data)["brokerEpoch"]), True
        except (ValueError, KeyError, TypeError) as error:
            if data:  # older brokers left an empty file
                logger.warning("%s has no broker epoch: %s", path, error)
            return -1, True

    def remove_clean_shutdown_file(self) -> None:
        """Before a log is opened, so that a crash is noticed. Can run in any thread. Raises OSError."""
        with self._writing:
            if self._has_clean_shutdown_file:
                with contextlib.suppress(FileNotFoundError):  # an earlier try could not sync
                    self._disk.remove(f"{self.path}/{_CLEAN_SHUTDOWN_FILE}")
                self._disk.sync_dir(self.path)
                self._has_clean_shutdown_file = False

    def write_meta(self, meta: MetaProperties) -> None:
        write_meta_properties(self._disk, self.path, meta)
        self.meta = meta

    def plan_checkpoint(self, name: str, offsets: dict[TopicPartition, int]) -> "CheckpointWrite":
        """Returns the newest plan if it has these offsets: plans whose writes fail must not pile up."""
        newest = next((planned for planned in reversed(self._pending) if planned.name == name), None)
        if newest is not None and newest.offsets == offsets:
            return newest
        self._planned += 1
        checkpoint = CheckpointWrite(self, name, offsets, self._planned)
        self._pending.append(checkpoint)
        return checkpoint

    def plan_lower_entry(self, name: str, partition: TopicPartition, offset: int) -> "CheckpointWrite | None":
        """Lowers the entry of `partition` to `offset`. None if the file has no greater one, and will not get one."""
        contents = [self.checkpointed(name)]
        contents += [checkpoint.offsets for checkpoint in self._pending if checkpoint.name == name]
        if all(offsets.get(partition, 0) <= offset for offsets in contents):
            return None
        current = self.partitions | self.unfinished_moves
        # Other entries stay as they are planned: their logs may be about to be truncated, too.
        kept = {other: known for other, known in contents[-1].items() if other in current}
        return self.plan_checkpoint(name, kept | {partition: offset})

    def write_planned(self, checkpoint: "CheckpointWrite") -> None:
        """Does nothing if a newer one is on disk, because an old one may have entries of deleted partitions."""
        with self._writing:
            if checkpoint.number > self._written.get(checkpoint.name, 0):
                write_offset_checkpoint(self._disk, f"{self.path}/{checkpoint.name}", checkpoint.offsets)
                self._written[checkpoint.name] = checkpoint.number

    def note_written(self, checkpoint: "CheckpointWrite") -> None:
        if checkpoint.number <= self._known.get(checkpoint.name, 0):
            return
        self._known[checkpoint.name] = checkpoint.number
        self._pending = [
            other
            for other in self._pending
            if other.name != checkpoint.name or other.number > checkpoint.number
        ]
        known = self.checkpointed(checkpoint.name)
        known.clear()
        known.update(checkpoint.offsets)

    @property
    def has_unsynced_deletions(self) -> bool:
        return self.deletions > self.deletions_synced

    def note_renamed(self, log: "Log") -> None:
        before = self.renamed_logs.get(log.topic_partition, ())
        self.renamed_logs[log.topic_partition] = (*before, log)
        self.deletions += 1

    def forget_renamed(self, logs: Collection["Log"]) -> None:
        """Their new names are synced."""
        synced = frozenset(logs)
        for partition in {log.topic_partition: None for log in logs}:
            left = tuple(log for log in self.renamed_logs.pop(partition, ()) if log not in synced)
            if left:
                self.renamed_logs[partition] = left

    def has_traces_of(self, partitions: Collection[TopicPartition], *, is_target: bool) -> bool:
        """Whether a deleted partition with one of these names could come back after a power loss.

        In the directory that gets the new one (`is_target`), an entry that a checkpoint file has or may get is a trace,
        too.
        """
        traces: list[Collection[TopicPartition]] = [self.renamed_logs]
        if is_target:
            traces += [self.checkpointed(name) for name in CHECKPOINTS]
            traces += [checkpoint.offsets for checkpoint in self._pending]
        return any(partition in found for found in traces for partition in partitions)

    def will_have_entry(self, name: str, partition: TopicPartition) -> bool:
        """Whether the checkpoint file has an entry of `partition`, and no planned write removes it."""
        planned = (checkpoint.offsets for checkpoint in self._pending if checkpoint.name == name)
        return all(partition in offsets for offsets in (self.checkpointed(name), *planned))

    def stale_entries(self, name: str) -> set[TopicPartition]:
        """Partitions that are deleted, but have or may get an entry in the checkpoint file."""
        planned = (checkpoint.offsets for checkpoint in self._pending if checkpoint.name == name)
        return set(self.checkpointed(name)).union(*planned) - self.partitions - self.unfinished_moves

    def sync_names(self) -> None:
        """Syncs the names of renamed and new folders. Can run in any thread. Raises OSError."""
        self._disk.sync_dir(self.path)

    def write_clean_shutdown(self, broker_epoch: int) -> None:
        """The last step of a clean shutdown: everything else must be on disk."""
        content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
        self._disk.write_atomically(f"{self.path}/{_CLEAN_SHUTDOWN_FILE}", content.encode())

    def release(self) -> None:
        with contextlib.suppress(OSError):
            self._lock.release()

    def checkpointed(self, name: str) -> dict[TopicPartition, int]:
        """The content of the checkpoint file: entries stay here until a file without them is on disk."""
        return {
            RECOVERY_POINTS: self.recovery_points,
            LOG_START_OFFSETS: self.log_start_offsets,
            HIGH_WATERMARKS: self.high_watermarks,
            CLEANER_OFFSETS: self.cleaner_offsets,
        }[name]


@dataclass(frozen=True, slots=True)
class CheckpointWrite:
    """A checkpoint file to write."""

    log_dir: LogDir
    name: str
    offsets: dict[TopicPartition, int]
    number: int  # grows with each plan

    def write(self) -> None:
        """Can run in any thread. Raises OSError."""
        self.log_dir.write_planned(self)

    def complete(self) -> None:
        """For the event loop, after `write`."""
        self.log_dir.note_written(self)


@dataclass(frozen=True, slots=True)
class CleanShutdownRemoval:
    log_dir: LogDir

    def sync(self) -> None:
        """Can run in any thread. Raises OSError."""
        self.log_dir.remove_clean_shutdown_file()


def identify_dirs(
    log_dirs: Sequence[LogDir], node_id: int, new_id: Callable[[], uuid.UUID], cluster_id: str | None
) -> str:
    """See `LogDirs.identify`."""
    source = "this broker's configuration"
    for log_dir in log_dirs:
        if log_dir.meta is None and log_dir.has_data:
            raise missing_identity_error(log_dir.path)
    for log_dir in log_dirs:
        if log_dir.meta is None:
            continue
        check_identity(log_dir.path, log_dir.meta, node_id, cluster_id, source)
        cluster_id, source = log_dir.meta.cluster_id, log_dir.path
    if cluster_id is None:
        raise ValueError("all directories are new, so cluster_id must be given")
    for log_dir in log_dirs:
        if log_dir.meta is None:
            log_dir.write_meta(MetaProperties(cluster_id, node_id, new_id()))
    return cluster_id
