import uuid
from dataclasses import replace

import pytest
from tests.unit.storage.log_builder import (
    NOW_MS,
    PARTITION,
    SMALL,
    batch,
    fill,
    offsets_of,
    open_log,
    read_all,
)

from ottla.storage.log_config import LogConfig

HOUR_MS = 3_600_000


def test_segments_older_than_retention_ms_are_deleted(tmp_path):
    log = open_log(tmp_path / "orders-0", replace(SMALL, retention_ms=HOUR_MS))
    fill(log, 30, timestamp=NOW_MS - 2 * HOUR_MS)
    log.roll(NOW_MS)
    fill(log, 1, timestamp=NOW_MS)
    removed = log.delete_old_segments(NOW_MS, log.log_end_offset)
    assert removed[0].base_offset == 0
    assert log.log_start_offset == 60
    assert offsets_of(read_all(log)) == [60, 61]


def test_without_retention_ms_nothing_is_deleted_by_age(tmp_path):
    log = open_log(tmp_path / "orders-0", replace(SMALL, retention_ms=-1))
    fill(log, 30, timestamp=0)
    assert log.delete_old_segments(NOW_MS, log.log_end_offset) == []


def test_an_expired_active_segment_is_replaced_by_an_empty_one(tmp_path):
    log = open_log(tmp_path / "orders-0", replace(SMALL, retention_ms=HOUR_MS))
    fill(log, 30, timestamp=NOW_MS - 2 * HOUR_MS)
    log.delete_old_segments(NOW_MS, 60)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (60, 60, 0)
    assert log.segments.base_offsets == [60]
    fill(log, 1)
    assert offsets_of(read_all(log)) == [60, 61]
    assert log.delete_old_segments(NOW_MS, 62) == []


def test_an_empty_active_segment_is_kept(tmp_path):
    log = open_log(tmp_path / "orders-0", replace(SMALL, retention_ms=0, retention_bytes=0))
    assert log.delete_old_segments(NOW_MS, 0) == []


def test_retention_bytes_keeps_at_least_that_many_bytes(tmp_path):
    log = open_log(tmp_path / "orders-0", replace(SMALL, retention_bytes=3000, retention_ms=-1))
    fill(log, 60)
    size = log.size_bytes
    removed = log.delete_old_segments(NOW_MS, log.log_end_offset)
    assert removed
    assert log.size_bytes == size - sum(segment.size for segment in removed)
    assert 3000 <= log.size_bytes < 3000 + removed[0].size


def test_nothing_at_or_above_the_high_watermark_is_deleted(tmp_path):
    log = open_log(tmp_path / "orders-0", replace(SMALL, retention_ms=0))
    fill(log, 60, timestamp=0)
    bases = log.segments.base_offsets
    log.delete_old_segments(NOW_MS, bases[2] + 1)
    assert log.log_start_offset == bases[2]


def test_a_compacted_topic_deletes_only_below_its_log_start_offset(tmp_path):
    log = open_log(
        tmp_path / "orders-0",
        replace(SMALL, retention_ms=0, retention_bytes=0, cleanup_policy=frozenset({"compact"})),
    )
    fill(log, 60, timestamp=0)
    assert log.delete_old_segments(NOW_MS, 120) == []
    bases = log.segments.base_offsets
    log.delete_records_before(bases[2] + 1)
    assert [segment.base_offset for segment in log.delete_old_segments(NOW_MS, 120)] == bases[:2]
    assert log.log_start_offset == bases[2] + 1


def test_files_are_renamed_at_once_and_removed_after_the_delay(tmp_path):
    log = open_log(tmp_path / "orders-0", SMALL)
    fill(log, 60, producer_id=7, producer_epoch=0)
    second = log.segments.base_offsets[1]
    log.delete_records_before(log.segments.base_offsets[2])
    log.delete_old_segments(NOW_MS, 120)
    names = {path.name for path in (tmp_path / "orders-0").iterdir()}
    assert f"{second:020d}.log.deleted" in names
    assert f"{second:020d}.snapshot.deleted" in names
    assert log.due_deletions(NOW_MS + SMALL.file_delete_delay_ms - 1) == []
    due = log.due_deletions(NOW_MS + SMALL.file_delete_delay_ms)
    assert len(due) == 9  # two segments of four files, and one snapshot
    for deletion in due * 2:  # a second removal does nothing
        deletion.perform(log._disk)
    assert not list((tmp_path / "orders-0").glob("*.deleted"))
    assert log.due_deletions(NOW_MS * 2) == []


