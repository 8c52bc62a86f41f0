"""The data directories of a broker (`log.dirs`) and the logs in them.

A directory whose disk fails goes offline, its partitions with it; the others go on (KIP-112).
"""

import contextlib
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence

from ottla.env.disk import Disk
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition
from ottla.storage.checkpoints import CorruptCheckpointError, read_partition_metadata
from ottla.storage.deletion import Deletion
from ottla.storage.disk_errors import is_disk_failure, out_of_resources_message
from ottla.storage.file_names import (
    PARTITION_METADATA,
    STRAY_DIR_SUFFIX,
    dir_name_with_suffix,
    parse_future_dir,
)
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.log_dir import (
    CHECKPOINTS,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    Checkpoint,
    DeletionSync,
    LogDir,
)
from ottla.storage.meta_properties import (
    MetaProperties,
    UnusableDirectoryError,
    check_identity,
    missing_identity_error,
)
from ottla.storage.replica_move import ReplicaMove

logger = logging.getLogger("ottla.storage")


class LogDirs:
    """Locks every directory. Raises UnusableDirectoryError where one may not be used, or none can be."""

    def __init__(self, disk: Disk, paths: Sequence[str]) -> None:
        self.logs: dict[TopicPartition, Log] = {}
        self.offline: dict[str, str] = {}  # path -> what happened
        self.on_offline: Callable[[str], None] = lambda path: (
            None
        )  # told of every directory that goes offline
        self.moves: dict[TopicPartition, ReplicaMove] = {}  # replicas on their way to another directory
        self._disk = disk
        self._dirs: list[LogDir] = []
        self._places: dict[TopicPartition, LogDir] = {}
        self._deletions: list[Deletion] = []
        self._recovered: dict[TopicPartition, Log] = {}  # opened ahead, by `recovery` or `creation`
        self._not_created: set[TopicPartition] = set()  # have a place, and a `creation` that is not done
        try:
            for path in paths:
                self._take(path.rstrip("/") or "/")
            if not self._dirs:
                raise UnusableDirectoryError(
                    "no data directory can be used: "
                    + "; ".join(f"{path}: {reason}" for path, reason in self.offline.items())
                )
            for log_dir in list(self._dirs):
                self._settle_future_directories(log_dir)
        except BaseException:
            self.release()
            raise

    def _take(self, path: str) -> None:
        try:
            taken = LogDir(self._disk, path)
        except OSError as error:
            if not is_disk_failure(error):
                raise
            logger.error("the data directory %s is offline: %s", path, error)
            self.offline[path] = str(error)
            return
        self._dirs.append(taken)
        for partition in taken.partitions:
            if partition in self._places:
                raise UnusableDirectoryError(
                    f"{partition} lies both in {self._places[partition].path} and in {path}: "
                    "move the one that is not wanted out of the data directories"
                )
            self._places[partition] = taken
        # Deletions that the last run had begun.
        self._deletions += [
            Deletion(0, directory, is_directory=True) for directory in taken.deleted_directories
        ]

    def _settle_future_directories(self, log_dir: LogDir) -> None:
        """A move that a stop interrupted: finished where only the renaming was left, else undone."""
        if self.offline:
            # What it was to replace may be there: the next start decides.
            found = (parse_future_dir(name) for name in log_dir.future_directories)
            log_dir.unfinished_moves = {partition for partition in found if partition is not None}
            return
        for name in log_dir.future_directories:
            partition, directory = parse_future_dir(name), f"{log_dir.path}/{name}"
            try:
                if partition is None or not (partition in self._places or self._is_whole(directory)):
                    # What it was to replace is not here: if it was deleted, these are the only records.
                    logger.error(
                        "%s is a copy that is not whole, of no partition here. Remove it if it is not wanted",
                        directory,
                    )
                    continue
                if partition in self._places:
                    logger.info("removing %s: the move of the replica was not finished", directory)
                    self._deletions.append(Deletion(0, directory, is_directory=True))
                    continue
                self._disk.rename(directory, f"{log_dir.path}/{partition}")
                self._disk.sync_dir(log_dir.path)
            except OSError as error:
                if not is_disk_failure(error):
                    raise
                logger.error("the data directory %s is offline: %s", log_dir.path, error)
                self._take_offline(log_dir, error)
                return
            logger.info("finished the move of %s to %s", partition, log_dir.path)
            log_dir.partitions.add(partition)
            self._places[partition] = log_dir

    def _is_whole(self, future_directory: str) -> bool:
        """Whether the last file of a move has been written there. Raises OSError."""
        try:
            path = f"{future_directory}/{PARTITION_METADATA}"
            return read_partition_metadata(self._disk, path) is not None
        except CorruptCheckpointError as error:
            logger.error("%s", error)
            return False

    @property
    def paths(self) -> list[str]:
        """Those that are online."""
        return [log_dir.path for log_dir in self._dirs]

    @property
    def partitions(self) -> list[TopicPartition]:
        """All that have a folder in a directory that is online, opened or not."""
        return sorted(self._places)

    @property
    def directory_ids(self) -> dict[str, uuid.UUID]:
        return {log_dir.path: log_dir.meta.directory_id for log_dir in self._dirs if log_dir.meta is not None}

    @property
    def high_watermarks(self) -> dict[TopicPartition, int]:
        """As the last run left them."""
        return {
            partition: offset
            for log_dir in self._dirs
            for partition, offset in log_dir.high_watermarks.items()
            if partition in log_dir.partitions
        }

    @property
    def last_broker_epoch(self) -> int:
        """Of the last run, where it ended in order in every directory; else -1 (KIP-966)."""
        epochs = {log_dir.broker_epoch for log_dir in self._dirs if log_dir.clean_shutdown}
        ended_in_order = all(log_dir.clean_shutdown for log_dir in self._dirs)
        return epochs.pop() if ended_in_order and len(epochs) == 1 else -1

    def identify(self, node_id: int, new_id: Callable[[], uuid.UUID], cluster_id: str | None = None) -> str:
        """The cluster's id, from the directories or else `cluster_id`; new directories get an identity."""
        source = "this broker's configuration"
        for log_dir in self._dirs:
            if log_dir.meta is None and log_dir.has_data:
                raise missing_identity_error(log_dir.path)
        for log_dir in self._dirs:
            if log_dir.meta is None:
                continue
            check_identity(log_dir.path, log_dir.meta, node_id, cluster_id, source)
            cluster_id, source = log_dir.meta.cluster_id, log_dir.path
        if cluster_id is None:
            raise ValueError("the directories are new, so the cluster's id must be given")
        for log_dir in self._dirs:
            if log_dir.meta is None:
                log_dir.write_meta(MetaProperties(cluster_id, node_id, new_id()))
        return cluster_id

    @property
    def known_cluster_id(self) -> str | None:
        """What the first directory that has an identity says; None where all are new."""
        return next((log_dir.meta.cluster_id for log_dir in self._dirs if log_dir.meta is not None), None)

    # Logs

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
        """The log of `partition`: where it is, or made in `in_directory` or where the fewest partitions are.

        Without `is_new` none is made while a directory is offline: the log may lie there.
        """
        if partition in self.logs:
            return self.logs[partition]
        if partition in self._not_created:
            self._not_created.discard(partition)
            self._forget_place(partition)
        log_dir = self._places.get(partition)
        has_folder = log_dir is not None
        if log_dir is None:
            if self.offline and not is_new:
                raise KafkaError(
                    ErrorCode.kafka_storage_error,
                    f"{partition} is in no data directory that is online, and may be in {', '.join(self.offline)}, "
                    "which is offline. Fix the disk and restart the broker",
                )
            log_dir = self._directory_for_new(partition, in_directory)
        try:
            if not has_folder:
                self._forget_namesake(log_dir, partition)
                # Also if it cannot be opened now: the next try must not make a second folder in another directory.
                log_dir.partitions.add(partition)
                self._places[partition] = log_dir
            log = self._opened_ahead(partition, log_dir) or self._open_in(
                log_dir, partition, config, now_ms, topic_id
            )
        except OSError as error:
            refusal = self._failed_in(log_dir, partition, error)
            is_left_behind = log_dir.path not in self.offline or self._may_exist(
                f"{log_dir.path}/{partition}"
            )
            if not has_folder and self._dirs and not is_left_behind:
                return self.open(partition, config, now_ms, topic_id=topic_id, is_new=is_new)
            raise refusal from error
        except CorruptCheckpointError as error:
            raise KafkaError(ErrorCode.kafka_storage_error, str(error)) from error
        log.clean_up_to = log_dir.cleaner_offsets.get(partition)
        self.logs[partition] = log
        return log

    def _opened_ahead(self, partition: TopicPartition, log_dir: LogDir) -> Log | None:
        log = self._recovered.pop(partition, None)
        if log is None or log.directory == f"{log_dir.path}/{partition}":
            return log
        log.close(clean=False)  # its directory has gone offline since
        return None

    def _forget_place(self, partition: TopicPartition) -> None:
        log_dir = self._places.pop(partition, None)
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

    def recovery(
        self, partition: TopicPartition, config: LogConfig, now_ms: int, topic_id: uuid.UUID
    ) -> tuple[str, Callable[[], None]] | None:
        """(directory, work) that opens a log ahead, where an unclean stop left much to check. Safe in any thread.

        None where the log opens fast, or is not there. What fails, `open` meets again.
        """
        log_dir = self._places.get(partition)
        if log_dir is None or log_dir.clean_shutdown:
            return None

        def work() -> None:
            with contextlib.suppress(OSError, KafkaError, CorruptCheckpointError):
                self._recovered[partition] = self._open_in(log_dir, partition, config, now_ms, topic_id)

        return log_dir.path, work

    def creation(
        self, partition: TopicPartition, config: LogConfig, now_ms: int, topic_id: uuid.UUID
    ) -> Callable[[], None] | None:
        """Work that creates the log of a new partition ahead of `open`. Safe in any thread.

        None where that is for `open` alone, which also meets again what fails here.
        """
        if partition in self._places or not self._dirs:
            return None
        log_dir = min(self._dirs, key=lambda log_dir: len(log_dir.partitions))
        if any(self._has_namesake(other, log_dir, partition) for other in self._dirs):
            return None
        log_dir.unfinished_moves.discard(partition)  # see _forget_namesake
        log_dir.partitions.add(partition)
        self._places[partition] = log_dir
        self._not_created.add(partition)

        def work() -> None:
            with contextlib.suppress(OSError, KafkaError, CorruptCheckpointError):
                self._recovered[partition] = self._open_in(log_dir, partition, config, now_ms, topic_id)
                self._not_created.discard(partition)

        return work

    def _directory_for_new(self, partition: TopicPartition, wanted: str | None) -> LogDir:
        """The one with the fewest partitions, of those that answer."""
        candidates = [log_dir for log_dir in self._dirs if wanted in (None, log_dir.path)]
        for log_dir in sorted(candidates, key=lambda log_dir: len(log_dir.partitions)):
            try:
                self._disk.exists(f"{log_dir.path}/{partition}")
                return log_dir
            except OSError as error:
                refusal = self._failed_in(log_dir, partition, error)
                if is_disk_failure(error):
                    continue
                raise refusal from error
        raise KafkaError(
            ErrorCode.kafka_storage_error,
            f"{wanted or 'every data directory'} is offline: a new partition has no place",
        )

    def _may_exist(self, path: str) -> bool:
        try:
            return self._disk.exists(path)
        except OSError:
            return True

    def directory_of(self, partition: TopicPartition) -> str | None:
        log_dir = self._places.get(partition)
        return None if log_dir is None else log_dir.path

    def delete(self, partition: TopicPartition, unique_id: uuid.UUID, now_ms: int) -> None:
        """Removes an open log; its files go after file.delete.delay.ms. Durable after the `deletion_syncs` of it."""
        log = self.logs.pop(partition)
        log_dir = self._places.pop(partition)
        log_dir.partitions.discard(partition)
        log_dir.renamed_logs.append(log)
        log_dir.deletions += 1
        try:
            self._deletions.append(log.delete_log(unique_id, now_ms))
        except OSError as error:
            raise self._failed_in(log_dir, partition, error) from error

    def set_aside(self, partitions: Sequence[TopicPartition], new_id: Callable[[], uuid.UUID]) -> None:
        """Renames folders as Kafka does with strays: nobody reads them any more, and nothing ever deletes them.

        A directory whose disk fails over it goes offline.
        """
        for log_dir in list(self._dirs):
            here = [partition for partition in partitions if self._places.get(partition) is log_dir]
            try:
                if here:
                    self._set_aside_in(log_dir, here, new_id)
            except OSError as error:
                self._failed_in(log_dir, here[0], error)

    def _set_aside_in(
        self, log_dir: LogDir, partitions: Sequence[TopicPartition], new_id: Callable[[], uuid.UUID]
    ) -> None:
        for partition in partitions:
            log = self.logs.pop(partition, None)
            if log is not None:
                log.close(clean=False)
            target = f"{log_dir.path}/{dir_name_with_suffix(partition, STRAY_DIR_SUFFIX, new_id())}"
            self._disk.rename(f"{log_dir.path}/{partition}", target)
            del self._places[partition]
            log_dir.partitions.discard(partition)
            logger.error(
                "the folder of %s is set aside as %s, and nothing deletes it. Remove it if its records are not wanted. "
                "To have them back, stop the broker, restore the metadata or partition.metadata, and rename it to %s",
                partition, target, partition,
            )  # fmt: skip
        # What the checkpoints say of them must not meet a new partition of the same name.
        log_dir.deletions += 1
        sync = self._deletion_sync(log_dir)
        sync.sync()
        sync.completed()

    def deletion_syncs(self) -> list[DeletionSync]:
        """What makes all deletions so far durable, one for each directory that has any: to be done in workers.

        As Kafka's LogManager.asyncDelete, which rewrites the checkpoints once for all the logs of a request.
        """
        return [
            self._deletion_sync(log_dir)
            for log_dir in self._dirs
            if log_dir.deletions > log_dir.deletions_synced
        ]

    def _deletion_sync(self, log_dir: LogDir) -> DeletionSync:
        checkpoints = [
            log_dir.plan_checkpoint(name, self._offsets_now(log_dir, name, {}))
            for name in CHECKPOINTS
            if log_dir.stale_entries(name)
        ]
        return DeletionSync(log_dir, checkpoints, tuple(log_dir.renamed_logs), log_dir.deletions)

    def _forget_namesake(self, target: LogDir, partition: TopicPartition) -> None:
        """Before `partition` gets a folder: the deletion of one of its name may not be durable yet. Raises OSError.

        Blocks then; a broker runs the `deletion_syncs` before it decides on a creation, so it seldom comes to that.
        """
        # The copy that an unfinished move has left is older than this partition.
        target.unfinished_moves.discard(partition)
        for log_dir in list(self._dirs):
            # A power loss that brought back the old folder in any directory would leave the partition in two places.
            if self._has_namesake(log_dir, target, partition):
                sync = self._deletion_sync(log_dir)
                sync.sync()
                sync.completed()

    @staticmethod
    def _has_namesake(log_dir: LogDir, target: LogDir, partition: TopicPartition) -> bool:
        is_renamed = any(log.topic_partition == partition for log in log_dir.renamed_logs)
        return is_renamed or (log_dir is target and target.has_entries_of(partition))

    # Moves

    def start_move(self, partition: TopicPartition, path: str, unique_id: uuid.UUID) -> ReplicaMove:
        """To `path`, a directory that is online; a move of the replica to elsewhere is abandoned."""
        self.abandon_move(partition)
        move = self.moves[partition] = ReplicaMove(self._disk, self.logs[partition], path, unique_id)
        return move

    def finish_move(self, move: ReplicaMove, topic_id: uuid.UUID, unique_id: uuid.UUID, now_ms: int) -> Log:
        """Copies what little is left, and puts the new folder in the place of the old one.

        OSError before anything of the old was touched; KafkaError where a directory has gone offline over it.
        """
        partition, log = move.log.topic_partition, move.log
        target = next(log_dir for log_dir in self._dirs if log_dir.path == move.path)
        move.complete(topic_id, now_ms)
        # Before the folder has its name: a crash must not bring back what DeleteRecords removed.
        # If the move fails, these entries have no partition.
        target.deletions += 1
        for name, offset in (
            (LOG_START_OFFSETS, log.log_start_offset),
            (RECOVERY_POINTS, log.log_end_offset),
        ):
            target.write_checkpoint(name, self._offsets_now(target, name, {}) | {partition: offset})
        source = self._places[partition]
        self.delete(partition, unique_id, now_ms)
        try:
            source.sync_names()  # else a power loss could leave the log in both directories
        except OSError as error:
            raise self._failed_in(source, partition, error) from error
        target.partitions.add(partition)
        self._places[partition] = target
        del self.moves[partition]
        try:
            self.logs[partition] = move.replace(topic_id, now_ms)
            self.logs[partition].clean_up_to = log.clean_up_to
        except OSError as error:
            raise self._failed_in(target, partition, error) from error
        return self.logs[partition]

    def abandon_move(self, partition: TopicPartition) -> None:
        """Its worker stops at the next chunk, and whoever runs it calls `remove_future` then."""
        move = self.moves.pop(partition, None)
        if move is not None:
            move.is_abandoned = True

    def remove_future(self, move: ReplicaMove) -> None:
        """What an abandoned move has copied is removed soon."""
        if self.moves.get(move.log.topic_partition) is move:
            del self.moves[move.log.topic_partition]
        self._deletions.append(Deletion(0, move.future_directory, is_directory=True))

    def failed(self, partition: TopicPartition, error: OSError) -> KafkaError:
        """After an OSError in a log: takes its directory offline if the disk has failed. Raise what it returns."""
        return self._failed_in(self._places.get(partition), partition, error)

    def _failed_in(self, log_dir: LogDir | None, partition: TopicPartition, error: OSError) -> KafkaError:
        if not is_disk_failure(error):
            # Clients take it for retriable, and so do we.
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
        place = log_dir.path if log_dir is not None else "its data directory"
        return KafkaError(
            ErrorCode.kafka_storage_error,
            f"{partition} is not available: {place} is offline ({error}). Fix the disk and restart the broker",
        )

    def _take_offline(self, log_dir: LogDir, error: OSError) -> None:
        self.offline[log_dir.path] = str(error)
        self._dirs.remove(log_dir)
        for partition in log_dir.partitions:
            # The log stays in the hands of who has it, and answers with its own errors; nobody finds it here.
            self.logs.pop(partition, None)
            self._places.pop(partition, None)
        log_dir.release()
        self.on_offline(log_dir.path)

    # Background work

    def due_deletions(self, now_ms: int) -> list[Deletion]:
        """Takes out what is to be removed by now; the caller performs it in a worker."""
        due = [deletion for deletion in self._deletions if deletion.due_ms <= now_ms]
        self._deletions = [deletion for deletion in self._deletions if deletion.due_ms > now_ms]
        for log in self.logs.values():
            if log.deletions:
                due += log.due_deletions(now_ms)
        return due

    def recovery_point_checkpoints(self) -> list[Checkpoint]:
        """What the checkpoints are to say now, where that is not what they say: to be written in a worker."""
        return self._checkpoints(RECOVERY_POINTS)

    def log_start_offset_checkpoints(self) -> list[Checkpoint]:
        return self._checkpoints(LOG_START_OFFSETS)

    def high_watermark_checkpoints(self, high_watermarks: Mapping[TopicPartition, int]) -> list[Checkpoint]:
        return self._checkpoints(HIGH_WATERMARKS, high_watermarks)

    def cleaner_offset_checkpoints(self) -> list[Checkpoint]:
        return self._checkpoints(CLEANER_OFFSETS)

    def _checkpoints(
        self, name: str, high_watermarks: Mapping[TopicPartition, int] | None = None
    ) -> list[Checkpoint]:
        found = []
        for log_dir in self._dirs:
            offsets = self._offsets_now(log_dir, name, high_watermarks or {})
            if offsets != log_dir.checkpointed(name):
                found.append(log_dir.plan_checkpoint(name, offsets))
        return found

    def _offsets_now(
        self, log_dir: LogDir, name: str, high_watermarks: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """What the checkpoint of this name is to say now."""
        known, found = log_dir.checkpointed(name), {}
        for partition in log_dir.partitions | log_dir.unfinished_moves:
            log = self.logs.get(partition)
            # Partitions that nobody has opened in this run keep what the last one wrote.
            offset = known.get(partition)
            if name == HIGH_WATERMARKS:
                offset = high_watermarks.get(partition, offset or 0)
            elif log is not None and partition in log_dir.partitions:
                offset = _CHECKPOINTED[name](log)
            if offset is not None:
                found[partition] = offset
        return found

    def checkpoint_failed(self, work: Checkpoint | DeletionSync, error: OSError) -> None:
        """After an OSError in `Checkpoint.write` or `DeletionSync.sync`: takes the directory offline.

        Unless it is worth another try.
        """
        if not is_disk_failure(error):
            logger.warning(
                "%s", out_of_resources_message(f"writing a checkpoint in {work.log_dir.path}", error)
            )
        elif work.log_dir.path not in self.offline:
            logger.error("the data directory %s goes offline: %s", work.log_dir.path, error)
            self._take_offline(work.log_dir, error)

    def _write(self, checkpoints: Iterable[Checkpoint]) -> set[LogDir]:
        """The directories in which that failed."""
        failed = set()
        for checkpoint in checkpoints:
            try:
                checkpoint.write()
                checkpoint.written()
            except OSError as error:
                self.checkpoint_failed(checkpoint, error)
                failed.add(checkpoint.log_dir)
        return failed

    def close(self, broker_epoch: int, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """An orderly stop: flushes and closes every log, writes the checkpoints, and last the marker of it."""
        unclean: set[LogDir | None] = set()
        for partition, log in list(self.logs.items()):
            try:
                log.close(clean=True)
            except OSError as error:
                unclean.add(self._places.get(partition))
                logger.error(
                    "%s is not closed in order: %s", partition, self.failed(partition, error).message
                )
        unclean |= self._write(self.recovery_point_checkpoints())
        unclean |= self._write(self.log_start_offset_checkpoints())
        unclean |= self._write(self.high_watermark_checkpoints(high_watermarks))
        for log_dir in self._dirs:
            if log_dir not in unclean and (log_dir.clean_shutdown or log_dir.partitions <= self.logs.keys()):
                try:
                    log_dir.write_clean_shutdown(broker_epoch)
                except OSError as error:
                    logger.error("%s is not marked as cleanly shut down: %s", log_dir.path, error)
        self.release()

    def release(self) -> None:
        """Lets go of everything at once, as a crash would."""
        for log in self.logs.values():
            log.close(clean=False)
        self.logs.clear()
        for log_dir in self._dirs:
            log_dir.release()


def _log_start_checkpoint(log: Log) -> int | None:
    """As Kafka: only where the names of the files do not say it.

    Never beyond what is flushed: else a power loss could leave a log that ends before its start.
    """
    offset = min(log.log_start_offset, log.recovery_point)
    return offset if offset > log.segments.base_offsets[0] else None


_CHECKPOINTED: dict[str, Callable[[Log], int | None]] = {
    RECOVERY_POINTS: lambda log: log.recovery_checkpoint,
    LOG_START_OFFSETS: _log_start_checkpoint,
    CLEANER_OFFSETS: lambda log: log.clean_up_to,
}
