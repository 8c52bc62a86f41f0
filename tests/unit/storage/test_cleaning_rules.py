"""The rules of compaction: tombstones, delete horizons, transactions, producers, gaps, groups, damage."""

import pytest
from tests.unit.storage.cleaner_bench import COMPACTED, clean, job_for
from tests.unit.storage.log_builder import NOW_MS, marker, open_log, read_all, sim_disk

from ottla.model.errors import KafkaError
from ottla.records.header import read_header
from ottla.records.records import Batch, Record, build_batch, read_batches
from ottla.sim.disk import SimDisk
from ottla.storage.cleaner import rewrite
from ottla.storage.cleaner.cleanable_log import measure_log
from ottla.storage.cleaner.rewrite import clean_log
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig

DIRECTORY = "/data/orders-0"
RETENTION_MS = COMPACTED.delete_retention_ms


@pytest.fixture
def disk() -> SimDisk:
    return sim_disk()


@pytest.fixture
def log(disk: SimDisk) -> Log:
    return open_log(DIRECTORY, COMPACTED, disk=disk)


def put(log: Log, *pairs: tuple[bytes | None, bytes | None], timestamp: int = NOW_MS, **fields) -> int:
    """Appends one batch and returns its base offset."""
    base = log.log_end_offset
    records = [Record(base + at, timestamp + at, key, value) for at, (key, value) in enumerate(pairs)]
    data = build_batch(records, leader_epoch=0, **fields)
    log.append([(read_header(data), [data])], NOW_MS)
    return base


def end_transaction(log: Log, producer_id: int, *, commit: bool) -> None:
    log.append([marker(log.log_end_offset, producer_id, commit=commit)], NOW_MS)


def batches(log: Log) -> list[Batch]:
    return read_batches(read_all(log, max_bytes=1 << 20))


def contents(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(r.offset, r.key, r.value) for b in batches(log) if not b.header.is_control for r in b.records]


def cleaned(log: Log, disk: SimDisk, now_ms: int = NOW_MS, **fields) -> None:
    log.roll(now_ms)
    assert clean(log, disk, now_ms, **fields) is not None


def test_the_newest_record_of_each_key_keeps_its_offset(log: Log, disk: SimDisk) -> None:
    put(log, (b"a", b"1"), (b"b", b"2"), (b"a", b"3"))
    put(log, (b"c", b"4"), (b"b", b"5"))
    cleaned(log, disk)
    assert contents(log) == [(2, b"a", b"3"), (3, b"c", b"4"), (4, b"b", b"5")]
    assert log.log_end_offset == 5


