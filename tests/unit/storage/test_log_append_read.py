import errno

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
    sim_disk,
)

from ottla.model.errors import ErrorCode, KafkaError
from ottla.records.records import read_batches
from ottla.storage.log_config import LogConfig


def test_appended_batches_are_read_back_unchanged_across_segments(tmp_path):
    log = open_log(tmp_path / "orders-0")
    written = fill(log, 60)
    assert len(log.segments) > 3
    assert read_all(log) == b"".join(written)
    assert log.log_end_offset == 120
    assert log.size_bytes == sum(map(len, written))


def test_a_read_begins_with_the_batch_that_has_the_offset(tmp_path):
    log = open_log(tmp_path / "orders-0")
    fill(log, 40, count=5)
    for offset in range(200):
        log.segments.clear_cache()
        found = log.read(offset, 10_000, end_offset=200, at_least_one=True)
        assert offsets_of(found.region.read())[0] == offset - offset % 5


def test_a_read_ends_at_a_batch_boundary_within_the_limit(tmp_path):
    log = open_log(tmp_path / "orders-0", LogConfig(index_interval_bytes=300))
    fill(log, 100)
    for max_bytes in range(150, 2000, 37):
        found = log.read(0, max_bytes, end_offset=200, at_least_one=True)
        data = found.region.read()
        assert 0 < len(data) <= max_bytes
        assert read_batches(data)[-1].header.next_offset == found.end_offset


def test_sequential_reads_do_not_need_the_index(tmp_path):
    log = open_log(tmp_path / "orders-0", LogConfig(index_interval_bytes=300))
    fill(log, 100)
    offset = log.read(0, 1000, end_offset=200, at_least_one=True).end_offset
    log.segments.active._offset_index = None  # type: ignore[assignment]  # a use of the index would fail
    found = log.read(offset, 1 << 20, end_offset=200, at_least_one=True)
    assert offsets_of(found.region.read())[0] == offset


def test_the_first_batch_is_returned_whole_or_not_at_all(tmp_path):
    log = open_log(tmp_path / "orders-0", LogConfig())
    fill(log, 3, size=500)
    whole = log.read(0, 10, end_offset=6, at_least_one=True)
    assert offsets_of(whole.region.read()) == [0, 1]
    assert whole.end_offset == 2
    assert log.read(0, 10, end_offset=6, at_least_one=False).region.length == 0


@pytest.mark.parametrize("end_offset", [0, 2, 4, 100, 118])
def test_a_read_returns_nothing_at_or_above_the_end_offset(tmp_path, end_offset):
    log = open_log(tmp_path / "orders-0")
    fill(log, 60)
    for remembered in (True, False):
        if not remembered:
            log.segments.clear_cache()
        seen, offset = [], 0
        while (
            data := log.read(offset, 900, end_offset=end_offset, at_least_one=True).region.read()
        ) and offset < end_offset:
            seen += offsets_of(data)
            offset = seen[-1] + 1
        assert seen == list(range(end_offset))


def test_a_read_at_the_log_end_is_empty_and_one_outside_the_log_is_an_error(tmp_path):
    log = open_log(tmp_path / "orders-0")
    fill(log, 5)
    log.delete_records_before(3)
    assert log.read(10, 100, end_offset=10, at_least_one=True).region.read() == b""
    assert log.read(8, 100, end_offset=6, at_least_one=True).region.read() == b""
    for offset in (2, 11, -1):
        with pytest.raises(KafkaError, match=f"orders-0 has offsets 3 to 10, not {offset}") as raised:
            log.read(offset, 100, end_offset=10, at_least_one=True)
        assert raised.value.code is ErrorCode.offset_out_of_range


def test_offsets_that_compaction_removed_are_skipped(tmp_path):
    log = open_log(tmp_path / "orders-0")
    for base_offset in (0, 10, 40, 1000):
        log.append([batch(base_offset, 2)], NOW_MS)
    log.roll(NOW_MS)
    log.append([batch(5000)], NOW_MS)
    for offset, expected in ((2, 10), (12, 40), (999, 1000), (1002, 5000), (4999, 5000)):
        found = log.read(offset, 100, end_offset=log.log_end_offset, at_least_one=True)
        assert offsets_of(found.region.read())[0] == expected


def test_an_append_beyond_the_relative_offsets_of_an_index_rolls_the_segment(tmp_path):
    log = open_log(tmp_path / "orders-0")
    log.append([batch(0)], NOW_MS)
    log.append([batch(2**31)], NOW_MS)
    assert [segment.base_offset for segment in log.segments] == [0, 2**31]
    assert offsets_of(read_all(log)) == [0, 2**31]


def test_several_batches_are_written_in_one_call():
    disk = sim_disk()
    log = open_log("/data/orders-0", LogConfig(max_index_bytes=240), disk=disk)
    before = disk.stats.operations.get("write", 0)
    log.append([batch(0, 3), batch(3, 2), batch(5)], NOW_MS)
    assert disk.stats.operations["write"] == before + 1
    assert offsets_of(read_all(log)) == list(range(6))


def test_a_batch_below_the_log_end_cannot_be_appended(tmp_path):
    log = open_log(tmp_path / "orders-0")
    fill(log, 2)
    with pytest.raises(ValueError, match="orders-0 ends at offset 4"):
        log.append([batch(3)], NOW_MS)


