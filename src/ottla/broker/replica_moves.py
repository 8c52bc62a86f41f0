"""Moves of replicas between this broker's data directories (AlterReplicaLogDirs, KIP-113), one at a time."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from ottla.broker.hosted_partition import HostedPartition
from ottla.broker.random_uuid import random_uuid
from ottla.env import Env
from ottla.model.config import BrokerConfig
from ottla.model.errors import ErrorCode, KafkaError
from ottla.storage.file_names import future_dir_name_fits
from ottla.storage.log import Log
from ottla.storage.log_dirs import LogDirs
from ottla.storage.replica_move import LAST_STEP_BYTES, MoveAbandonedError, ReplicaMove, remove_moved_from
from ottla.storage.segment import Segment

logger = logging.getLogger("ottla.partition")


class ReplicaMoves:
    """`on_moved` is called with a partition whose replica is in another directory now."""

    def __init__(
        self,
        env: Env,
        config: BrokerConfig,
        log_dirs: LogDirs,
        on_moved: Callable[[HostedPartition], None],
    ) -> None:
        self._env = env
        self._config = config
        self._log_dirs = log_dirs
        self._on_moved = on_moved
        self._tasks: set[asyncio.Task[None]] = set()
        # One copy at a time: the threads have flushes and cold reads to do.
        self._copying = asyncio.Lock()

    def check_target(self, path: str) -> None:
        """Raises KafkaError if no replica can be moved to `path`."""
        log_dirs = self._log_dirs
        if path in log_dirs.offline:
            raise KafkaError(ErrorCode.kafka_storage_error, f"the data directory {path} is offline")
        if path not in log_dirs.paths:
            raise KafkaError(
                ErrorCode.log_dir_not_found,
                f"{path!r} is not one of the data directories {', '.join(log_dirs.paths)}",
            )
        if path in log_dirs.cordoned:
            raise KafkaError(ErrorCode.invalid_replica_assignment, f"the data directory {path} is cordoned")

    def start(self, hosted: HostedPartition, path: str) -> None:
        """Starts to move the replica to `path`. Does nothing if it is there, or is being moved there."""
        partition, log_dirs = hosted.topic_partition, self._log_dirs
        current = log_dirs.moves.get(partition)
        if current is not None and current.path == path:
            return
        if log_dirs.directory_of(partition) == path:
            log_dirs.abandon_move(partition)
            return
        if not future_dir_name_fits(partition):
            raise KafkaError(
                ErrorCode.invalid_topic_exception,
                f"the name of {partition} is too long for the folder of a replica that is moved",
            )
        if log_dirs.offline:
            # As in Kafka: a future replica of the partition may be in the directory that cannot be read.
            raise KafkaError(
                ErrorCode.kafka_storage_error,
                f"{partition} is not moved while {', '.join(log_dirs.offline)} is offline",
            )
        move = log_dirs.start_move(partition, path, random_uuid(self._env))
        task = asyncio.get_running_loop().create_task(self._run(hosted, move))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Cancels the moves that are not complete. The next start removes what they have copied."""
        for partition in list(self._log_dirs.moves):
            self._log_dirs.abandon_move(partition)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, hosted: HostedPartition, move: ReplicaMove) -> None:
        logger.info("moving %s to %s", hosted.topic_partition, move.path)
        try:
            async with self._copying:
                await self._catch_up(hosted, move)
                while not await self._finish(hosted, move):
                    self._check_not_abandoned(hosted, move)
                await self._sync(hosted.log)
        except MoveAbandonedError:
            logger.info("the move of %s to %s is cancelled", hosted.topic_partition, move.path)
        except OSError as error:
            logger.error("%s is not moved: copying it failed: %s", hosted.topic_partition, error)
        except KafkaError as error:
            # A directory went offline during the swap. A complete copy in the other one is kept for the next start.
            logger.error("the move of %s failed: %s", hosted.topic_partition, error.message)
            self._log_dirs.abandon_move(hosted.topic_partition)
            return
        if hosted.log is move.log:
            self._log_dirs.remove_future_folder(move)

    async def _catch_up(self, hosted: HostedPartition, move: ReplicaMove) -> None:
        is_first_round = True
        while is_first_round or move.bytes_left > LAST_STEP_BYTES:
            is_first_round = False
            self._check_not_abandoned(hosted, move)
            segments = move.seal(self._env.clock.now_ms())
            while segments:
                count = await self._copy_some(move, segments)
                segments = segments[count:]
                self._check_not_abandoned(hosted, move)

    async def _copy_some(self, move: ReplicaMove, segments: list[Segment]) -> int:
        """Copies as many segments as the throttle allows in a second, at least one, and waits until it allows more.

        Returns how many of `segments` are done: all of them after a truncation, because they may not exist any more.
        """
        bytes_per_second = self._config.get_int("replica.alter.log.dirs.io.max.bytes.per.second")
        size = 0
        some: list[Segment] = []
        for segment in segments:
            if some and size + segment.size > bytes_per_second:
                break
            size += segment.size
            some.append(segment)
        log = move.log
        truncations = log.truncations
        try:
            await self._env.threads.run(partial(move.copy, some))
        except FileNotFoundError:
            if log.truncations == truncations and set(some) <= set(log.segments):
                raise
            return len(segments)  # a truncation or retention has deleted a segment meanwhile
        is_copied = move.mark_copied(some, truncations)
        await asyncio.sleep(size / max(bytes_per_second, 1))
        return len(some) if is_copied and log.truncations == truncations else len(segments)

    async def _finish(self, hosted: HostedPartition, move: ReplicaMove) -> bool:
        """Returns False if the partition changed so much during the last copy that it must be repeated."""
        clock, log_dirs = self._env.clock, self._log_dirs
        hosted.last_copy = done = asyncio.Event()
        try:
            last, checkpoints = log_dirs.plan_last_copy(move, hosted.topic_id, clock.now_ms())
            try:
                await self._env.threads.run(partial(last.run, checkpoints))
            except FileNotFoundError:
                if last.is_current:
                    raise
                return False
            self._check_not_abandoned(hosted, move)
            log = log_dirs.finish_move(last, checkpoints, random_uuid(self._env), clock.now_ms())
            if log is not None:
                hosted.log = log
                logger.info("%s was moved to %s", hosted.topic_partition, move.path)
                self._on_moved(hosted)
            return log is not None
        finally:
            hosted.last_copy = None
            done.set()

    async def _sync(self, log: Log) -> None:
        """Makes the removal of the old folder durable. If it fails, the next start removes the folder."""
        for sync in self._log_dirs.deletion_syncs():
            try:
                await self._env.threads.run(sync.sync)
                sync.complete()
            except OSError as error:
                self._log_dirs.handle_checkpoint_error(sync, error)
                return
        try:
            await self._env.threads.run(partial(remove_moved_from, self._env.disk, log.directory))
        except OSError as error:
            logger.warning("the end of the move to %s is not recorded: %s", log.directory, error)

    def _check_not_abandoned(self, hosted: HostedPartition, move: ReplicaMove) -> None:
        """The topic may have been deleted meanwhile, or a disk may have failed."""
        is_offline = hosted.failure is not None or move.path in self._log_dirs.offline
        if move.is_abandoned or hosted.is_closed or is_offline:
            raise MoveAbandonedError
