"""Periodic work in the background: flushes, checkpoints, retention, deletion of files, expiry of producers.

One task runs every second, and does in threads what would block. A second task removes files: a large one takes long,
and the rest must not wait for it.
"""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

from ottla.broker.partition_flush import flush_partition
from ottla.broker.partition_host import PartitionHost
from ottla.env import Env
from ottla.model.config import BrokerConfig
from ottla.model.errors import KafkaError
from ottla.storage.deletion import Deletion
from ottla.storage.log_dirs import LogDirs

logger = logging.getLogger("ottla.housekeeping")

_TICK_S = 1.0


class Housekeeping:
    def __init__(self, env: Env, config: BrokerConfig, log_dirs: LogDirs, partitions: PartitionHost) -> None:
        self._env = env
        self._config = config
        self._log_dirs = log_dirs
        self._partitions = partitions
        self._last_ms: dict[str, int] = {}  # by the monotonic clock
        self._task: asyncio.Task[None] | None = None
        self._deleting: asyncio.Task[None] | None = None

    def start(self) -> None:
        now_ms = self._env.clock.monotonic_ms()
        # As in Kafka, the first retention check comes early: a broker that was down may have old segments.
        self._last_ms = {
            "log.flush.offset.checkpoint.interval.ms": now_ms,
            "log.flush.start.offset.checkpoint.interval.ms": now_ms,
            "replica.high.watermark.checkpoint.interval.ms": now_ms,
            "log.retention.check.interval.ms": now_ms
            + self._config.get_int("log.initial.task.delay.ms")
            - self._config.get_int("log.retention.check.interval.ms"),
            "producer.id.expiration.check.interval.ms": now_ms,
        }
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        tasks = [task for task in (self._task, self._deleting) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            try:
                await self.tick(self._env.clock.now_ms())
            except Exception:
                logger.exception("housekeeping failed; it continues with its next round")

    async def tick(self, now_ms: int) -> None:
        self._partitions.retry_unopened()
        await self._flush_due()
        if self._is_due("log.retention.check.interval.ms"):
            await self.apply_retention(now_ms)
        is_deleting = self._deleting is not None and not self._deleting.done()
        if not is_deleting and (due := self._log_dirs.due_deletions(now_ms)):
            self._deleting = asyncio.get_running_loop().create_task(self._delete_files(due))
        if self._is_due("producer.id.expiration.check.interval.ms"):
            expiration_ms = self._config.get_int("producer.id.expiration.ms")
            for hosted in self._partitions:
                hosted.log.producers.expire(now_ms, expiration_ms)
        await self._partitions.sync_deletions()  # of replicas that were moved
        await self._write_checkpoints()

    def _is_due(self, interval: str) -> bool:
        now_ms = self._env.clock.monotonic_ms()
        if now_ms - self._last_ms[interval] < self._config.get_int(interval):
            return False
        self._last_ms[interval] = now_ms
        return True

    async def _write_checkpoints(self) -> None:
        checkpoints = []
        if self._is_due("log.flush.offset.checkpoint.interval.ms"):
            checkpoints += self._log_dirs.recovery_point_checkpoints()
        if self._is_due("log.flush.start.offset.checkpoint.interval.ms"):
            await self._flush_deleted_records()
            checkpoints += self._log_dirs.log_start_offset_checkpoints()
        if self._is_due("replica.high.watermark.checkpoint.interval.ms"):
            checkpoints += self._log_dirs.high_watermark_checkpoints(
                # The untrusted one is needed again after a crash before the first leader is known.
                {
                    hosted.topic_partition: max(hosted.role.high_watermark, hosted.untrusted_high_watermark)
                    for hosted in self._partitions
                }
            )
        for checkpoint in checkpoints:
            try:
                await self._env.threads.run(checkpoint.write)
                checkpoint.complete()
            except OSError as error:
                self._log_dirs.handle_checkpoint_error(checkpoint, error)
        if self._log_dirs.offline:
            self._partitions.fail_offline()

    async def _flush_due(self) -> None:
        """Flushes closed segments soon after the roll, so that recovery never reads more than the active one."""
        now_ms = self._env.clock.monotonic_ms()
        for hosted in list(self._partitions):
            log = hosted.log
            if hosted.failure is not None or hosted.is_closed or log.recovery_point >= log.log_end_offset:
                continue
            up_to: int | None = log.segments.active.base_offset
            if now_ms - hosted.last_flush_ms >= log.config.flush_ms:
                up_to = None
                hosted.last_flush_ms = now_ms
            elif log.recovery_point >= log.segments.active.base_offset:
                continue
            try:
                await flush_partition(self._env, hosted, up_to)
            except Exception:  # a bug in one log must not keep the others from their flush
                logger.exception("the flush of %s failed", hosted.topic_partition)

    async def _flush_deleted_records(self) -> None:
        """A log start offset may be checkpointed only up to the recovery point, and DeleteRecords may be beyond it."""
        for hosted in list(self._partitions):
            is_usable = hosted.failure is None and not hosted.is_closed
            if is_usable and hosted.log.log_start_offset > hosted.log.recovery_point:
                await flush_partition(self._env, hosted)

    async def _delete_files(self, deletions: Sequence[Deletion]) -> None:
        for deletion in deletions:
            try:
                await self._env.threads.run_in_background(partial(deletion.perform, self._env.disk))
            except Exception as error:
                # Its name marks it as deleted: the next start retries.
                logger.error("%s cannot be removed: %s", deletion.path, error)

    async def apply_retention(self, now_ms: int) -> None:
        await self._prepare_segments()
        self.enforce_retention(now_ms)

    async def _prepare_segments(self) -> None:
        """Retention compares the timestamps of segments: a thread loads their indexes, and rebuilds damaged ones."""
        for hosted in list(self._partitions):
            is_usable = hosted.failure is None and not hosted.is_closed
            if is_usable and (prepare := hosted.log.prepare_segments()) is not None:
                try:
                    await self._env.threads.run(prepare)
                except (OSError, KafkaError) as error:  # retention has the same error, and handles it
                    logger.warning("the indexes of %s cannot be loaded: %s", hosted.topic_partition, error)

    def enforce_retention(self, now_ms: int) -> None:
        for hosted in list(self._partitions):
            if hosted.failure is not None or hosted.is_closed:
                continue
            try:
                removed = hosted.delete_old_segments(now_ms)
            except KafkaError as error:
                logger.error(
                    "retention of %s cannot read its segments: %s", hosted.topic_partition, error.message
                )
                continue
            except Exception:  # a bug in one log must not keep the others from their retention
                logger.exception("retention of %s failed", hosted.topic_partition)
                continue
            if removed:
                logger.info(
                    "%s: retention removed %d segments, the log starts at offset %d now",
                    hosted.topic_partition, removed, hosted.log.log_start_offset,
                )  # fmt: skip