def test_every_change_of_the_log_moves_the_offsets_that_its_leader_reads(tmp_path):
    log = open_log(tmp_path / "orders-0")
    offsets = log.offsets
    fill(log, 40)
    assert (offsets.start, offsets.end) == (0, 80)
    log.delete_records_before(9)
    assert (offsets.start, offsets.end) == (9, 80)
    log.truncate_to(51, NOW_MS)
    assert (offsets.start, offsets.end) == (9, 51)
    log.truncate_to(5, NOW_MS)
    assert (offsets.start, offsets.end) == (5, 5)
    log.truncate_fully_and_start_at(100, NOW_MS)
    assert (offsets.start, offsets.end) == (100, 100)
    assert (log.log_start_offset, log.log_end_offset) == (100, 100)


def test_batches_larger_than_a_segment_are_rejected(tmp_path):
    log = open_log(tmp_path / "orders-0")
    with pytest.raises(KafkaError, match=r"segment\.bytes is 2000") as raised:
        log.append([batch(0, size=3000)], NOW_MS)
    assert raised.value.code is ErrorCode.record_list_too_large
    assert log.log_end_offset == 0


def test_a_failed_write_leaves_the_log_as_it_was_and_the_next_one_succeeds():
    disk = sim_disk()
    log = open_log("/data/orders-0", disk=disk)
    written = fill(log, 3)
    disk.fail("/data", errno.ENOSPC, operations=frozenset({"write"}), times=1)
    with pytest.raises(OSError, match="No space left"):
        fill(log, 1)
    assert log.log_end_offset == 6
    written += fill(log, 2)
    assert read_all(log) == b"".join(written)


def test_a_clean_close_removes_the_torn_bytes_of_a_failed_write():
    disk = sim_disk()
    log = open_log("/data/orders-0", disk=disk)
    written = fill(log, 3)
    file = log.segments.active.file
    size = log.segments.active.size

    def torn_write(position, buffers):
        del file.write_at
        file.write_at(position, [b"".join(buffers)[:50]])
        disk.fail("/data", errno.EIO, operations=frozenset({"truncate"}), times=1)
        raise OSError(errno.EIO, "torn")

    file.write_at = torn_write  # type: ignore[method-assign]
    with pytest.raises(OSError, match="torn"):
        fill(log, 1)
    assert disk.file_size(log.segments.active.path) == size + 50
    log.close(clean=True)
    reopened = open_log("/data/orders-0", disk=disk, clean_shutdown=True, recovery_point=log.recovery_point)
    assert reopened.segments.active.size == size
    assert read_all(reopened) == b"".join(written)


def test_an_index_without_disk_space_fails_the_append_before_anything_is_written():
    disk = sim_disk()
    log = open_log("/data/orders-0", disk=disk)
    fill(log, 2)
    disk.fail("/data", errno.ENOSPC, operations=frozenset({"reserve"}), times=1)
    with pytest.raises(OSError, match="No space left"):
        fill(log, 1)
    assert log.log_end_offset == 4
    fill(log, 1)
    assert offsets_of(read_all(log)) == list(range(6))


def test_a_region_can_be_read_after_its_segment_is_deleted(tmp_path):
    log = open_log(tmp_path / "orders-0")
    written = fill(log, 40)
    region = log.read(0, 100, end_offset=80, at_least_one=True).region
    log.delete_records_before(70)
    assert log.delete_old_segments(NOW_MS, 80)
    for deletion in log.due_deletions(NOW_MS + SMALL.file_delete_delay_ms):
        deletion.perform(log._disk)
    log.close(clean=True)
    assert region.read() == written[0]


def test_an_idle_log_has_no_open_file_after_a_clean_start():
    disk = sim_disk()
    log = open_log("/data/orders-0", disk=disk)
    fill(log, 40)
    log.close(clean=True)
    disk.stats.operations.clear()
    log = open_log("/data/orders-0", disk=disk, clean_shutdown=True, recovery_point=log.recovery_point)
    assert log.log_end_offset == 80
    assert "open" not in disk.stats.operations
    assert "map" not in disk.stats.operations
    assert log.topic_partition == PARTITION


@pytest.mark.parametrize("offset", [3, 100])
def test_a_full_truncation_that_cannot_create_its_segment_leaves_the_log_as_it_was(offset):
    disk = sim_disk()
    log = open_log("/data/orders-0", disk=disk, log_start_offset=10)
    fill(log, 40)
    expected = read_all(log)
    disk.fail(f"/data/orders-0/{offset:020}.timeindex", errno.EMFILE)
    with pytest.raises(OSError, match="Too many open files"):
        log.truncate_fully_and_start_at(offset, NOW_MS)
    assert read_all(log) == expected
    fill(log, 1)
    disk.heal()
    log.truncate_fully_and_start_at(offset, NOW_MS)
    assert (log.log_start_offset, log.log_end_offset, len(log.segments)) == (offset, offset, 1)


def test_a_crash_in_a_full_truncation_leaves_no_gap():
    disk = sim_disk()
    log = open_log("/data/orders-0", disk=disk)
    fill(log, 40)
    log.flush()
    disk.fail("/data/orders-0/00000000000000000000.log")
    with pytest.raises(OSError, match="Input/output error"):
        log.truncate_fully_and_start_at(100, NOW_MS)
    disk.heal()
    disk.kill()
    log = open_log("/data/orders-0", disk=disk.reopen(), recovery_point=log.recovery_point)
    assert (log.log_start_offset, log.log_end_offset) == (0, 80)


def test_a_log_can_start_again_at_the_offset_of_one_of_its_segments(tmp_path):
    log = open_log(tmp_path / "orders-0")
    fill(log, 40)
    offset = log.segments.base_offsets[1]
    log.truncate_fully_and_start_at(offset, NOW_MS)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (offset, offset, 0)
    written = fill(log, 40)
    log.close(clean=True)
    log = open_log(tmp_path / "orders-0", clean_shutdown=True, recovery_point=log.recovery_point)
    assert read_all(log) == b"".join(written)
