"""With `preallocate`, a new segment has its full length at once, and its real size after it is sealed."""

import errno
from dataclasses import replace

import pytest
from tests.unit.storage.log_builder import NOW_MS, SMALL, batch, fill, marker, open_log, read_all, sim_disk

from ottla.storage.dump import dump_file

PREALLOCATED = replace(SMALL, preallocate=True)


def sizes(disk, directory="/data/orders-0"):
    return {
        name: disk.file_size(f"{directory}/{name}")
        for name in disk.list_dir(directory)
        if name.endswith(".log")
    }


def test_the_active_segment_has_its_full_length_and_a_sealed_one_its_real_size():
    disk = sim_disk()
    log = open_log("/data/orders-0", PREALLOCATED, disk=disk)
    written = b"".join(fill(log, 40))
    *sealed, active = sizes(disk).values()
    assert len(sealed) > 1
    assert active == PREALLOCATED.segment_bytes
    assert sum(sealed) + log.segments.active.size == len(written)
    assert read_all(log) == written


def test_a_clean_shutdown_truncates_the_file():
    disk = sim_disk()
    log = open_log("/data/orders-0", PREALLOCATED, disk=disk)
    written = fill(log, 20)
    log.close(clean=True)
    assert sum(sizes(disk).values()) == sum(map(len, written))
    log = open_log("/data/orders-0", PREALLOCATED, disk=disk, clean_shutdown=True, recovery_point=40)
    assert log.log_end_offset == 40
    written += fill(log, 20)
    assert read_all(log) == b"".join(written)


def test_recovery_after_a_kill_truncates_the_preallocated_zeros():
    disk = sim_disk()
    log = open_log("/data/orders-0", PREALLOCATED, disk=disk)
    written = fill(log, 20)
    disk.kill()
    disk = disk.reopen()
    log = open_log("/data/orders-0", PREALLOCATED, disk=disk)
    assert log.log_end_offset == 40
    assert sum(sizes(disk).values()) == sum(map(len, written))
    written += fill(log, 20)
    assert read_all(log) == b"".join(written)


@pytest.mark.parametrize("seed", range(60))
def test_flushed_records_survive_a_power_loss(seed):
    disk = sim_disk(seed)
    log = open_log("/data/orders-0", PREALLOCATED, disk=disk)
    written = fill(log, 5 + seed % 30)
    log.flush()
    flushed = log.log_end_offset
    written += fill(log, seed % 13)
    disk.crash()
    log = open_log("/data/orders-0", PREALLOCATED, disk=disk.reopen(), recovery_point=flushed - 1)
    assert log.log_end_offset >= flushed
    assert b"".join(written).startswith(read_all(log))


def test_preallocated_zeros_of_a_sealed_segment_do_not_remove_later_segments():
    disk = sim_disk()
    log = open_log("/data/orders-0", PREALLOCATED, disk=disk)
    written = fill(log, 20)
    first = f"/data/orders-0/{min(sizes(disk))}"
    disk.kill()
    disk = disk.reopen()
    disk.open(first).truncate(PREALLOCATED.segment_bytes)  # as if the truncation of the roll was lost
    log = open_log("/data/orders-0", PREALLOCATED, disk=disk)
    assert log.log_end_offset == 40
    assert read_all(log) == b"".join(written)


def test_a_dump_reports_preallocated_space_and_no_damage():
    disk = sim_disk()
    log = open_log("/data/orders-0", PREALLOCATED, disk=disk)
    fill(log, 2)
    kinds = [entry["kind"] for entry in dump_file(disk, log.segments.active.path)]
    assert kinds == ["batch", "batch", "unused"]


def test_an_aborted_transaction_is_indexed_later_if_no_file_can_be_opened():
    disk = sim_disk()
    log = open_log("/data/orders-0", disk=disk)
    fill(log, 1, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    disk.fail("/data/orders-0", errno.EMFILE, operations=frozenset({"open"}))
    log.append([marker(log.log_end_offset, 7, commit=False)], NOW_MS)
    assert log.aborted_transactions(0, 10) == [(7, 0)]
    disk.heal()
    log.close(clean=True)
    log = open_log("/data/orders-0", disk=disk, clean_shutdown=True, recovery_point=log.log_end_offset)
    assert log.aborted_transactions(0, 10) == [(7, 0)]
    log.append([batch(log.log_end_offset)], NOW_MS)
