"""The log against a model that is a list of batches: after any operations and stops, both agree."""

from dataclasses import replace
from random import Random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.examples import examples
from tests.unit.storage.log_builder import NOW_MS, PARTITION, batch

from ottla.records.header import BatchHeader, read_header
from ottla.sim.disk import SimDisk
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig

DIRECTORY = "/data/orders-0"
CONFIG = LogConfig(
    segment_bytes=1200,
    index_interval_bytes=150,
    max_index_bytes=96,
    retention_ms=-1,
    retention_bytes=1500,
    file_delete_delay_ms=0,
)


def read_headers(data: bytes) -> list[BatchHeader]:
    headers, position = [], 0
    while position < len(data):
        headers.append(read_header(data, position))
        position += headers[-1].size
    assert position == len(data)
    return headers


class LogMachine(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 2**32), is_compacted=st.booleans())
    def start(self, seed: int, is_compacted: bool) -> None:
        # Only compaction leaves gaps between offsets. Here a follower copies the log of such a leader.
        self.is_compacted = is_compacted
        self.config = (
            replace(CONFIG, cleanup_policy=frozenset({"compact", "delete"})) if is_compacted else CONFIG
        )
        self.disk = SimDisk(Random(seed), lambda: NOW_MS, cold_reads=0.3)
        self.directory = DIRECTORY
        self.batches: list[tuple[BatchHeader, bytes]] = []
        self.start_offset = 0
        self.end_offset = 0
        self.ever: set[bytes] = set()
        self.epoch = 0
        self.log = self.open(clean=False)

    def open(self, *, clean: bool, recovery_point: int = 0, log_start_offset: int | None = None) -> Log:
        return Log.open(
            self.disk,
            self.directory,
            PARTITION,
            self.config,
            clean_shutdown=clean,
            now_ms=NOW_MS,
            log_start_offset=self.start_offset if log_start_offset is None else log_start_offset,
            recovery_point=recovery_point,
        )

    # Operations

    @rule(
        counts=st.lists(st.integers(1, 5), min_size=1, max_size=3),
        size=st.integers(1, 50),
        timestamp=st.integers(0, 50),
        gap=st.sampled_from([0, 0, 0, 3]),
    )
    def append(self, counts: list[int], size: int, timestamp: int, gap: int) -> None:
        appended, offset = [], self.end_offset + gap * self.is_compacted
        for count in counts:
            appended.append(
                batch(offset, count, size=size, timestamp=NOW_MS + timestamp, leader_epoch=self.epoch)
            )
            offset += count
        self.log.append(appended, NOW_MS)
        self.batches += [(header, b"".join(parts)) for header, parts in appended]
        self.ever.update(b"".join(parts) for _, parts in appended)
        self.end_offset = offset

    @rule()
    def new_leader(self) -> None:
        self.epoch += 1

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW_MS)

    @rule(up_to=st.one_of(st.none(), st.integers(0, 200)))
    def flush(self, up_to: int | None) -> None:
        work = self.log.prepare_flush(up_to)
        if work is not None:
            work.sync()
            self.log.complete_flush(work)

    @rule(fraction=st.floats(0, 1))
    def delete_records(self, fraction: float) -> None:
        self.start_offset += int((self.end_offset - self.start_offset) * fraction)
        self.log.delete_records_before(self.start_offset)

    @rule(fraction=st.floats(0, 1))
    def retention(self, fraction: float) -> None:
        high_watermark = self.start_offset + int((self.end_offset - self.start_offset) * fraction)
        self.log.delete_old_segments(NOW_MS, high_watermark)
        first_base = self.log.segments.base_offsets[0]
        assert first_base <= max(self.start_offset, high_watermark)
        self.start_offset = max(self.start_offset, first_base)
        for deletion in self.log.due_deletions(NOW_MS):
            deletion.perform(self.disk)

    @rule(fraction=st.floats(0, 1))
    def truncate(self, fraction: float) -> None:
        offset = self.start_offset + int((self.end_offset - self.start_offset) * fraction)
        if not self.is_compacted:
            offset = max((h.base_offset for h, _ in self.batches if h.base_offset <= offset), default=offset)
        self.log.truncate_to(offset, NOW_MS)
        self.start_offset = min(self.start_offset, offset)
        self.batches = [(header, data) for header, data in self.batches if header.last_offset < offset]
        self.end_offset = offset

    @rule(offset=st.integers(0, 300))
    def truncate_fully(self, offset: int) -> None:
        self.log.truncate_fully_and_start_at(offset, NOW_MS)
        self.batches = []
        self.start_offset = self.end_offset = offset

    # Stops

    @rule()
    def stop(self) -> None:
        self.log.close(clean=True)
        recovery_point = self.log.recovery_point
        assert recovery_point == self.end_offset
        self.disk = self.disk.reopen()
        self.log = self.open(clean=True, recovery_point=recovery_point)

    @rule()
    def power_off_after_a_stop(self) -> None:
        self.log.close(clean=True)
        self.disk.crash()
        self.disk = self.disk.reopen()
        self.log = self.open(clean=True, recovery_point=self.log.recovery_point)

    @rule()
    def kill(self) -> None:
        self.disk.kill()
        self.disk = self.disk.reopen()
        self.log = self.open(clean=False, recovery_point=self.log.recovery_point)

    @rule()
    def power_loss(self) -> None:
        recovery_point = self.log.recovery_point
        flushed = [data for header, data in self.visible() if header.last_offset < recovery_point]
        self.disk.crash()
        self.disk = self.disk.reopen()
        # The checkpointed log start offset is never beyond the last flush.
        start_offset = min(self.start_offset, recovery_point)
        self.log = self.open(clean=False, recovery_point=recovery_point, log_start_offset=start_offset)
        found = self.stored()
        assert [data for _, data in found[: len(flushed)]] == flushed
        assert {data for _, data in found} <= self.ever
        self.batches = found
        self.start_offset = self.log.log_start_offset
        self.end_offset = self.log.log_end_offset

    # Invariants

    def stored(self) -> list[tuple[BatchHeader, bytes]]:
        found, offset, end_offset = [], self.log.log_start_offset, self.log.log_end_offset
        while offset < end_offset:
            data = self.log.read(offset, 400, end_offset=end_offset, at_least_one=True).region.read()
            if not data:
                break
            position = 0
            for header in read_headers(data):
                found.append((header, data[position : position + header.size]))
                position += header.size
            offset = found[-1][0].next_offset
        return found

    def visible(self) -> list[tuple[BatchHeader, bytes]]:
        return [(header, data) for header, data in self.batches if header.last_offset >= self.start_offset]

    @invariant()
    def offsets_agree(self) -> None:
        assert self.log.log_start_offset == self.start_offset
        assert self.log.log_end_offset == self.end_offset
        assert self.log.recovery_point <= self.end_offset

    @invariant()
    def batches_agree(self) -> None:
        assert self.stored() == self.visible()

    @rule(
        fraction=st.floats(0, 1),
        end_fraction=st.floats(0, 1),
        max_bytes=st.integers(0, 900),
        whole=st.booleans(),
    )
    def read(self, fraction: float, end_fraction: float, max_bytes: int, whole: bool) -> None:
        span = self.end_offset - self.start_offset
        offset = self.start_offset + int(span * fraction)
        end_offset = self.start_offset + int(span * end_fraction)
        readable = [found for found in self.batches if offset <= found[0].last_offset < end_offset]
        found = self.log.read(offset, max_bytes, end_offset=end_offset, at_least_one=whole)
        data = found.region.read()
        assert b"".join(data for _, data in readable).startswith(data)
        given = read_headers(data)
        assert len(data) <= max_bytes or (whole and len(given) == 1)
        if readable and whole:
            assert given
        if given:
            assert found.end_offset >= given[-1].next_offset

    @rule(timestamp=st.integers(-1, 60))
    def any_timestamp_is_found_exactly(self, timestamp: int) -> None:
        target = NOW_MS + timestamp
        expected = next(
            (
                (header.base_timestamp + index, header.base_offset + index)
                for header, _ in self.batches
                for index in range(header.records_count)
                if header.base_timestamp + index >= target and header.base_offset + index >= self.start_offset
            ),
            None,
        )
        found = self.log.offset_for_timestamp(target)
        assert (found and (found.timestamp, found.offset)) == expected

    @rule()
    def epochs_are_those_of_the_batches(self) -> None:
        for header, _ in self.visible():
            if header.base_offset >= self.start_offset:
                assert self.log.epochs.epoch_at(header.base_offset) == header.partition_leader_epoch


TestLogModel = LogMachine.TestCase
TestLogModel.settings = examples(80, stateful_step_count=40)