@pytest.mark.parametrize("scanned_max", [0, 1, 4, 9, 15, 16, 400_000])
def test_batches_that_the_first_pass_did_not_remember_are_read_again(
    log: Log, disk: SimDisk, monkeypatch: pytest.MonkeyPatch, scanned_max: int
) -> None:
    monkeypatch.setattr(rewrite, "CHUNK_BYTES", 300)
    monkeypatch.setattr(rewrite, "_SCANNED_MAX", scanned_max)
    for at in range(16):
        put(log, (b"%d" % (at // 2), b"first"), (b"only %d" % at, b"") if at % 3 == 0 else (b"0", b"last"))
    log.roll(NOW_MS)
    newest = {key: (offset, key, value) for offset, key, value in contents(log)}
    cleaned(log, disk)
    assert contents(log) == sorted(newest.values())


def test_the_active_segment_is_not_cleaned(log: Log, disk: SimDisk) -> None:
    put(log, (b"a", b"1"), (b"a", b"2"))
    log.roll(NOW_MS)
    put(log, (b"a", b"3"), (b"a", b"4"))
    assert clean(log, disk, NOW_MS) is not None
    # Offset 1 is kept, because the map does not cover the active segment.
    assert contents(log) == [(1, b"a", b"2"), (2, b"a", b"3"), (3, b"a", b"4")]


def test_nothing_is_cleaned_from_the_last_stable_offset_on(log: Log, disk: SimDisk) -> None:
    put(log, (b"a", b"1"), (b"a", b"2"))
    log.roll(NOW_MS)
    put(log, (b"a", b"3"), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    cleaned(log, disk, last_stable_offset=2)
    assert contents(log) == [(1, b"a", b"2"), (2, b"a", b"3")]
    assert log.clean_up_to == 2


def test_a_tombstone_is_removed_after_delete_retention_ms(log: Log, disk: SimDisk) -> None:
    put(log, (b"a", b"1"), (b"b", b"2"))
    put(log, (b"a", None), (b"c", b"3"))
    cleaned(log, disk)
    assert contents(log) == [(1, b"b", b"2"), (2, b"a", None), (3, b"c", b"3")]
    header = batches(log)[1].header
    assert (header.has_delete_horizon, header.base_timestamp) == (True, NOW_MS + RETENTION_MS)
    assert [record.timestamp for record in batches(log)[1].records] == [NOW_MS, NOW_MS + 1]
    put(log, (b"d", b"4"))
    cleaned(log, disk, NOW_MS + RETENTION_MS - 1)
    assert (2, b"a", None) in contents(log)
    put(log, (b"e", b"5"))
    cleaned(log, disk, NOW_MS + RETENTION_MS)
    assert contents(log) == [(1, b"b", b"2"), (3, b"c", b"3"), (4, b"d", b"4"), (5, b"e", b"5")]


def test_the_delete_horizon_is_set_once_from_the_time_of_the_cleaning(log: Log, disk: SimDisk) -> None:
    put(log, (b"a", None))
    cleaned(log, disk, NOW_MS + 50)
    put(log, (b"b", b"1"))
    cleaned(log, disk, NOW_MS + 500)
    assert batches(log)[0].header.base_timestamp == NOW_MS + 50 + RETENTION_MS


def test_records_without_a_key_are_removed(log: Log, disk: SimDisk) -> None:
    put(log, (None, b"1"), (b"a", b"2"))
    cleaned(log, disk)
    assert contents(log) == [(1, b"a", b"2")]


@pytest.mark.parametrize("codec", range(5))
def test_a_cleaned_batch_keeps_its_compression(log: Log, disk: SimDisk, codec: int) -> None:
    put(log, (b"a", b"1" * 50), (b"b", b"2" * 50), (b"a", b"3" * 50), codec=codec)
    cleaned(log, disk)
    assert contents(log) == [(1, b"b", b"2" * 50), (2, b"a", b"3" * 50)]
    assert batches(log)[0].header.compression == codec


def test_max_timestamp_is_that_of_the_kept_records(log: Log, disk: SimDisk) -> None:
    base = log.log_end_offset
    records = [Record(base, NOW_MS, b"b", b"1"), Record(base + 1, NOW_MS + 900, b"a", b"2")]
    data = build_batch(records, leader_epoch=0)
    log.append([(read_header(data), [data])], NOW_MS)
    put(log, (b"a", b"3"))
    cleaned(log, disk)
    assert batches(log)[0].header.max_timestamp == NOW_MS
    assert log.offset_for_timestamp(NOW_MS + 500) is None


def test_log_append_time_does_not_change(log: Log, disk: SimDisk) -> None:
    put(log, (b"a", b"1"), (b"b", None), (b"a", b"2"), log_append_time_ms=NOW_MS + 77)
    cleaned(log, disk)
    (batch,) = batches(log)
    assert {record.timestamp for record in batch.records} == {NOW_MS + 77}
    assert batch.header.has_delete_horizon


def test_aborted_records_are_removed_at_once_and_their_marker_later(log: Log, disk: SimDisk) -> None:
    transaction = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"), base_sequence=0, **transaction)
    end_transaction(log, 7, commit=False)
    put(log, (b"z", b"9"), base_sequence=1, **transaction)
    end_transaction(log, 7, commit=True)
    cleaned(log, disk)
    assert contents(log) == [(0, b"a", b"1"), (3, b"z", b"9")]
    kinds = [batch.header.is_control for batch in batches(log)]
    assert kinds == [False, True, False, True]
    assert log.aborted_transactions(0, 5) == [(7, 1)]

    put(log, (b"b", b"3"))
    cleaned(log, disk, NOW_MS + 10)  # no data of the transaction is left: the marker gets a delete horizon
    first_marker = next(batch for batch in batches(log) if batch.header.is_control)
    assert first_marker.header.has_delete_horizon
    assert first_marker.header.base_timestamp == NOW_MS + 10 + RETENTION_MS
    assert log.aborted_transactions(0, 5) == []

    put(log, (b"c", b"4"))
    cleaned(log, disk, NOW_MS + 10 + RETENTION_MS)
    assert [batch.header.base_offset for batch in batches(log) if batch.header.is_control] == [4]


def test_a_commit_marker_is_kept_as_long_as_its_data(log: Log, disk: SimDisk) -> None:
    put(log, (b"a", b"1"), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    end_transaction(log, 7, commit=True)
    put(log, (b"z", b"0"))
    for round_ in range(3):
        cleaned(log, disk, NOW_MS + round_ * 10 * RETENTION_MS)
        put(log, (b"y", b"%d" % round_))
    assert any(batch.header.is_control and not batch.header.has_delete_horizon for batch in batches(log))


def test_the_last_batch_of_an_active_producer_is_kept_without_records(log: Log, disk: SimDisk) -> None:
    put(log, (b"a", b"1"), producer_id=5, producer_epoch=2, base_sequence=40)
    put(log, (b"a", b"2"), (b"b", b"2"))
    cleaned(log, disk)
    first = batches(log)[0]
    assert first.records == []
    assert (first.header.producer_id, first.header.producer_epoch, first.header.last_sequence) == (5, 2, 40)
    log.close(clean=False)
    again = open_log(DIRECTORY, COMPACTED, disk=disk)
    assert [entry.last_sequence for entry in again.producers.entries()] == [40]

    log = again
    log.producers.clear()  # as if it had expired
    put(log, (b"c", b"3"))
    cleaned(log, disk)
    assert [batch.header.producer_id for batch in batches(log)] == [-1, -1]


def test_a_log_with_an_empty_marker_batch_can_be_opened(log: Log, disk: SimDisk) -> None:
    end_transaction(log, 7, commit=True)
    put(log, (b"a", b"1"))
    cleaned(log, disk)
    put(log, (b"b", b"1"))
    cleaned(log, disk, NOW_MS + RETENTION_MS)
    assert batches(log)[0].header.is_control
    assert batches(log)[0].records == []
    log.close(clean=False)
    assert len(contents(open_log(DIRECTORY, COMPACTED, disk=disk))) == 2


def test_the_last_batch_of_a_cleaned_segment_is_kept_without_records(log: Log, disk: SimDisk) -> None:
    put(log, (b"a", b"1"))
    put(log, (None, b"2"))
    cleaned(log, disk)
    assert [(batch.header.next_offset, len(batch.records)) for batch in batches(log)] == [(1, 1), (2, 0)]


def test_a_read_in_a_gap_returns_the_next_batch(log: Log, disk: SimDisk) -> None:
    for number in range(20):
        put(log, (b"a", b"%d" % number))
    put(log, (b"b", b"x"))
    cleaned(log, disk)
    for offset in range(19):
        found = log.read(offset, 1000, end_offset=log.log_end_offset, at_least_one=True)
        assert read_batches(found.region.read())[0].header.base_offset == 19


def test_small_cleaned_segments_are_merged(log: Log, disk: SimDisk) -> None:
    for number in range(8):
        put(log, (b"k%d" % number, b"v" * 50))
        log.roll(NOW_MS)
    before = contents(log)
    assert clean(log, disk, NOW_MS) is not None
    assert len(log.segments) == 2
    assert contents(log) == before
    assert [name for name in disk.list_dir(DIRECTORY) if name.endswith(".snapshot")] == [
        "00000000000000000008.snapshot"
    ]


def test_merged_segments_are_no_larger_than_segment_bytes(log: Log, disk: SimDisk) -> None:
    for number in range(8):
        put(log, (b"k%d" % number, b"v" * 900))
        log.roll(NOW_MS)
    assert clean(log, disk, NOW_MS) is not None
    assert [segment.size <= COMPACTED.segment_bytes for segment in log.segments] == [True] * 5


def test_with_a_full_map_the_rest_stays_dirty(log: Log, disk: SimDisk) -> None:
    for number in range(40):
        put(log, (b"k%d" % (number % 20), b"%d" % number))
    log.roll(NOW_MS)
    results = []
    while (result := clean(log, disk, NOW_MS, dedupe_bytes=13 * 24)) is not None:
        results.append((result.clean_up_to, result.map_is_full))
    assert len(results) > 2
    assert results == sorted(results)
    assert results[-1] == (40, False)
    assert [offset for offset, *_ in contents(log)] == list(range(20, 40))


def test_a_batch_with_too_many_keys_for_the_map_is_an_error_that_names_the_config(
    log: Log, disk: SimDisk
) -> None:
    put(log, *((b"k%d" % number, b"v") for number in range(20)))
    log.roll(NOW_MS)
    with pytest.raises(KafkaError, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        clean(log, disk, NOW_MS, dedupe_bytes=100)


def test_a_damaged_batch_is_an_error_and_the_log_does_not_change(log: Log, disk: SimDisk) -> None:
    put(log, (b"a", b"1"), (b"a", b"2"))
    log.roll(NOW_MS)
    disk.open(f"{DIRECTORY}/{0:020d}.log").write_at(70, [b"\xff"])
    with pytest.raises(KafkaError, match="damaged at position 0"):
        clean(log, disk, NOW_MS)
    assert [name for name in disk.list_dir(DIRECTORY) if "cleaned" in name] == []


def test_a_segment_without_changes_is_not_replaced(log: Log, disk: SimDisk) -> None:
    put(log, (b"a", b"1"), (b"b", b"2"))
    log.roll(NOW_MS)
    segment = next(iter(log.segments))
    assert clean(log, disk, NOW_MS) is not None
    assert next(iter(log.segments)) is segment
    assert log.clean_up_to == 2


def test_a_batch_larger_than_the_buffer_is_read(
    log: Log, disk: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.storage.cleaner.rewrite.CHUNK_BYTES", 100)
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2" * 500), (b"b", b"3"))
    put(log, (b"a", b"4"))
    cleaned(log, disk)
    assert contents(log) == [(2, b"b", b"3"), (3, b"a", b"4")]


@pytest.mark.parametrize("codec", [0, 4])
def test_many_records_are_read_in_parts(
    log: Log, disk: SimDisk, monkeypatch: pytest.MonkeyPatch, codec: int
) -> None:
    monkeypatch.setattr("ottla.storage.cleaner.batch_records._RECORDS_MAX", 3)
    monkeypatch.setattr("ottla.storage.cleaner.batch_records._DECOMPRESSED_BYTES_MAX", 30)
    for number in range(8):
        put(log, (b"a", b"%d" % number), (b"k%d" % number, b"v"), codec=codec)
    cleaned(log, disk)
    assert [offset for offset, *_ in contents(log)] == [1, 3, 5, 7, 9, 11, 13, 14, 15]


# When a log is cleaned


def config(**fields) -> LogConfig:
    return LogConfig(cleanup_policy=frozenset({"compact"}), **fields)


def test_a_log_is_due_when_its_dirty_ratio_exceeds_the_config(log: Log, disk: SimDisk) -> None:
    put(log, (b"a", b"1" * 100))
    cleaned(log, disk)
    put(log, (b"b", b"1" * 100))
    log.roll(NOW_MS)
    dirt = measure_log(log, log.log_end_offset, NOW_MS)
    assert (dirt.first_dirty_offset, dirt.first_uncleanable_offset) == (1, 2)
    assert dirt.dirty_ratio == 0.5
    assert [dirt.is_due(ratio) for ratio in (0.4, 0.5)] == [True, False]


def test_a_log_without_closed_segments_has_nothing_to_clean(log: Log) -> None:
    put(log, (b"a", b"1"))
    assert measure_log(log, 1, NOW_MS).cleanable_bytes == 0


def test_segments_younger_than_min_compaction_lag_ms_are_not_cleanable(log: Log) -> None:
    log.config = config(min_compaction_lag_ms=1000)
    put(log, (b"a", b"1"), timestamp=NOW_MS - 5000)
    log.roll(NOW_MS)
    put(log, (b"a", b"2"), timestamp=NOW_MS - 10)
    log.roll(NOW_MS)
    assert measure_log(log, 2, NOW_MS).first_uncleanable_offset == 1
    assert measure_log(log, 2, NOW_MS + 2000).first_uncleanable_offset == 2


def test_a_log_is_due_after_max_compaction_lag_ms_whatever_its_dirty_ratio(log: Log, disk: SimDisk) -> None:
    put(log, (b"a", b"1" * 1000))
    cleaned(log, disk)
    put(log, (b"b", b"1"))
    log.roll(NOW_MS)
    log.config = config(max_compaction_lag_ms=1000)
    assert not measure_log(log, 2, NOW_MS + 1000).is_due(0.5)
    assert measure_log(log, 2, NOW_MS + 1001).is_due(0.5)


def test_a_cleaner_checkpoint_beyond_the_log_end_is_ignored(log: Log, disk: SimDisk) -> None:
    put(log, (b"a", b"1"))
    log.roll(NOW_MS)
    log.clean_up_to = 99
    assert measure_log(log, 1, NOW_MS).first_dirty_offset == 0


def test_truncation_moves_the_clean_part_back(log: Log, disk: SimDisk) -> None:
    for _ in range(3):
        put(log, (b"a", b"1"))
    cleaned(log, disk)
    log.truncate_to(2, NOW_MS)
    assert log.clean_up_to == 2


def test_cleaning_does_not_change_the_files_of_the_log_before_the_swap(log: Log, disk: SimDisk) -> None:
    put(log, (b"a", b"1"), (b"a", b"2"))
    log.roll(NOW_MS)
    before = {name: disk.read_bytes(f"{DIRECTORY}/{name}") for name in disk.list_dir(DIRECTORY)}
    list(clean_log(job_for(log, measure_log(log, 2, NOW_MS), NOW_MS), disk, lambda size: None))
    after = {name: disk.read_bytes(f"{DIRECTORY}/{name}") for name in before}
    assert after == before
