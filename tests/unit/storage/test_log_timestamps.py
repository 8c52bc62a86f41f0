import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.storage.log_builder import NOW_MS, SMALL, batch, fill, open_log, sim_disk

from ottla.records.header import read_header
from ottla.records.records import Record, build_batch
from ottla.storage.log_config import LogConfig
from ottla.storage.timestamp_search import TimestampOffset


def append_records(log, timestamps, **fields):
    offset = log.log_end_offset
    data = build_batch(
        [Record(offset + index, timestamp, None, b"v") for index, timestamp in enumerate(timestamps)],
        leader_epoch=4,
        **fields,
    )
    log.append([(read_header(data), [data])], NOW_MS)


@pytest.mark.parametrize("codec", range(5))
def test_the_offset_for_a_timestamp_is_exact_with_any_codec(tmp_path, codec):
    log = open_log(tmp_path / "orders-0", LogConfig())
    append_records(log, [100, 200, 300], codec=codec)
    append_records(log, [400, 350, 500], codec=codec)
    for timestamp, expected in ((0, 0), (100, 0), (101, 1), (300, 2), (301, 3), (350, 3), (401, 5), (500, 5)):
        found = log.offset_for_timestamp(timestamp)
        assert found is not None
        assert found.offset == expected
    assert log.offset_for_timestamp(400) == TimestampOffset(400, 3, 4)
    assert log.offset_for_timestamp(501) is None


def test_records_below_the_log_start_offset_are_not_found(tmp_path):
    log = open_log(tmp_path / "orders-0", LogConfig())
    append_records(log, [100, 200, 300, 50])
    log.delete_records_before(3)
    assert log.offset_for_timestamp(0) == TimestampOffset(50, 3, 4)
    assert log.offset_for_timestamp(51) is None


def test_the_search_for_the_greatest_timestamp_finds_the_first_record_with_it(tmp_path):
    log = open_log(tmp_path / "orders-0", SMALL)
    assert log.offset_of_max_timestamp() is None
    fill(log, 20, timestamp=1000)
    append_records(log, [5, 9000, 9000, 7])
    fill(log, 20, timestamp=2000)
    assert log.offset_of_max_timestamp() == TimestampOffset(9000, 41, 4)
    log.close(clean=True)
    log = open_log(tmp_path / "orders-0", SMALL, clean_shutdown=True, recovery_point=84)
    assert log.offset_of_max_timestamp() == TimestampOffset(9000, 41, 4)
    log.truncate_to(40, NOW_MS)
    found = log.offset_of_max_timestamp()
    assert found is not None
    assert found.timestamp == 1001


@examples(60)
@given(
    batches=st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=4), min_size=1, max_size=40),
    reopen=st.sampled_from(["no", "clean", "kill"]),
)
def test_every_timestamp_search_finds_the_same_as_a_scan(batches, reopen):
    disk = sim_disk()
    config = LogConfig(segment_bytes=900, index_interval_bytes=100, max_index_bytes=96)
    log = open_log("/data/orders-0", config, disk=disk)
    for timestamps in batches:
        append_records(log, timestamps)
    if reopen != "no":
        log.close(clean=reopen == "clean")
        log = open_log(
            "/data/orders-0",
            config,
            disk=disk,
            clean_shutdown=reopen == "clean",
            recovery_point=log.recovery_point,
        )
    records = list(enumerate(timestamp for timestamps in batches for timestamp in timestamps))
    for target in range(-1, 62):
        expected = next(((timestamp, offset) for offset, timestamp in records if timestamp >= target), None)
        found = log.offset_for_timestamp(target)
        assert (found and (found.timestamp, found.offset)) == expected
    latest = max(timestamp for _, timestamp in records)
    newest = log.offset_of_max_timestamp()
    assert newest is not None
    assert newest.timestamp == latest


def test_batches_without_timestamps_are_not_found(tmp_path):
    log = open_log(tmp_path / "orders-0", SMALL)
    log.append([batch(0, timestamp=-1)], NOW_MS)
    assert log.offset_for_timestamp(0) is None
