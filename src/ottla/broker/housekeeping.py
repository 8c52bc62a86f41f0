"""What a broker does in the background: flush, checkpoint, retention, deletion of files, expiry of producers.

One task looks every second at what is due; what would block goes to a worker. Another removes files, for which nobody
else is to wait: large ones take their time.
"""

import asyncio
import logging
from functools import partial

from ottla.broker.hosted_partition import HostedPartition
from ottla.broker.partition_host import PartitionHost
from ottla.env import Env
from ottla.model.config import BrokerConfig
from ottla.model.errors import KafkaError
from ottla.storage.disk_errors import RETRY_S, is_disk_failure
from ottla.storage.log_dirs import LogDirs

logger = logging.getLogger("ottla.housekeeping")

_TICK_S = 1.0


class Housekeeping:
    def __init__(self, env: Env, config: BrokerConfig, log_dirs: LogDirs, partitions: PartitionHost) -> None:
        self._env = env
        self._config = config
        self._log_dirs = log_dirs
        self._partitions = partitions
        self._last_ms: dict[str, int] = {}
        self._task: asyncio.Task[None] | None = None
        self._deleting: asyncio.Task[None] | None = None

    def start(self) -> None:
        now_ms = self._env.clock.now_ms()
        # The first retention check comes early, as Kafka's does: a broker that was down may hold old segments.
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
                logger.exception("housekeeping failed and goes on with its next round")

    async def tick(self, now_ms: int) -> None:
        self._partitions.open_again()
        await self._flush_what_is_due(now_ms)
        if self._is_due("log.retention.check.interval.ms", now_ms):
            self.enforce_retention(now_ms)
        if self._deleting is None or self._deleting.done():
            self._deleting = asyncio.get_running_loop().create_task(self._delete_what_is_due(now_ms))
        if self._is_due("producer.id.expiration.check.interval.ms", now_ms):
            expiration_ms = self._config.get_int("producer.id.expiration.ms")
            for hosted in self._partitions:
                hosted.log.producers.expire(now_ms, expiration_ms)
        await self._partitions.sync_deletions()  # those of replicas that have moved
        await self._write_checkpoints(now_ms)

    def _is_due(self, interval: str, now_ms: int) -> bool:
        if now_ms - self._last_ms[interval] < self._config.get_int(interval):
            return False
        self._last_ms[interval] = now_ms
        return True

    async def _write_checkpoints(self, now_ms: int) -> None:
        checkpoints = []
        if self._is_due("log.flush.offset.checkpoint.interval.ms", now_ms):
            checkpoints += self._log_dirs.recovery_point_checkpoints()
        if self._is_due("log.flush.start.offset.checkpoint.interval.ms", now_ms):
            await self._flush_what_is_deleted()
            checkpoints += self._log_dirs.log_start_offset_checkpoints()
        if self._is_due("replica.high.watermark.checkpoint.interval.ms", now_ms):
            checkpoints += self._log_dirs.high_watermark_checkpoints(
                {hosted.topic_partition: hosted.leader.high_watermark for hosted in self._partitions}
            )
        for checkpoint in checkpoints:
            try:
                await self._env.threads.run(checkpoint.write)
                checkpoint.complete()
            except OSError as error:
                self._log_dirs.handle_checkpoint_error(checkpoint, error)
        if self._log_dirs.offline:
            self._partitions.fail_offline()

    async def _flush_what_is_due(self, now_ms: int) -> None:
        """Sealed segments are synced soon after the roll, so that recovery never reads more than the active one."""
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
                await flush(self._env, hosted, up_to)
            except Exception:  # nor from their flush
                logger.exception("the flush of %s failed", hosted.topic_partition)

    async def _flush_what_is_deleted(self) -> None:
        """A log start offset is checkpointed only up to what is flushed: DeleteRecords may have gone beyond."""
        for hosted in list(self._partitions):
            is_usable = hosted.failure is None and not hosted.is_closed
            if is_usable and hosted.log.log_start_offset > hosted.log.recovery_point:
                await flush(self._env, hosted)

    async def _delete_what_is_due(self, now_ms: int) -> None:
        for deletion in self._log_dirs.due_deletions(now_ms):
            try:
                await self._env.threads.run_in_background(partial(deletion.perform, self._env.disk))
            except Exception as error:
                # Its name says that it is deleted: the next start tries again.
                logger.error("%s cannot be removed: %s", deletion.path, error)

    def enforce_retention(self, now_ms: int) -> None:
        for hosted in list(self._partitions):
            if hosted.failure is not None or hosted.is_closed:
                continue
            try:
                removed = hosted.delete_old_segments(now_ms)
            except KafkaError as error:
                logger.error(
                    "%s: retention cannot read its segments: %s", hosted.topic_partition, error.message
                )
                continue
            except Exception:  # a bug in one log must not keep the others from their retention
                logger.exception("retention of %s failed", hosted.topic_partition)
                continue
            if removed:
                logger.info(
                    "%s: %d segments were removed by retention, the log starts at offset %d now",
                    hosted.topic_partition, removed, hosted.log.log_start_offset,
                )  # fmt: skip


async def flush(env: Env, hosted: HostedPartition, up_to: int | None = None) -> None:
    """Syncs the log up to `up_to` (by default its end) in a worker; a disk that fails takes its directory offline.

    While descriptors have run out it is tried again: nobody is told that records are on disk that are not.
    """
    log = hosted.log
    while True:
        try:
            work = log.prepare_flush(up_to)
            if work is not None:
                await env.threads.run(work.sync)
                log.complete_flush(work)
            break
        except OSError as error:
            logger.error("%s", hosted.storage_failed(error).message)
            if is_disk_failure(error) or hosted.is_closed or hosted.failure is not None:
                return
            await asyncio.sleep(RETRY_S)
    hosted.flushed(env.clock.now_ms())
