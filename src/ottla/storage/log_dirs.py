"""The data directories of a broker (`log.dirs`) and the logs in them.

A directory whose disk fails goes offline with its partitions; the other directories stay online (KIP-112).
"""

import contextlib
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence

from ottla.env.disk import Disk
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition
from ottla.storage.checkpoints import CorruptCheckpointError
from ottla.storage.deletion import Deletion, DeletionSync
from ottla.storage.directory_choice import by_preference
from ottla.storage.disk_errors import is_disk_failure, out_of_resources_message
from ottla.storage.duplicate_folders import find_folders
from ottla.storage.future_folders import keep_future_folders, settle_future_folders
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.log_dir import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    CheckpointWrite,
    CleanShutdownRemoval,
    LogDir,
    identify_dirs,
)
from ottla.storage.meta_properties import UnusableDirectoryError
from ottla.storage.offset_checkpoints import (
    checkpointed_high_watermarks,
    current_offsets,
    plan_checkpoints,
    plan_deletion_sync,
)
from ottla.storage.replica_move import LastCopy, ReplicaMove
from ottla.storage.stray_folders import set_folder_aside

logger = logging.getLogger("ottla.storage")


class LogDirs:
    """Locks every directory. Raises UnusableDirectoryError if one must not be used, or if none can be used."""

    def __init__(self, disk: Disk, paths: Sequence[str]) -> None:
        self.logs: dict[TopicPartition, Log] = {}
        self.offline: dict[str, str] = {}  # path -> error message
        self.cordoned: frozenset[str] = frozenset()  # the paths that get no new partitions (KIP-1066)
        self.on_offline: Callable[[str], None] = lambda path: None  # with the path of the directory
        self.moves: dict[TopicPartition, ReplicaMove] = {}  # replicas that move to another directory
        self._disk = disk
        self._dirs: list[LogDir] = []
        self._dir_of: dict[TopicPartition, LogDir] = {}
        # Partitions with folders in several directories, with their different topic ids, until `mark_duplicates`.
        self._duplicates: dict[TopicPartition, dict[LogDir, uuid.UUID | None]] = {}
        self._deletions: list[Deletion] = []
        self._opened_ahead: dict[TopicPartition, Log] = {}  # by `prepare_recovery` or `prepare_creation`
        # They have a directory, but the work of `prepare_creation` has not run or has failed.
        self._not_created: set[TopicPartition] = set()
        try:
            for path in paths:
                self._open_dir(path.rstrip("/") or "/")
            if not self._dirs:
                raise UnusableDirectoryError(
                    "no data directory can be used: "
                    + "; ".join(f"{path}: {reason}" for path, reason in self.offline.items())
                )
            folders = find_folders(self._disk, self._dirs)
            self._dir_of, self._duplicates = folders.dir_of, folders.duplicates
            self._deletions += folders.deletions
            for log_dir in list(self._dirs):
                self._settle_future_folders(log_dir)
        except BaseException:
            self.release()
            raise

    def _open_dir(self, path: str) -> None:
        try:
            log_dir = LogDir(self._disk, path)
        except OSError as error:
            if not is_disk_failure(error):
                raise
            logger.error("the data directory %s is offline: %s", path, error)
            self.offline[path] = str(error)
            return
        self._dirs.append(log_dir)

    def _settle_future_folders(self, log_dir: LogDir) -> None:
        if self.offline:
            keep_future_folders(log_dir)
            return
        try:
            for settled in settle_future_folders(self._disk, log_dir, self._dir_of):
                if isinstance(settled, Deletion):
                    self._deletions.append(settled)
                else:
                    self._assign_dir(settled, log_dir)
        except OSError as error:
            if not is_disk_failure(error):
                raise
            logger.error("the data directory %s is offline: %s", log_dir.path, error)
            self._take_offline(log_dir, error)

    @property
    def paths(self) -> list[str]:
        """The directories that are online."""
        return [log_dir.path for log_dir in self._dirs]

    @property
    def partitions(self) -> list[TopicPartition]:
        """All partitions with a folder in an online directory, opened or not."""
        return sorted(self._dir_of)

    @property
    def directory_ids(self) -> dict[str, uuid.UUID]:
        return {log_dir.path: log_dir.meta.directory_id for log_dir in self._dirs if log_dir.meta is not None}

    @property
    def high_watermarks(self) -> dict[TopicPartition, int]:
        """The checkpointed high watermarks of the last run."""
        return checkpointed_high_watermarks(self._dirs)

    def was_closed_cleanly(self, partition: TopicPartition) -> bool:
        return partition in self._dir_of and self._dir_of[partition].clean_shutdown

    @property
    def last_broker_epoch(self) -> int:
        """The broker epoch of the last run if its shutdown was clean in every directory, otherwise -1 (KIP-966)."""
        # Nobody knows what an offline directory has lost.
        epochs = {log_dir.broker_epoch for log_dir in self._dirs if log_dir.clean_shutdown}
        is_clean = not self.offline and all(log_dir.clean_shutdown for log_dir in self._dirs)
        return epochs.pop() if is_clean and len(epochs) == 1 else -1

    def identify(self, node_id: int, new_id: Callable[[], uuid.UUID], cluster_id: str | None = None) -> str:
        """Returns the cluster id of the directories, or `cluster_id` if all are new, and writes it to the new ones."""
        return identify_dirs(self._dirs, node_id, new_id, cluster_id)

    @property
    def known_cluster_id(self) -> str | None:
        """The cluster id of the first directory with an identity; None if all are new."""
        return next((log_dir.meta.cluster_id for log_dir in self._dirs if log_dir.meta is not None), None)

    # Opening and deleting logs

    def clean_shutdown_removals(self) -> list[CleanShutdownRemoval]:
        """To be run in threads before logs are opened. Otherwise the first `open` in a directory blocks for it."""
        return [CleanShutdownRemoval(log_dir) for log_dir in self._dirs if log_dir.clean_shutdown]

    def open(
        self,
        partition: TopicPartition,
        config: LogConfig,
        now_ms: int,
        *,
        topic_id: uuid.UUID | None = None,
        is_new: bool = False,
        in_directory: str | None = None,
    ) -> Log:
        """Opens the log of `partition`, or creates it in `in_directory` or the directory with the fewest partitions.

        Does not create it while a directory is offline, because it may exist there, unless `is_new` is set.
        """
        if partition in self.logs:
            return self.logs[partition]
        if partition in self._not_created:
            self._not_created.discard(partition)
            self._unassign_dir(partition)
        log_dir = self._dir_of.get(partition)
        has_folder = log_dir is not None
        if log_dir is None:
            if self.offline and not is_new:
                raise KafkaError(
                    ErrorCode.kafka_storage_error,
                    f"{partition} is in no online data directory, and may be in {', '.join(self.offline)}, "
                    "which is offline. Fix the disk and restart the broker",
                )
            log_dir = self._directory_for_new(partition, in_directory)
        try:
            if not has_folder:
                self._sync_earlier_deletion(log_dir, partition)
                # Even if the open fails: the next try must not create a second folder in another directory.
                self._assign_dir(partition, log_dir)
            log = self._take_opened_ahead(partition, log_dir) or self._open_in(
                log_dir, partition, config, now_ms, topic_id
            )
        except OSError as error:
            kafka_error = self._handle_error_in(log_dir, partition, error)
            may_have_folder = log_dir.path not in self.offline or self._may_exist(
                f"{log_dir.path}/{partition}"
            )
            if not has_folder and self._dirs and not may_have_folder:
                return self.open(partition, config, now_ms, topic_id=topic_id, is_new=is_new)
            raise kafka_error from error
        except CorruptCheckpointError as error:
            raise KafkaError(ErrorCode.kafka_storage_error, str(error)) from error
        log.clean_up_to = log_dir.cleaner_offsets.get(partition)
        self.logs[partition] = log
        return log

    def _take_opened_ahead(self, partition: TopicPartition, log_dir: LogDir) -> Log | None:
        log = self._opened_ahead.pop(partition, None)
        if log is None or log.directory == f"{log_dir.path}/{partition}":
            return log
        log.close(clean=False)  # its directory is offline now
        return None

    def _assign_dir(self, partition: TopicPartition, log_dir: LogDir) -> None:
        log_dir.partitions.add(partition)
        self._dir_of[partition] = log_dir

    def _unassign_dir(self, partition: TopicPartition) -> None:
        log_dir = self._dir_of.pop(partition, None)
        if log_dir is not None:
            log_dir.partitions.discard(partition)

    def _open_in(
        self,
        log_dir: LogDir,
        partition: TopicPartition,
        config: LogConfig,
        now_ms: int,
        topic_id: uuid.UUID | None,
    ) -> Log:
        log_dir.remove_clean_shutdown_file()
        return Log.open(
            self._disk,
            f"{log_dir.path}/{partition}",
            partition,
            config,
            clean_shutdown=log_dir.clean_shutdown,
            now_ms=now_ms,
            log_start_offset=log_dir.log_start_offsets.get(partition, 0),
            recovery_point=log_dir.recovery_points.get(partition, 0),
            topic_id=topic_id,
        )

    def prepare_recovery(
        self, partition: TopicPartition, config: LogConfig, now_ms: int, topic_id: uuid.UUID, *, or_open: bool
    ) -> tuple[str, Callable[[], None]] | None:
        """Returns the directory and a function that recovers and opens the log ahead of `open`, in any thread.

        Returns None if the log is open, does not exist, or needs no recovery (with `or_open` it is opened then).
        `open` tries again if the function fails.
        """
        log_dir = self._dir_of.get(partition)
        is_ahead = partition in self._opened_ahead or partition in self._not_created
        if log_dir is None or is_ahead or partition in self.logs or (log_dir.clean_shutdown and not or_open):
            return None

        def work() -> None:
            with contextlib.suppress(OSError, KafkaError, CorruptCheckpointError):
                self._opened_ahead[partition] = self._open_in(log_dir, partition, config, now_ms, topic_id)

        return log_dir.path, work

    def prepare_creation(
        self, partition: TopicPartition, config: LogConfig, now_ms: int, topic_id: uuid.UUID
    ) -> Callable[[], None] | None:
        """Returns a function that creates the log of a new partition ahead of `open`, in any thread.

        Returns None if only `open` can create it. `open` tries again if the function fails.
        """
        if partition in self._dir_of or not self._dirs:
            return None
        log_dir = by_preference(self._dirs, self.cordoned)[0]
        self._forget_copies(partition)
        if any(other.has_traces_of([partition], is_target=other is log_dir) for other in self._dirs):
            return None
        self._assign_dir(partition, log_dir)
        self._not_created.add(partition)

        def work() -> None:
            with contextlib.suppress(OSError, KafkaError, CorruptCheckpointError):
                self._opened_ahead[partition] = self._open_in(log_dir, partition, config, now_ms, topic_id)
                self._not_created.discard(partition)

        return work

    def _directory_for_new(self, partition: TopicPartition, wanted: str | None) -> LogDir:
        """The directory with the fewest partitions whose disk works; a cordoned one only if there is no other."""
        candidates = [log_dir for log_dir in self._dirs if wanted in (None, log_dir.path)]
        for log_dir in by_preference(candidates, self.cordoned):
            try:
                self._disk.exists(f"{log_dir.path}/{partition}")
                return log_dir
            except OSError as error:
                kafka_error = self._handle_error_in(log_dir, partition, error)
                if is_disk_failure(error):
                    continue
                raise kafka_error from error
        raise KafkaError(
            ErrorCode.kafka_storage_error,
            f"{wanted or 'every data directory'} is offline: the new partition cannot be created",
        )

    def _may_exist(self, path: str) -> bool:
        try:
            return self._disk.exists(path)
        except OSError:
            return True

    def directory_of(self, partition: TopicPartition) -> str | None:
        log_dir = self._dir_of.get(partition)
        return None if log_dir is None else log_dir.path

    def delete(self, partition: TopicPartition, unique_id: uuid.UUID, now_ms: int) -> None:
        """Deletes an open log. Its files are removed after file.delete.delay.ms. Durable after the `deletion_syncs`."""
        self._forget_copies(partition)
        self._delete_folder(partition, unique_id, now_ms)

    def _delete_folder(self, partition: TopicPartition, unique_id: uuid.UUID, now_ms: int) -> None:
        log = self.logs.pop(partition)
        log_dir = self._dir_of.pop(partition)
        log_dir.partitions.discard(partition)
        log_dir.note_renamed(log)
        try:
            self._deletions.append(log.delete_log(unique_id, now_ms))
        except OSError as error:
            raise self._handle_error_in(log_dir, partition, error) from error

    def mark_strays(self, partitions: Sequence[TopicPartition], new_id: Callable[[], uuid.UUID]) -> None:
        """Renames the folders of stray partitions, as Kafka does. Nothing reads or deletes them any more.

        The caller runs `deletion_syncs` in threads before a partition with the same name is opened: old entries of the
        checkpoints must not be used for it. If a disk fails, its directory goes offline.
        """
        for log_dir in list(self._dirs):
            here = [partition for partition in partitions if self._dir_of.get(partition) is log_dir]
            try:
                if here:
                    self._mark_strays_in(log_dir, here, new_id)
            except OSError as error:
                self._handle_error_in(log_dir, here[0], error)

    def mark_duplicates(
        self, topic_id_of: Callable[[TopicPartition], uuid.UUID | None], new_id: Callable[[], uuid.UUID]
    ) -> None:
        """Before a log is opened: of several folders, keeps the one with the topic id of the metadata (KIP-858)."""
        for partition, topic_ids in self._duplicates.items():
            wanted = topic_id_of(partition)
            online = [log_dir for log_dir in topic_ids if log_dir in self._dirs]
            # The wanted one last.
            for log_dir in sorted(online, key=lambda each: topic_ids[each] == wanted):
                self._assign_dir(partition, log_dir)
                if topic_ids[log_dir] != wanted:
                    self.mark_strays([partition], new_id)
        self._duplicates.clear()

    def _mark_strays_in(
        self, log_dir: LogDir, partitions: Sequence[TopicPartition], new_id: Callable[[], uuid.UUID]
    ) -> None:
        for partition in partitions:
            log = self.logs.pop(partition, None)
            if log is not None:
                log.close(clean=False)
            set_folder_aside(self._disk, log_dir.path, partition, new_id())
            self._unassign_dir(partition)
            log_dir.deletions += 1

    def deletion_syncs(self) -> list[DeletionSync]:
        """Makes all deletions so far durable: one sync for each directory that has any, to be run in threads.

        Like Kafka's LogManager.asyncDelete, it rewrites the checkpoints once for all logs of a request.
        """
        return [plan_deletion_sync(each, self.logs) for each in self._dirs if each.has_unsynced_deletions]

    def _sync_earlier_deletion(self, target: LogDir, partition: TopicPartition) -> None:
        """Before `partition` is created: makes the deletion of a partition with the same name durable. Raises OSError.

        It blocks only if there is such a deletion, which is rare: see `must_sync_before`.
        """
        self._forget_copies(partition)
        for log_dir in list(self._dirs):
            # Otherwise a power loss could bring the old folder back, and the partition would be in two directories.
            if log_dir.has_traces_of([partition], is_target=log_dir is target):
                sync = plan_deletion_sync(log_dir, self.logs)
                sync.sync()
                sync.complete()

    def _forget_copies(self, partition: TopicPartition) -> None:
        """A copy from an unfinished move belongs to a partition that is deleted now: so are its checkpoint entries."""
        for log_dir in self._dirs:
            if partition in log_dir.unfinished_moves:
                log_dir.unfinished_moves.discard(partition)
                log_dir.deletions += 1

    def must_sync_before(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether their creation must wait for `deletion_syncs`: a partition with one of the names was deleted."""
        new = [partition for partition in partitions if partition not in self._dir_of]
        unsynced = [each for each in self._dirs if each.has_unsynced_deletions] if new else []
        return any(each.has_traces_of(new, is_target=True) for each in unsynced)

    # Moving replicas between directories

    def start_move(self, partition: TopicPartition, path: str, unique_id: uuid.UUID) -> ReplicaMove:
        """Starts a move to the online directory `path`. An earlier move of the replica is abandoned."""
        self.abandon_move(partition)
        move = self.moves[partition] = ReplicaMove(self._disk, self.logs[partition], path, unique_id)
        return move

    def plan_last_copy(
        self, move: ReplicaMove, topic_id: uuid.UUID, now_ms: int
    ) -> tuple[LastCopy, list[CheckpointWrite]]:
        """The last step before `finish_move`, to be run in a thread, while the log is not flushed."""
        log, target = move.log, self._target_of(move)
        partition, last = log.topic_partition, move.plan_last_copy(topic_id, now_ms)
        # If the move fails, the entries are stale, and count as a deletion.
        target.deletions += 1
        target.unfinished_moves.add(partition)
        offsets = {LOG_START_OFFSETS: last.log_start_offset, RECOVERY_POINTS: last.end_offset}
        return last, [
            target.plan_checkpoint(name, current_offsets(target, name, self.logs) | {partition: offset})
            for name, offset in offsets.items()
        ]

    def finish_move(
        self, last: LastCopy, checkpoints: Sequence[CheckpointWrite], unique_id: uuid.UUID, now_ms: int
    ) -> Log | None:
        """Copies the last appends and replaces the old folder with the new one. Returns the log in the new folder.

        Returns None, and changes nothing, if the last copy must be repeated. Raises OSError if it fails before the old
        folder is changed, and KafkaError if a directory went offline. Syncs nothing: the caller runs `deletion_syncs`
        and then `remove_moved_from` in threads.
        """
        move, target = last.move, self._target_of(last.move)
        partition = move.log.topic_partition
        for checkpoint in checkpoints:
            checkpoint.complete()
        move.mark_copied(last.left, last.truncations)
        has_entries = all(target.will_have_entry(checkpoint.name, partition) for checkpoint in checkpoints)
        if not (has_entries and last.is_current):
            return None
        move.copy_active()
        # If this fails, the copy is the only replica left, so it keeps its checkpoint entries.
        self._delete_folder(partition, unique_id, now_ms)
        target.unfinished_moves.discard(partition)
        self._assign_dir(partition, target)
        del self.moves[partition]
        try:
            log = move.replace(last)
        except OSError as error:
            raise self._handle_error_in(target, partition, error) from error
        log.clean_up_to, log.truncations = move.log.clean_up_to, move.log.truncations
        self.logs[partition] = log
        return log

    def _target_of(self, move: ReplicaMove) -> LogDir:
        return next(log_dir for log_dir in self._dirs if log_dir.path == move.path)

    def abandon_move(self, partition: TopicPartition) -> None:
        """The copying thread stops at its next chunk; then its caller must call `remove_future_folder`."""
        move = self.moves.pop(partition, None)
        if move is not None:
            move.is_abandoned = True

    def remove_future_folder(self, move: ReplicaMove) -> None:
        """Schedules the removal of the copy of an abandoned move."""
        partition = move.log.topic_partition
        if self.moves.get(partition) is move:
            del self.moves[partition]
        if partition not in self.moves:
            for log_dir in self._dirs:
                log_dir.unfinished_moves.discard(partition)
        self._deletions.append(Deletion(0, move.future_directory, is_directory=True))

    # Errors

    def handle_error(self, partition: TopicPartition, error: OSError) -> KafkaError:
        """After an OSError in a log: takes its directory offline if the disk has failed. Returns the error to raise."""
        return self._handle_error_in(self._dir_of.get(partition), partition, error)

    def _handle_error_in(
        self, log_dir: LogDir | None, partition: TopicPartition, error: OSError
    ) -> KafkaError:
        if not is_disk_failure(error):
            # Clients retry after this error code.
            return KafkaError(
                ErrorCode.kafka_storage_error, out_of_resources_message(f"an operation on {partition}", error)
            )
        if log_dir is not None and log_dir.path not in self.offline:
            logger.error(
                "the data directory %s goes offline with %d partitions: %s",
                log_dir.path,
                len(log_dir.partitions),
                error,
            )
            self._take_offline(log_dir, error)
        path = log_dir.path if log_dir is not None else "its data directory"
        return KafkaError(
            ErrorCode.kafka_storage_error,
            f"{partition} is not available: {path} is offline ({error}). Fix the disk and restart the broker",
        )

    def _take_offline(self, log_dir: LogDir, error: OSError) -> None:
        self.offline[log_dir.path] = str(error)
        self._dirs.remove(log_dir)
        for partition in log_dir.partitions:
            # Users of the log still have it and get its errors, but it cannot be looked up here any more.
            self.logs.pop(partition, None)
            self._dir_of.pop(partition, None)
        log_dir.release()
        self.on_offline(log_dir.path)

    # Deletions and checkpoints

    def due_deletions(self, now_ms: int) -> list[Deletion]:
        """Returns the deletions that are due and removes them from the list; the caller performs them in a thread."""
        due = [deletion for deletion in self._deletions if deletion.due_ms <= now_ms]
        self._deletions = [deletion for deletion in self._deletions if deletion.due_ms > now_ms]
        for log in self.logs.values():
            if log.deletions:
                due += log.due_deletions(now_ms)
        return due

    def recovery_point_checkpoints(self) -> list[CheckpointWrite]:
        """The checkpoint files that have changed, to be written in a thread; the same for the next three methods."""
        return plan_checkpoints(self._dirs, RECOVERY_POINTS, self.logs)

    def log_start_offset_checkpoints(self) -> list[CheckpointWrite]:
        return plan_checkpoints(self._dirs, LOG_START_OFFSETS, self.logs)

    def high_watermark_checkpoints(
        self, high_watermarks: Mapping[TopicPartition, int]
    ) -> list[CheckpointWrite]:
        return plan_checkpoints(self._dirs, HIGH_WATERMARKS, self.logs, high_watermarks)

    def cleaner_offset_checkpoints(self) -> list[CheckpointWrite]:
        return plan_checkpoints(self._dirs, CLEANER_OFFSETS, self.logs)

    def plan_truncation(self, partition: TopicPartition, offset: int) -> CheckpointWrite | None:
        """The checkpoint to write before a log is truncated to `offset`; None if it needs none.

        Otherwise recovery would take records that are appended after the truncation for flushed ones.
        """
        log_dir = self._dir_of.get(partition)
        return None if log_dir is None else log_dir.plan_lower_entry(RECOVERY_POINTS, partition, offset)

    def handle_checkpoint_error(
        self, work: CheckpointWrite | DeletionSync | CleanShutdownRemoval, error: OSError
    ) -> None:
        """After an OSError in a work for a thread: takes the directory offline.

        Only logs the error if a retry may succeed.
        """
        if not is_disk_failure(error):
            logger.warning(
                "%s", out_of_resources_message(f"writing a checkpoint in {work.log_dir.path}", error)
            )
        elif work.log_dir.path not in self.offline:
            logger.error("the data directory %s goes offline: %s", work.log_dir.path, error)
            self._take_offline(work.log_dir, error)

    def _write_checkpoints(self, checkpoints: Iterable[CheckpointWrite]) -> set[LogDir]:
        """Returns the directories in which a write failed."""
        failed = set()
        for checkpoint in checkpoints:
            try:
                checkpoint.write()
                checkpoint.complete()
            except OSError as error:
                self.handle_checkpoint_error(checkpoint, error)
                failed.add(checkpoint.log_dir)
        return failed

    # Shutdown

    def close(self, broker_epoch: int, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """A clean shutdown: flushes and closes every log, writes the checkpoints, and last the clean-shutdown files."""
        unclean: set[LogDir | None] = set()
        for partition, log in list(self.logs.items()):
            try:
                log.close(clean=True)
            except OSError as error:
                unclean.add(self._dir_of.get(partition))
                logger.error(
                    "%s was not closed cleanly: %s", partition, self.handle_error(partition, error).message
                )
        unclean |= self._write_checkpoints(self.recovery_point_checkpoints())
        unclean |= self._write_checkpoints(self.log_start_offset_checkpoints())
        unclean |= self._write_checkpoints(self.high_watermark_checkpoints(high_watermarks))
        for log_dir in self._dirs:
            if log_dir not in unclean and (log_dir.clean_shutdown or log_dir.partitions <= self.logs.keys()):
                try:
                    log_dir.write_clean_shutdown(broker_epoch)
                except OSError as error:
                    logger.error("%s is not marked as cleanly shut down: %s", log_dir.path, error)
        self.release()

    def release(self) -> None:
        """Releases all files and locks without a flush, as a crash would."""
        for log in self.logs.values():
            log.close(clean=False)
        self.logs.clear()
        for log_dir in self._dirs:
            log_dir.release()
