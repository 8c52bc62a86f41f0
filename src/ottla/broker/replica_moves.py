"""Moves of replicas between this broker's data directories (AlterReplicaLogDirs, KIP-113), one at a time."""

import asyncio
import logging
from functools import partial

from ottla.broker.hosted_partition import HostedPartition
from ottla.broker.random_uuid import random_uuid
from ottla.env import Env
from ottla.model.config import BrokerConfig
from ottla.model.errors import ErrorCode, KafkaError
from ottla.storage.file_names import future_dir_name_fits
from ottla.storage.log_dirs import LogDirs
from ottla.storage.replica_move import MoveAbandonedError, ReplicaMove
from ottla.storage.segment import Segment

logger = logging.getLogger("ottla.partition")

# The event loop copies the last bytes itself during the swap, because no append may come in between.
_LAST_STEP_BYTES = 1 << 20


class ReplicaMoves:
    def __init__(self, env: Env, config: BrokerConfig, log_dirs: LogDirs) -> None:
        self._env = env
        self._config = config
        self._log_dirs = log_dirs
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
                self._finish(hosted, move)
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
        while is_first_round or move.bytes_left > _LAST_STEP_BYTES:
            is_first_round = False
            self._check_not_abandoned(hosted, move)
            segments = move.seal(self._env.clock.now_ms())
            while segments:
                count = await self._copy_some(move, segments)
                segments = segments[count:]
                self._check_not_abandoned(hosted, move)

    async def _copy_some(self, move: ReplicaMove, segments: list[Segment]) -> int:
        """Copies as many segments as the throttle allows in a second, at least one, and waits until it allows more."""
        bytes_per_second = self._config.get_int("replica.alter.log.dirs.io.max.bytes.per.second")
        size = 0
        some: list[Segment] = []
        for segment in segments:
            if some and size + segment.size > bytes_per_second:
                break
            size += segment.size
            some.append(segment)
        await self._env.threads.run(partial(move.copy, some))
        move.mark_copied(some)
        await asyncio.sleep(size / max(bytes_per_second, 1))
        return len(some)

    def _finish(self, hosted: HostedPartition, move: ReplicaMove) -> None:
        now_ms = self._env.clock.now_ms()
        hosted.log = self._log_dirs.finish_move(move, hosted.topic_id, random_uuid(self._env), now_ms)
        logger.info("%s was moved to %s", hosted.topic_partition, move.path)

    def _check_not_abandoned(self, hosted: HostedPartition, move: ReplicaMove) -> None:
        """The topic may have been deleted meanwhile, or a disk may have failed."""
        is_offline = hosted.failure is not None or move.path in self._log_dirs.offline
        if move.is_abandoned or hosted.is_closed or is_offline:
            raise MoveAbandonedError
