"""Compacts the logs of this broker: the dirtiest first, `log.cleaner.threads` at a time.

Cleaner processes clean closed segments (`ottla.storage.cleaner`). This module selects the logs, and swaps in each
cleaned segment. A log that cannot be cleaned is marked as uncleanable, with the reason.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
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

# Kafka's limit, where the map is one Java array.
_DEDUPE_BYTES_MAX = 2**31 - 1


class CleaningRun(NamedTuple):
    """Statistics of the last cleaning of a log."""

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
    dedupe_bytes: int  # the log is retried with a larger buffer


class _CleaningAbortedError(Exception):
    """The log has changed since the cleaning started; the message says how."""


@dataclass(slots=True)
class _Cleaning:
    hosted: HostedPartition
    segments: dict[int, tuple[Segment, int]]  # by base offset, with the size at the start
    started_ms: int
    truncations: int  # of the log at the start


class LogCleaner:
    def __init__(self, env: Env, config: BrokerConfig, log_dirs: LogDirs, partitions: PartitionHost) -> None:
        self.uncleanable: dict[TopicPartition, Uncleanable] = {}
        self.last_runs: dict[TopicPartition, CleaningRun] = {}
        self.in_progress: dict[TopicPartition, asyncio.Task[None]] = {}
        self.max_dirty_ratio = 0.0
        self._known_logs: dict[
            TopicPartition, Log
        ] = {}  # the logs that `uncleanable` and `last_runs` refer to
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
        """Cancels the cleanings. Segments that they have swapped in are kept."""
        tasks = [*self.in_progress.values(), *([self._task] if self._task is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._env.processes.close()

    def configs_changed(self) -> None:
        """Starts cleanings that are due now, and applies the I/O limit to those that run."""
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
                if not self.start_due_cleanings(self._env.clock.now_ms()):
                    self._env.processes.end_idle()
                await self._write_checkpoints()
            except Exception:
                logger.exception("the log cleaner failed; it continues with its next round")

    # Selection

    def cleanable_logs(self, now_ms: int) -> list[tuple[HostedPartition, CleanableLog]]:
        """All compacted logs that have a closed segment, the dirtiest first."""
        found = []
        for hosted in self._partitions:
            log = hosted.log
            if "compact" not in log.config.cleanup_policy or hosted.is_closed or hosted.failure is not None:
                continue
            if len(log.segments) < 2:
                continue
            try:
                # Only flushed segments, see Log.replace_segments.
                limit = min(hosted.role.last_stable_offset, log.recovery_point)
                cleanable = measure_log(log, limit, now_ms)
            except (KafkaError, OSError) as error:
                if isinstance(error, OSError) and not is_disk_failure(error):
                    logger.warning(
                        "%s", out_of_resources_message(f"reading the log of {hosted.topic_partition}", error)
                    )
                else:
                    self._mark_uncleanable(hosted, str(error))
                continue
            found.append((hosted, cleanable))
        return sorted(found, key=lambda pair: -pair[1].dirty_ratio)

    def start_due_cleanings(self, now_ms: int) -> bool:
        """Returns whether any log is being cleaned."""
        self.last_round_ms = now_ms
        self._forget_deleted_logs()
        logs = self.cleanable_logs(now_ms)
        self.max_dirty_ratio = logs[0][1].dirty_ratio if logs else 0.0
        free = self._config.get_int("log.cleaner.threads") - len(self.in_progress)
        for hosted, cleanable in logs:
            if free <= 0:
                break
            partition = hosted.topic_partition
            is_busy = partition in self.in_progress or partition in self._log_dirs.moves
            if is_busy or self._is_uncleanable(partition):
                continue
            if cleanable.is_due(hosted.log.config.min_cleanable_dirty_ratio):
                free -= 1
                self._start_cleaning(hosted, cleanable, now_ms)
        return bool(self.in_progress)

    async def clean_now(self, hosted: HostedPartition) -> None:
        """Cleans the closed segments of a log, however few of its records are dirty."""
        while (running := self.in_progress.get(hosted.topic_partition)) is not None:
            await asyncio.wait((running,))
        now_ms = self._env.clock.now_ms()
        limit = min(hosted.role.last_stable_offset, hosted.log.recovery_point)
        cleanable = measure_log(hosted.log, limit, now_ms)
        if not cleanable.cleanable_bytes:  # tombstones of the clean part may be due
            cleanable = replace(cleanable, first_dirty_offset=hosted.log.log_start_offset)
        if cleanable.first_dirty_offset < cleanable.first_uncleanable_offset:
            await asyncio.wait((self._start_cleaning(hosted, cleanable, now_ms),))

    def _start_cleaning(
        self, hosted: HostedPartition, cleanable: CleanableLog, now_ms: int
    ) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(self._clean(hosted, cleanable, now_ms))
        self.in_progress[hosted.topic_partition] = task
        return task

    @property
    def _dedupe_bytes(self) -> int:
        threads = max(self._config.get_int("log.cleaner.threads"), 1)
        return min(self._config.get_int("log.cleaner.dedupe.buffer.size") // threads, _DEDUPE_BYTES_MAX)

    def _is_uncleanable(self, partition: TopicPartition) -> bool:
        mark = self.uncleanable.get(partition)
        if mark is not None and self._dedupe_bytes > mark.dedupe_bytes:
            del self.uncleanable[partition]
            return False
        return mark is not None

    def _mark_uncleanable(self, hosted: HostedPartition, reason: str) -> None:
        partition = hosted.topic_partition
        if partition not in self.uncleanable and not hosted.is_closed:
            self._known_logs[partition] = hosted.log
            logger.error("%s cannot be compacted and is skipped: %s", partition, reason)
            self.uncleanable[partition] = Uncleanable(reason, self._dedupe_bytes)

    def _forget_deleted_logs(self) -> None:
        """Includes logs of a deleted topic whose name another topic has now."""
        logs = self._log_dirs.logs
        self._known_logs = {tp: log for tp, log in self._known_logs.items() if logs.get(tp) is log}
        present = self._known_logs
        self.uncleanable = {tp: reason for tp, reason in self.uncleanable.items() if tp in present}
        self.last_runs = {tp: run for tp, run in self.last_runs.items() if tp in present}

    # Cleaning

    async def _clean(self, hosted: HostedPartition, cleanable: CleanableLog, now_ms: int) -> None:
        partition = hosted.topic_partition
        segments = {
            segment.base_offset: (segment, segment.size)
            for segment in hosted.log.segments
            if segment.base_offset < cleanable.first_uncleanable_offset
        }
        cleaning = _Cleaning(hosted, segments, now_ms, hosted.log.truncations)
        directory = hosted.log.directory
        try:
            result = await self._run_job(cleaning, self._job(cleaning, cleanable))
            self._check_not_truncated(cleaning)
            hosted.log.clean_up_to = result.clean_up_to
            self._record_run(cleaning, result)
        except (_CleaningAbortedError, FileNotFoundError) as error:  # retention may have removed a segment
            logger.info("the compaction of %s is aborted: %s", partition, error)
            await self._remove_cleaned_files(directory)
        except KafkaError as error:
            # The process may have read a segment while a new leader had it truncated: that is no damage.
            if hosted.log.truncations == cleaning.truncations:
                self._mark_uncleanable(hosted, error.message or str(error))
            await self._remove_cleaned_files(directory)
        except Exception as error:
            # A full disk or a killed process: the next round may succeed.
            logger.error("the compaction of %s failed and will be retried: %s", partition, error)
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
            # To the end: a process that has not reported its end would be killed, and a new one would be started.
            async for item in items:
                if isinstance(item, CleaningResult):
                    result = item
                else:
                    await self._swap(cleaning, item)
        if result is None:
            raise RuntimeError("the cleaner process ended without a result")
        return result

    def _job(self, cleaning: _Cleaning, cleanable: CleanableLog) -> CleaningJob:
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
            first_dirty_offset=cleanable.first_dirty_offset,
            first_uncleanable_offset=cleanable.first_uncleanable_offset,
            aborted=tuple(aborted),
            last_records={
                entry.producer_id: LastRecord(entry.last_offset, entry.producer_epoch)
                for entry in log.producers.entries()
            },
            config=log.config,
            now_ms=cleaning.started_ms,
            dedupe_bytes=self._dedupe_bytes,
            # Kafka accepts any number: it is limited to those with which the map works.
            load_factor=min(max(config.get_float("log.cleaner.io.buffer.load.factor"), 0.01), 1.0),
            io_bytes=config.get_int("log.cleaner.io.buffer.size")
            // max(config.get_int("log.cleaner.threads"), 1),
            hash_seed=self._env.random.getrandbits(128),
        )

    async def _swap(self, cleaning: _Cleaning, group: CleanedGroup) -> None:
        """Waits for the disk in threads; the swap itself takes one turn of the event loop."""
        hosted, env = cleaning.hosted, self._env
        self._check_unchanged(cleaning, group)
        if not group.is_changed:
            return
        log = hosted.log
        replaced = [cleaning.segments[base_offset][0] for base_offset in group.replaced]
        swap = SegmentSwap(env.disk, log, group.base_offset, replaced, group.size)
        try:
            try:
                await env.threads.run(swap.prepare)
                self._check_unchanged(cleaning, group)
            except (_CleaningAbortedError, OSError) as error:
                if isinstance(error, _CleaningAbortedError) or not is_disk_failure(error):
                    await self._retry_until_done(swap.abort)
                raise
            swap.replace(env.clock.now_ms())
            await self._retry_until_done(swap.finish)
        except OSError as error:
            if hosted.is_closed:
                raise _CleaningAbortedError("the topic was deleted") from error
            raise _CleaningAbortedError(hosted.storage_failed(error, log).message) from error

    async def _retry_until_done(self, work: Callable[[], None]) -> None:
        """A start would complete a swap that is left half done, over segments that are in the log by then."""
        while True:
            try:
                await self._env.threads.run(work)
                return
            except OSError as error:
                if is_disk_failure(error):
                    raise
            await asyncio.sleep(RETRY_S)

    def _check_not_truncated(self, cleaning: _Cleaning) -> None:
        if cleaning.hosted.log.truncations != cleaning.truncations:
            raise _CleaningAbortedError("the log was truncated")

    def _check_unchanged(self, cleaning: _Cleaning, group: CleanedGroup) -> None:
        hosted = cleaning.hosted
        log, partition = hosted.log, hosted.topic_partition
        if hosted.is_closed or hosted.failure is not None or self._log_dirs.logs.get(partition) is not log:
            raise _CleaningAbortedError("the log was closed")
        if partition in self._log_dirs.moves:
            raise _CleaningAbortedError("the replica is being moved to another directory")
        # Records may be gone for which a cleaned segment leaves out older ones of the same key.
        self._check_not_truncated(cleaning)
        if "compact" not in log.config.cleanup_policy:
            raise _CleaningAbortedError("its cleanup.policy is no longer compact")
        present = set(log.segments)
        replaced = [cleaning.segments[base_offset] for base_offset in group.replaced]
        if any(segment not in present or segment.size != size for segment, size in replaced):
            raise _CleaningAbortedError("segments were deleted or truncated meanwhile")

    def _record_run(self, cleaning: _Cleaning, result: CleaningResult) -> None:
        now_ms, partition = self._env.clock.now_ms(), cleaning.hosted.topic_partition
        if cleaning.hosted.is_closed:
            return
        self._known_logs[partition] = cleaning.hosted.log
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
            "%s was compacted up to offset %d: %d of %d records and %d of %d bytes are left%s",
            partition, run.clean_up_to, run.records_kept, run.records_read, run.bytes_written, run.bytes_read,
            " (the map was full: the next cleaning continues)" if run.map_is_full else "",
        )  # fmt: skip

    async def _remove_cleaned_files(self, directory: str) -> None:
        disk = self._env.disk

        def remove() -> None:
            for name in disk.list_dir(directory):
                if name.endswith(CLEANED_SUFFIX):
                    disk.remove(f"{directory}/{name}")

        # The folder may have been deleted with its topic, or its disk may have failed.
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
        """With Kafka's names (kafka.log:type=LogCleanerManager and LogCleaner)."""
        runs = self.last_runs.values()
        read = sum(run.bytes_read for run in runs)
        uncleanable_bytes = sum(
            cleanable.cleanable_bytes
            for hosted, cleanable in self.cleanable_logs(now_ms)
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
