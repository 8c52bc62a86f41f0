"""Random histories of keys, tombstones, transactions, rolls, cleanings and crashes, against a model of the log."""

from random import Random
from typing import Any
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.storage.cleaner_bench import COMPACTED, clean
from tests.unit.storage.log_builder import PARTITION, read_all

from ottla.records.control import build_control_batch, read_control_record
from ottla.records.header import read_header
from ottla.records.markers import EndTransactionMarker
from ottla.records.records import Record, build_batch, read_batches
from ottla.sim.disk import SimDisk
from ottla.storage.cleaner import rewrite
from ottla.storage.log import Log

DIRECTORY = "/data/orders-0"
RETENTION_MS = COMPACTED.delete_retention_ms
PLAIN, IDEMPOTENT, TRANSACTIONAL = range(3)


class CompactedLog:
    """A log, and a record of everything that was written to it."""

    def __init__(self, seed: int) -> None:
        self.now_ms = 1_700_000_000_000
        self.disk = SimDisk(Random(seed), lambda: self.now_ms)
        self.written: dict[int, Record] = {}
        self.open_txns: dict[int, list[int]] = {}  # producer id -> offsets
        self.aborted: set[int] = set()
        self.pending: set[int] = set()
        self.sequences: dict[int, int] = {}
        self.first_cleaned_ms: dict[int, int] = {}
        self.last_cleaned_ms = 0
        self.log = self.open()

    def open(self, recovery_point: int = 0) -> Log:
        return Log.open(
            self.disk, DIRECTORY, PARTITION, COMPACTED, clean_shutdown=False, now_ms=self.now_ms,
            recovery_point=recovery_point,
        )  # fmt: skip

    def append(self, kind: int, producer: int, records: list[tuple[int, bytes | None]], codec: int) -> None:
        base = self.log.log_end_offset
        fields: dict[str, Any] = {}
        producer_id = kind * 10 + producer
        if kind != PLAIN:
            sequence = self.sequences.get(producer_id, 0)
            self.sequences[producer_id] = sequence + len(records)
            fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
            fields["transactional"] = kind == TRANSACTIONAL
        content = [
            Record(base + at, self.now_ms + at, b"key%d" % key, value)
            for at, (key, value) in enumerate(records)
        ]
        data = build_batch(content, codec=codec, leader_epoch=0, **fields)
        self.log.append([(read_header(data), [data])], self.now_ms)
        self.written.update((record.offset, record) for record in content)
        if kind == TRANSACTIONAL:
            offsets = [record.offset for record in content]
            self.open_txns.setdefault(producer_id, []).extend(offsets)
            self.pending.update(offsets)

    def end(self, producer: int, commit: bool) -> None:
        producer_id = TRANSACTIONAL * 10 + producer
        offsets = self.open_txns.pop(producer_id, None)
        if offsets is None:
            return
        data = build_control_batch(
            [EndTransactionMarker(commit, 0)], base_offset=self.log.log_end_offset, timestamp=self.now_ms,
            leader_epoch=0, producer_id=producer_id, producer_epoch=0,
        )  # fmt: skip
        self.log.append([(read_header(data), [data])], self.now_ms)
        self.pending.difference_update(offsets)
        if not commit:
            self.aborted.update(offsets)

    @property
    def last_stable_offset(self) -> int:
        return min((offsets[0] for offsets in self.open_txns.values()), default=self.log.log_end_offset)

    def clean(self, dedupe_bytes: int, crash_after: int | None) -> None:
        self.log.roll(self.now_ms)
        self.log.flush()
        for offset in range(min(self.log.segments.active.base_offset, self.last_stable_offset)):
            self.first_cleaned_ms.setdefault(offset, self.now_ms)
        self.last_cleaned_ms = self.now_ms
        if crash_after is not None:
            self.disk.crash_after(crash_after)
        try:
            result = clean(
                self.log, self.disk, self.now_ms,
                last_stable_offset=self.last_stable_offset, dedupe_bytes=dedupe_bytes,
            )  # fmt: skip
        except OSError:
            self.restart(0)
            return
        if crash_after is not None:
            self.restart(0)
        elif result is not None:
            self.check_clean(result.clean_up_to)

    def restart(self, recovery_point: int) -> None:
        self.disk.crash()
        self.disk = self.disk.reopen()
        clean_up_to, self.log = self.log.clean_up_to, self.open(recovery_point)
        self.log.clean_up_to = clean_up_to
        self.log.flush()

    def lose_power(self) -> None:
        self.log.flush()
        self.restart(self.log.recovery_checkpoint)

    # What must hold

    def check(self) -> None:
        batches = read_batches(read_all(self.log, max_bytes=1 << 20))
        offsets = [batch.header.base_offset for batch in batches]
        assert offsets == sorted(set(offsets))
        found = [record for batch in batches if not batch.header.is_control for record in batch.records]
        assert [record.offset for record in found] == sorted({record.offset for record in found})
        assert all(record == self.written[record.offset] for record in found)
        present = {record.offset for record in found}
        newest: dict[bytes | None, Record] = {}
        for offset, record in self.written.items():
            if offset not in self.aborted and offset not in self.pending:
                newest[record.key] = record
        for record in newest.values():
            cleaned_ms = self.first_cleaned_ms.get(record.offset, self.last_cleaned_ms + 1)
            if record.value is not None or self.last_cleaned_ms < cleaned_ms + RETENTION_MS:
                assert record.offset in present, f"offset {record.offset} is gone"
        assert self.pending <= present
        self.check_read_committed(newest)
        self.check_producers()

    def check_read_committed(self, newest: dict[bytes | None, Record]) -> None:
        """Reads as a read_committed consumer does: with the list of aborted transactions and the markers."""
        log, end = self.log, self.last_stable_offset
        aborted = sorted(log.aborted_transactions(0, end), key=lambda txn: txn[1])
        skipped: set[int] = set()
        state: dict[bytes | None, bytes | None] = {}
        for batch in read_batches(read_all(log, max_bytes=1 << 20)):
            header = batch.header
            if header.base_offset >= end:
                break
            while aborted and aborted[0][1] <= header.last_offset:
                skipped.add(aborted.pop(0)[0])
            if header.is_control:
                for record in batch.records:
                    ended = read_control_record(record)
                    if isinstance(ended, EndTransactionMarker) and not ended.commit:
                        skipped.discard(header.producer_id)
                continue
            if header.is_transactional and header.producer_id in skipped:
                continue
            for record in batch.records:
                assert record.offset not in self.aborted, f"offset {record.offset} was aborted"
                state[record.key] = record.value
        expected = {
            key: record.value for key, record in newest.items()
            if record.offset < end and record.value is not None
        }  # fmt: skip
        older = {record.key for record in newest.values() if record.offset >= end}
        assert {key: value for key, value in state.items() if value is not None and key not in older} == {
            key: value for key, value in expected.items() if key not in older
        }

    def check_producers(self) -> None:
        found = {entry.producer_id: entry.last_sequence for entry in self.log.producers.entries()}
        for producer_id, following in self.sequences.items():
            assert found[producer_id] == following - 1

    def check_clean(self, clean_up_to: int) -> None:
        seen: set[bytes | None] = set()
        for batch in read_batches(read_all(self.log, max_bytes=1 << 20)):
            if batch.header.is_control:
                continue
            for record in batch.records:
                if record.offset < clean_up_to:
                    assert record.key not in seen
                    assert record.offset not in self.aborted
                    seen.add(record.key)


