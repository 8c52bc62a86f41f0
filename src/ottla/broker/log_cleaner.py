"""Compaction of the logs of this broker: the dirtiest first, as many at a time as `log.cleaner.threads` says.

The work is done in worker processes, on closed segments (`ottla.storage.cleaner`); what happens here is the choice,
and the swap of each segment that comes back cleaned. A log that cannot be cleaned is left alone, with the reason.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from ottla.broker.hosted_partition import HostedPartition
from ottla.broker.partition_host import PartitionHost
from ottla.env import Env
from ottla.model.config import BrokerConfig
from ottla.model.errors import KafkaError
from ottla.model.ids import TopicPartition
from ottla.storage.cleaner.cleanable_log import CleanableLog, measure_log
from ottla.storage.cleaner.job import (
    CleanedGroup,
    CleaningJob,
    CleaningResult,
    LastRecord,
    SegmentToClean,
    run_job,
)
from ottla.storage.cleaner.swap import SegmentSwap
from ottla.storage.disk_errors import RETRY_S, is_disk_failure, out_of_resources_message
from ottla.storage.file_names import CLEANED_SUFFIX
from ottla.storage.log import Log
from ottla.storage.log_dirs import LogDirs
from ottla.storage.segment import Segment
from ottla.storage.txn_index import AbortedTxn

logger = logging.getLogger("ottla.cleaner")

# As in Kafka, where one map is one Java array.
_DEDUPE_BYTES_MAX = 2**31 - 1


class CleaningRun(NamedTuple):
    """How the last cleaning of a log went."""

    finished_ms: int
    duration_ms: int
    clean_up_to: int
    keys: int
    bytes_read: int
    bytes_written: int
    records_read: int
    records_kept: int
    map_is_full: bool


class Uncleanable(NamedTuple):
    reason: str
    dedupe_bytes: int  # with more than this it may be tried again


class _AbandonedError(Exception):
    """The log is not any more what the cleaning began with; the message says why."""


@dataclass(slots=True)
class _Cleaning:
    hosted: HostedPartition
    segments: dict[int, tuple[Segment, int]]  # by base offset, with the size that they had
    started_ms: int


class LogCleaner:
    def __init__(self, env: Env, config: BrokerConfig, log_dirs: LogDirs, partitions: PartitionHost) -> None:
        self.uncleanable: dict[TopicPartition, Uncleanable] = {}
        self.last_runs: dict[TopicPartition, CleaningRun] = {}
        self.in_progress: dict[TopicPartition, asyncio.Task[None]] = {}
        self.max_dirty_ratio = 0.0
        self._judged: dict[TopicPartition, Log] = {}  # which log `uncleanable` and `last_runs` are about
        self.last_round_ms = env.clock.now_ms()
        self._env = env
        self._config = config
        self._log_dirs = log_dirs
        self._partitions = partitions
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._config.get_bool("log.cleaner.enable"):
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Cleanings that are not done are forgotten; what they have swapped in stays."""
        tasks = [*self.in_progress.values(), *([self._task] if self._task is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._env.processes.close()

    def look_now(self) -> None:
        """Configs have changed: what was not due may be now, and what is at work may have another limit."""
        if self.in_progress:
            self._env.processes.throttle().set_limit(
                self._config.get_float("log.cleaner.io.max.bytes.per.second")
            )
        self._wake.set()

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._config.get_int("log.cleaner.backoff.ms") / 1000):
                    await self._wake.wait()
            self._wake.clear()
            try:
                if not self.start_what_is_due(self._env.clock.now_ms()):
                    self._env.processes.end_idle()
                await self._write_checkpoints()
            except Exception:
                logger.exception("the log cleaner failed and goes on with its next round")

    # Choosing

    def cleanable_logs(self, now_ms: int) -> list[tuple[HostedPartition, CleanableLog]]:
        """All compacted logs with something in them, the dirtiest first."""
        found = []
        for hosted in self._partitions:
            log = hosted.log
            if "compact" not in log.config.cleanup_policy or hosted.is_closed or hosted.failure is not None:
                continue
            if len(log.segments) < 2:
                continue
            try:
                # Only what is flushed, see Log.replace_segments.
                limit = min(hosted.leader.last_stable_offset, log.recovery_point)
                dirt = measure_log(log, limit, now_ms)
            except (KafkaError, OSError) as error:
                if isinstance(error, OSError) and not is_disk_failure(error):
                    logger.warning(
                        "%s", out_of_resources_message(f"looking at {hosted.topic_partition}", error)
                    )
                else:
                    self._give_up(hosted, str(error))
                continue
            found.append((hosted, dirt))
        return sorted(found, key=lambda pair: -pair[1].dirty_ratio)

    def start_what_is_due(self, now_ms: int) -> bool:
        """Whether anything is being cleaned now."""
        self.last_round_ms = now_ms
        self._forget_what_is_gone()
        logs = self.cleanable_logs(now_ms)
        self.max_dirty_ratio = logs[0][1].dirty_ratio if logs else 0.0
        free = self._config.get_int("log.cleaner.threads") - len(self.in_progress)
        for hosted, dirt in logs:
            if free <= 0:
                break
            partition = hosted.topic_partition
            is_busy = partition in self.in_progress or partition in self._log_dirs.moves
            if is_busy or self._is_uncleanable(partition):
                continue
            if dirt.is_due(hosted.log.config.min_cleanable_dirty_ratio):
                free -= 1
                task = asyncio.get_running_loop().create_task(self._clean(hosted, dirt, now_ms))
                self.in_progress[partition] = task
        return bool(self.in_progress)

    @property
    def _dedupe_bytes(self) -> int:
        threads = max(self._config.get_int("log.cleaner.threads"), 1)
        return min(self._config.get_int("log.cleaner.dedupe.buffer.size") // threads, _DEDUPE_BYTES_MAX)

    def _is_uncleanable(self, partition: TopicPartition) -> bool:
        given_up = self.uncleanable.get(partition)
        if given_up is not None and self._dedupe_bytes > given_up.dedupe_bytes:
            del self.uncleanable[partition]
            return False
        return given_up is not None

    def _give_up(self, hosted: HostedPartition, reason: str) -> None:
        partition = hosted.topic_partition
        if partition not in self.uncleanable and not hosted.is_closed:
            self._judged[partition] = hosted.log
            logger.error("%s cannot be compacted and is left as it is: %s", partition, reason)
            self.uncleanable[partition] = Uncleanable(reason, self._dedupe_bytes)

    def _forget_what_is_gone(self) -> None:
        """Also where another topic has the name now."""
        logs = self._log_dirs.logs
        self._judged = {tp: log for tp, log in self._judged.items() if logs.get(tp) is log}
        present = self._judged
        self.uncleanable = {tp: reason for tp, reason in self.uncleanable.items() if tp in present}
        self.last_runs = {tp: run for tp, run in self.last_runs.items() if tp in present}

    # Cleaning

    async def _clean(self, hosted: HostedPartition, dirt: CleanableLog, now_ms: int) -> None:
        partition = hosted.topic_partition
        segments = {
            segment.base_offset: (segment, segment.size)
            for segment in hosted.log.segments
            if segment.base_offset < dirt.first_uncleanable_offset
        }
        cleaning = _Cleaning(hosted, segments, now_ms)
        directory = hosted.log.directory
        try:
            result = await self._run_job(cleaning, self._job(cleaning, dirt))
            hosted.log.clean_up_to = result.clean_up_to
            self._note_run(cleaning, result)
        except (_AbandonedError, FileNotFoundError) as error:  # retention may have taken a segment
            logger.info("the compaction of %s is given up: %s", partition, error)
            await self._remove_cleaned_files(directory)
        except KafkaError as error:
            self._give_up(hosted, error.message or str(error))
            await self._remove_cleaned_files(directory)
        except Exception as error:
            # A full disk, a killed worker: with the next round it may be over.
            logger.error("the compaction of %s failed and is tried again: %s", partition, error)
            await self._remove_cleaned_files(directory)
            await asyncio.sleep(self._config.get_int("log.cleaner.backoff.ms") / 1000)
        finally:
            del self.in_progress[partition]
            self._wake.set()

    async def _run_job(self, cleaning: _Cleaning, job: CleaningJob) -> CleaningResult:
        throttle = self._env.processes.throttle()
        throttle.set_limit(self._config.get_float("log.cleaner.io.max.bytes.per.second"))
        work = partial(run_job, job, self._env.disk, throttle)
        result: CleaningResult | None = None
        async with aclosing(self._env.processes.stream(work)) as items:
            # To the end: a worker that is left before it said that it is done is killed, and the next starts anew.
            async for item in items:
                if isinstance(item, CleaningResult):
                    result = item
                else:
                    await self._swap(cleaning, item)
        if result is None:
            raise RuntimeError("the worker ended without a result")
        return result

    def _job(self, cleaning: _Cleaning, dirt: CleanableLog) -> CleaningJob:
        log, config = cleaning.hosted.log, self._config
        aborted: list[AbortedTxn] = []
        for segment in log.segments:
            segment.txn_index.collect(log.segments.base_offsets[0], log.log_end_offset + 1, aborted)
        return CleaningJob(
            topic_partition=log.topic_partition,
            directory=log.directory,
            segments=tuple(
                SegmentToClean(segment.base_offset, size) for segment, size in cleaning.segments.values()
            ),
            first_dirty_offset=dirt.first_dirty_offset,
            first_uncleanable_offset=dirt.first_uncleanable_offset,
            aborted=tuple(aborted),
            last_records={
                entry.producer_id: LastRecord(entry.last_offset, entry.producer_epoch)
                for entry in log.producers.entries()
            },
            config=log.config,
            now_ms=cleaning.started_ms,
            dedupe_bytes=self._dedupe_bytes,
            # Kafka lets any number be set; a map that can hold nothing, or more than all, is none.
            load_factor=min(max(config.get_float("log.cleaner.io.buffer.load.factor"), 0.01), 1.0),
            io_bytes=config.get_int("log.cleaner.io.buffer.size")
            // max(config.get_int("log.cleaner.threads"), 1),
            hash_seed=self._env.random.getrandbits(128),
        )

    async def _swap(self, cleaning: _Cleaning, group: CleanedGroup) -> None:
        """The disk is waited for in a worker; the swap itself is one turn of the event loop."""
        hosted, env = cleaning.hosted, self._env
        self._check_wanted(cleaning, group)
        if not group.is_changed:
            return
        replaced = [cleaning.segments[base_offset][0] for base_offset in group.replaced]
        swap = SegmentSwap(env.disk, hosted.log, group.base_offset, replaced, group.size)
        try:
            try:
                await env.threads.run(swap.prepare)
                self._check_wanted(cleaning, group)
            except (_AbandonedError, OSError) as error:
                if isinstance(error, _AbandonedError) or not is_disk_failure(error):
                    await self._insist(swap.abort)
                raise
            swap.replace(env.clock.now_ms())
            await self._insist(swap.finish)
        except OSError as error:
            if hosted.is_closed:
                raise _AbandonedError("the topic was deleted") from error
            raise _AbandonedError(hosted.storage_failed(error).message) from error

    async def _insist(self, work: Callable[[], None]) -> None:
        """Names that are left halfway would be completed by a start, over what is in the log by then."""
        while True:
            try:
                await self._env.threads.run(work)
                return
            except OSError as error:
                if is_disk_failure(error):
                    raise
            await asyncio.sleep(RETRY_S)

    def _check_wanted(self, cleaning: _Cleaning, group: CleanedGroup) -> None:
        hosted = cleaning.hosted
        log, partition = hosted.log, hosted.topic_partition
        if hosted.is_closed or hosted.failure is not None or self._log_dirs.logs.get(partition) is not log:
            raise _AbandonedError("the log was closed")
        if partition in self._log_dirs.moves:
            raise _AbandonedError("the replica moves to another directory")
        if "compact" not in log.config.cleanup_policy:
            raise _AbandonedError("its cleanup.policy is not compact any more")
        present = set(log.segments)
        replaced = [cleaning.segments[base_offset] for base_offset in group.replaced]
        if any(segment not in present or segment.size != size for segment, size in replaced):
            raise _AbandonedError("segments were deleted or cut meanwhile")

    def _note_run(self, cleaning: _Cleaning, result: CleaningResult) -> None:
        now_ms, partition = self._env.clock.now_ms(), cleaning.hosted.topic_partition
        if cleaning.hosted.is_closed:
            return
        self._judged[partition] = cleaning.hosted.log
        run = CleaningRun(
            now_ms,
            now_ms - cleaning.started_ms,
            result.clean_up_to,
            result.keys,
            result.bytes_read,
            result.bytes_written,
            result.records_read,
            result.records_kept,
            result.map_is_full,
        )
        self.last_runs[partition] = run
        logger.info(
            "%s is compacted up to offset %d: %d of %d records and %d of %d bytes are left%s",
            partition, run.clean_up_to, run.records_kept, run.records_read, run.bytes_written, run.bytes_read,
            " (the map was full: the rest is for the next time)" if run.map_is_full else "",
        )  # fmt: skip

    async def _remove_cleaned_files(self, directory: str) -> None:
        disk = self._env.disk

        def remove() -> None:
            for name in disk.list_dir(directory):
                if name.endswith(CLEANED_SUFFIX):
                    disk.remove(f"{directory}/{name}")

        # The folder may be gone with its topic, or its disk with all that was on it.
        with contextlib.suppress(OSError):
            await self._env.threads.run(remove)

    async def _write_checkpoints(self) -> None:
        for checkpoint in self._log_dirs.cleaner_offset_checkpoints():
            try:
                await self._env.threads.run(checkpoint.write)
                checkpoint.complete()
            except OSError as error:
                self._log_dirs.handle_checkpoint_error(checkpoint, error)
                self._partitions.fail_offline()

    # Metrics

    def metrics(self, now_ms: int) -> dict[str, float]:
        """By the names that Kafka gives them (kafka.log:type=LogCleanerManager and LogCleaner)."""
        runs = self.last_runs.values()
        read = sum(run.bytes_read for run in runs)
        uncleanable_bytes = sum(
            dirt.cleanable_bytes
            for hosted, dirt in self.cleanable_logs(now_ms)
            if hosted.topic_partition in self.uncleanable
        )
        return {
            "uncleanable-partitions-count": len(self.uncleanable),
            "uncleanable-bytes": uncleanable_bytes,
            "max-dirty-percent": int(100 * self.max_dirty_ratio),
            "time-since-last-run-ms": now_ms - self.last_round_ms,
            "cleaner-recopy-percent": 100 * sum(run.bytes_written for run in runs) / read if read else 0,
            "max-clean-time-secs": max((run.duration_ms for run in runs), default=0) / 1000,
        }
