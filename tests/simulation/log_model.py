"""A log on a simulated disk, and a list of the same records; after every restart the two are compared."""

import errno
from random import Random

import numpy as np

from ottla.model.ids import TopicPartition
from ottla.records.header import BatchHeader, planned_parts, read_header
from ottla.records.records import Record, build_batch, read_batches
from ottla.sim.disk import WRITES, SimDisk
from ottla.storage.batch_scan import iter_headers
from ottla.storage.cleaner.cleaned_segment import CleanedSegment
from ottla.storage.cleaner.swap import SegmentSwap
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig

DIRECTORY = "/data/topic-0"
PARTITION = TopicPartition("topic", 0)
CONFIG = LogConfig(
    segment_bytes=6_000,
    max_index_bytes=480,
    index_interval_bytes=700,
    retention_ms=-1,
    file_delete_delay_ms=0,
)
PRODUCERS = 3
ALL = 1 << 40


class LogModel:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now_ms = 1_700_000_000_000
        self.disk = SimDisk(Random(seed + 1), lambda: self.now_ms)
        self.records: list[Record] = []  # all appended records, by offset
        self.headers: list[BatchHeader] = []
        self.compacted: set[int] = set()  # offsets of records that compaction may have removed
        self.flushed = 0  # records below it must survive a power loss
        self.start = 0
        self.checkpoint = 0  # the recovery point that the checkpoint file would hold
        self.epoch = 0
        self.story: list[str] = []
        self.log = self.open(clean_shutdown=False)

    def open(self, *, clean_shutdown: bool) -> Log:
        return Log.open(
            self.disk,
            DIRECTORY,
            PARTITION,
            CONFIG,
            clean_shutdown=clean_shutdown,
            now_ms=self.now_ms,
            log_start_offset=self.start,
            recovery_point=self.checkpoint,
        )

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.now_ms += self.random.randrange(1_000)
            step = self.random.choices(
                (
                    self.append,
                    self.flush,
                    self.roll,
                    self.advance_start,
                    self.compact,
                    self.fault,
                    self.restart,
                ),
                weights=(60, 10, 4, 2, 4, 2, 6),
            )[0]
            self.story.append(f"{step.__name__} at {self.log.log_end_offset}")
            try:
                step()
            except OSError as error:
                # As in the broker: after a disk error the log is not used again before a restart.
                self.story.append(f"  {error}")
                if self.disk.is_alive:
                    self.restart_after_kill()
            if not self.disk.is_alive:
                self.restart_after_power_loss()
        self.restart_after_power_loss()

    # Operations on the log

    def append(self) -> None:
        if self.random.random() < 0.05:
            self.epoch += 1
        before = len(self.records), len(self.headers)
        batches = []
        for _ in range(self.random.choice((1, 1, 1, 3))):
            header, batch = self.new_batch(len(self.records))
            batches.append((header, batch))
            self.headers.append(header)
            self.records += read_batches(batch)[0].records
        try:
            self.log.append(
                [(header, planned_parts(batch, 0, header)) for header, batch in batches], self.now_ms
            )
        except OSError:
            if self.disk.is_alive:  # the append had no effect
                del self.records[before[0] :], self.headers[before[1] :]
                assert self.log.log_end_offset == before[0]
            raise

    def new_batch(self, base: int) -> tuple[BatchHeader, bytes]:
        count = self.random.randint(1, 5)
        records = [
            Record(
                base + index,
                self.now_ms - self.random.randrange(3_000),
                None,
                self.random.randbytes(self.random.randrange(300)),
            )
            for index in range(count)
        ]
        producer_id = self.random.randrange(-1, PRODUCERS)
        batch = build_batch(
            records,
            leader_epoch=self.epoch,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=base if producer_id >= 0 else -1,
        )
        return read_header(batch), batch

    def flush(self) -> None:
        work = self.log.prepare_flush()
        if work is not None:
            work.sync()
            self.log.complete_flush(work)
        self.flushed = self.log.log_end_offset
        if self.random.random() < 0.5:
            self.checkpoint = self.log.recovery_checkpoint

    def roll(self) -> None:
        self.log.roll(self.now_ms)

    def advance_start(self) -> None:
        """Deletes records; the new log start offset is checkpointed before any segment is removed."""
        if self.flushed > self.start:
            self.start = self.random.randint(self.start, self.flushed)
            self.log.delete_records_before(self.start)
            self.log.delete_old_segments(self.now_ms, self.log.log_end_offset)
            for deletion in self.log.due_deletions(self.now_ms + 1):
                deletion.perform(self.disk)

    def compact(self) -> None:
        """Replaces adjacent flushed segments with one that has some of their batches."""
        bases = self.log.segments.base_offsets
        sealed = [
            segment
            for segment, end in zip(self.log.segments, bases[1:], strict=False)
            if end <= self.log.recovery_point
        ]
        if not sealed:
            return
        first = self.random.randrange(len(sealed))
        replaced = sealed[first : first + self.random.choice((1, 1, 2))]
        # The last flushed batch of each producer is kept, because later ones may be lost.
        flushed = (header for header in self.headers if header.last_offset < self.log.recovery_point)
        last = {header.producer_id: header.base_offset for header in flushed}.values()
        cleaned = CleanedSegment(self.disk, DIRECTORY, replaced[0].base_offset, CONFIG)
        for segment in replaced:
            for position, header in iter_headers(segment.file, 0, segment.size):
                if header.base_offset in last or self.random.random() < 0.5:
                    data = segment.file.read_at(position, header.size)
                    fields = (header.size, header.last_offset, header.max_timestamp)
                    sizes, last_offsets, max_timestamps = (np.array([field]) for field in fields)
                    cleaned.append(sizes, last_offsets, max_timestamps, [data])
                else:
                    self.compacted.update(range(header.base_offset, header.next_offset))
        cleaned.finish()
        swap = SegmentSwap(self.disk, self.log, replaced[0].base_offset, replaced, cleaned.size)
        swap.prepare()
        swap.replace(self.now_ms)
        swap.finish()

    def fault(self) -> None:
        self.disk.heal()
        error = self.random.choice((errno.ENOSPC, errno.EIO))
        self.disk.fail("/data", error, operations=frozenset({self.random.choice(sorted(WRITES))}), times=1)

    # Restarts

    def restart(self) -> None:
        self.disk.heal()
        match self.random.randrange(4):
            case 0:
                self.story.append("  clean stop")
                self.log.close(clean=True)
                self.checkpoint = self.flushed = self.log.log_end_offset
                if self.random.random() < 0.5:
                    self.disk.crash()
                else:
                    self.disk.kill()
                self.reopen(clean_shutdown=True, at_least=len(self.records))
            case 1:
                self.restart_after_kill()
            case 2:
                self.story.append("  power lost")
                self.restart_after_power_loss()
            case _:
                self.story.append("  power will be lost")
                self.disk.crash_after(self.random.randrange(40))

    def restart_after_kill(self) -> None:
        self.story.append("  killed")
        self.disk.kill()
        self.reopen(clean_shutdown=False, at_least=len(self.records))

    def restart_after_power_loss(self) -> None:
        self.disk.crash()
        self.reopen(clean_shutdown=False, at_least=self.flushed)

    def reopen(self, *, clean_shutdown: bool, at_least: int) -> None:
        self.disk = self.disk.reopen()
        self.log = self.open(clean_shutdown=clean_shutdown)
        end = self.log.log_end_offset
        assert at_least <= end <= len(self.records), f"{at_least} <= {end} <= {len(self.records)}"
        del self.records[end:]
        self.compacted = {offset for offset in self.compacted if offset < end}
        self.headers = [header for header in self.headers if header.last_offset < end]
        self.compare()
        # A broker also flushes after recovery, before it relies on the recovered records.
        self.flush()

    # Checks

    def compare(self) -> None:
        log = self.log
        assert log.log_end_offset == len(self.records)
        assert self.start <= log.log_start_offset <= max(self.start, self.flushed)
        found: list[Record] = []
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            slice_ = log.read(offset, 1_000, end_offset=ALL, at_least_one=True)
            found += [
                record for batch in read_batches(slice_.region.read()) for record in batch.records
                if record.offset >= offset
            ]  # fmt: skip
            data = slice_.region.read()
            # Compaction may have left nothing before the end of the segment.
            offset = read_batches(data)[-1].header.next_offset if data else slice_.end_offset
        present = {record.offset for record in found}
        expected = self.records[log.log_start_offset :]
        assert found == [record for record in expected if record.offset not in self.compacted - present]
        self.compare_producers()
        self.compare_epochs(present)
        self.compare_timestamps(found)

    def compare_producers(self) -> None:
        last = {header.producer_id: header for header in self.headers if header.producer_id >= 0}
        known = {entry.producer_id: entry for entry in self.log.producers.entries()}
        for producer_id, header in last.items():
            if header.last_offset >= self.log.log_start_offset:
                assert known[producer_id].last_sequence == header.last_sequence
                assert known[producer_id].last_offset == header.last_offset
        assert known.keys() <= last.keys()

    def compare_epochs(self, present: set[int]) -> None:
        for header in self.headers:
            if header.last_offset >= self.log.log_start_offset and header.last_offset in present:
                offset = max(header.base_offset, self.log.log_start_offset)
                assert self.log.epochs.epoch_at(offset) == header.partition_leader_epoch

    def compare_timestamps(self, records: list[Record]) -> None:
        for record in self.random.sample(records, min(3, len(records))):
            wanted = next(other for other in records if other.timestamp >= record.timestamp)
            found = self.log.offset_for_timestamp(record.timestamp)
            assert found is not None
            assert (found.offset, found.timestamp) == (wanted.offset, wanted.timestamp), "lookup by time"