values = st.none() | st.binary(min_size=1, max_size=60)
appends = st.tuples(
    st.just("append"),
    st.integers(PLAIN, TRANSACTIONAL),
    st.integers(0, 1),
    st.lists(st.tuples(st.integers(0, 7), values), min_size=1, max_size=6),
    st.sampled_from([0, 0, 1, 4]),
)
steps = st.one_of(
    appends,
    appends,
    appends,
    st.tuples(st.just("end"), st.integers(0, 1), st.booleans()),
    st.tuples(st.just("wait"), st.sampled_from([1, 500, 1000, 5000])),
    st.tuples(st.just("roll")),
    st.tuples(st.just("clean"), st.sampled_from([1 << 16, 1 << 16, 240]), st.none()),
    st.tuples(st.just("clean"), st.just(1 << 16), st.integers(0, 70)),
    st.tuples(st.just("lose_power")),
)


# (bytes in a chunk, batches that the first pass remembers)
limits = st.sampled_from([(300, 0), (300, 6), (300, 400_000), (8 << 20, 6), (8 << 20, 400_000)])


@given(st.integers(0, 2**16), limits, st.lists(steps, max_size=40))
@examples(120)
def test_a_consumer_sees_the_newest_record_of_every_key(
    seed: int, limit: tuple[int, int], history: list[tuple]
) -> None:
    model = CompactedLog(seed)
    with patch.multiple(rewrite, CHUNK_BYTES=limit[0], _SCANNED_MAX=limit[1]):
        for name, *arguments in history:
            if name == "wait":
                model.now_ms += arguments[0]
            elif name == "roll":
                model.log.roll(model.now_ms)
            else:
                getattr(model, name)(*arguments)
            if name in ("clean", "lose_power"):
                model.check()
        model.clean(1 << 16, None)
        model.check()
        model.lose_power()
        model.check()