def test_a_segment_rolls_by_the_timestamps_of_its_records(tmp_path):
    log = open_log(tmp_path / "orders-0", LogConfig(segment_ms=1000))
    for offset, timestamp in enumerate((0, 500, 1000, 1001, 1500)):
        log.append([batch(offset, timestamp=NOW_MS + timestamp)], NOW_MS)
    assert log.segments.base_offsets == [0, 3]
    log.close(clean=True)
    log = open_log(tmp_path / "orders-0", LogConfig(segment_ms=1000), clean_shutdown=True, recovery_point=5)
    log.append([batch(5, timestamp=NOW_MS + 2001)], NOW_MS)
    assert log.segments.base_offsets == [0, 3]
    log.append([batch(6, timestamp=NOW_MS + 2002)], NOW_MS)
    assert log.segments.base_offsets == [0, 3, 6]


def test_partitions_roll_at_different_times_with_jitter(tmp_path):
    rolled = set()
    for partition in range(8):
        log = open_log(tmp_path / f"orders-{partition}", LogConfig(segment_ms=10_000, segment_jitter_ms=9000))
        for offset in range(12):  # the jitter comes from the path, and may be 0: 11 s are more than any limit
            log.append([batch(offset, timestamp=NOW_MS + offset * 1000)], NOW_MS)
        rolled.add(log.segments.base_offsets[1])
        log.close(clean=False)
    assert len(rolled) > 2


def test_a_full_index_rolls_the_segment(tmp_path):
    log = open_log(tmp_path / "orders-0", LogConfig(index_interval_bytes=0, max_index_bytes=80))
    fill(log, 30)
    assert len(log.segments) > 2
    assert offsets_of(read_all(log)) == list(range(60))


def test_a_changed_configuration_takes_effect_at_once(tmp_path):
    log = open_log(tmp_path / "orders-0", LogConfig())
    fill(log, 20)
    assert len(log.segments) == 1
    log.config = replace(log.config, segment_bytes=500)
    fill(log, 1)
    assert len(log.segments) == 2


def test_a_deleted_log_is_renamed_as_in_kafka_and_removed_after_the_delay(tmp_path):
    log = open_log(tmp_path / "orders-0", SMALL)
    fill(log, 10)
    unique_id = uuid.UUID(int=0xABC)
    deletion = log.delete_log(unique_id, NOW_MS)
    assert [path.name for path in tmp_path.iterdir()] == [f"orders-0.{unique_id.hex}-delete"]
    assert deletion.due_ms == NOW_MS + SMALL.file_delete_delay_ms
    deletion.perform(log._disk)
    assert list(tmp_path.iterdir()) == []
    assert PARTITION.topic == "orders"


@pytest.mark.parametrize("timestamp", [0, NOW_MS - 3 * HOUR_MS])
def test_a_damaged_time_index_does_not_delete_a_recent_segment(tmp_path, caplog, timestamp):
    config = replace(SMALL, retention_ms=HOUR_MS)
    log = open_log(tmp_path / "orders-0", config)
    fill(log, 60)
    log.close(clean=True)
    indexes = sorted((tmp_path / "orders-0").glob("*.timeindex"))
    for path in indexes:
        path.write_bytes(timestamp.to_bytes(8) + (1).to_bytes(4))
    log = open_log(tmp_path / "orders-0", config, clean_shutdown=True, recovery_point=120)
    assert log.delete_old_segments(NOW_MS, 120) == []
    assert log.log_start_offset == 0
    assert f"rebuilding the indexes of {indexes[0].with_suffix('.log')}" in caplog.text
    assert len(log.delete_old_segments(NOW_MS + 2 * HOUR_MS, 120)) > 1
