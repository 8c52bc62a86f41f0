import errno

import pytest
from tests.unit.storage.log_builder import NOW_MS, SMALL, batch, fill, open_log, read_all, sim_disk

from ottla.env.real_disk import RealDisk
from ottla.storage.checkpoints import read_epoch_checkpoint


def test_a_completed_flush_moves_the_recovery_point(tmp_path):
    log = open_log(tmp_path / "orders-0")
    fill(log, 10)
    assert (log.recovery_point, log.unflushed_messages) == (0, 20)
    work = log.prepare_flush()
    assert work is not None
    fill(log, 5)
    work.sync()
    assert log.recovery_point == 0
    log.complete_flush(work)
    assert (log.recovery_point, log.unflushed_messages) == (20, 10)


def test_a_flushed_log_needs_no_flush(tmp_path):
    log = open_log(tmp_path / "orders-0")
    fill(log, 10)
    log.flush()
    assert log.prepare_flush() is None
    fill(log, 1)
    assert log.prepare_flush(up_to=20) is None
    assert log.prepare_flush() is not None


def test_a_flush_up_to_the_active_segment_does_not_sync_it():
    disk = sim_disk()
    log = open_log("/data/orders-0", disk=disk)
    fill(log, 40)
    active = log.segments.active
    work = log.prepare_flush(up_to=active.base_offset)
    assert work is not None
    assert work.files == ()
    assert active.path not in work.paths
    work.sync()
    log.complete_flush(work)
    assert log.recovery_point == active.base_offset


def test_a_truncation_invalidates_a_flush_in_progress(tmp_path):
    log = open_log(tmp_path / "orders-0")
    fill(log, 10)
    work = log.prepare_flush()
    assert work is not None
    log.truncate_to(8, NOW_MS)
    log.append([batch(8, 20)], NOW_MS)
    work.sync()
    log.complete_flush(work)
    assert log.recovery_point == 0


def test_epochs_of_a_flush_that_a_truncation_overtakes_are_replaced(tmp_path):
    directory = tmp_path / "orders-0"
    log = open_log(directory)
    fill(log, 5, leader_epoch=1)
    log.flush()
    fill(log, 5, leader_epoch=2)
    work = log.prepare_flush()
    assert work is not None
    log.truncate_to(10, NOW_MS)
    work.sync()
    log.complete_flush(work)
    fill(log, 5, leader_epoch=1)
    log.close(clean=True)
    reopened = open_log(directory, clean_shutdown=True, recovery_point=20)
    assert reopened.epochs.entries() == log.epochs.entries() == [(1, 0)]


@pytest.mark.parametrize("fails", [True, False])
def test_epochs_of_a_flush_that_never_completes_are_replaced(tmp_path, fails):
    directory = tmp_path / "orders-0"
    log = open_log(directory)
    fill(log, 5, leader_epoch=1)
    log.flush()
    fill(log, 5, leader_epoch=2)
    work = log.prepare_flush()
    assert work is not None
    if not fails:
        work.sync()  # but its task was cancelled
    log.truncate_to(10, NOW_MS)
    fill(log, 1, leader_epoch=1)
    log.flush()
    assert read_epoch_checkpoint(RealDisk(), f"{directory}/leader-epoch-checkpoint") == [(1, 0)]
    assert log.prepare_flush() is None


def test_an_older_flush_does_not_overwrite_the_epochs_of_a_newer_one(tmp_path):
    directory = tmp_path / "orders-0"
    log = open_log(directory)
    fill(log, 5, leader_epoch=1)
    older = log.prepare_flush()
    fill(log, 5, leader_epoch=2)
    newer = log.prepare_flush()
    assert older is not None
    assert newer is not None
    newer.sync()
    older.sync()
    log.complete_flush(newer)
    log.complete_flush(older)
    assert read_epoch_checkpoint(RealDisk(), f"{directory}/leader-epoch-checkpoint") == [(1, 0), (2, 10)]
    assert log.recovery_point == 20
    assert log.prepare_flush() is None


@pytest.mark.parametrize("seed", range(5))
def test_a_truncation_to_an_empty_segment_survives_a_power_loss_after_a_clean_close(seed):
    disk = sim_disk(seed)
    log = open_log("/data/orders-0", disk=disk)
    fill(log, 1, count=3)
    log.flush()
    log.truncate_to(2, NOW_MS)
    log.close(clean=True)
    assert log.recovery_point == 2
    disk.crash()
    log = open_log("/data/orders-0", disk=disk.reopen(), recovery_point=2)
    assert read_all(log) == b""


def test_segments_may_be_deleted_during_a_flush(tmp_path):
    log = open_log(tmp_path / "orders-0")
    fill(log, 60)
    work = log.prepare_flush()
    assert work is not None
    log.delete_records_before(100)
    log.delete_old_segments(NOW_MS, 120)
    for deletion in log.due_deletions(NOW_MS + SMALL.file_delete_delay_ms):
        deletion.perform(log._disk)
    work.sync()
    log.complete_flush(work)
    assert log.recovery_point == 120


def test_a_failed_sync_is_an_error_and_does_not_move_the_recovery_point():
    disk = sim_disk()
    log = open_log("/data/orders-0", disk=disk)
    fill(log, 3)
    disk.fail("/data", errno.EIO, operations=frozenset({"sync"}))
    with pytest.raises(OSError):
        log.flush()
    assert log.recovery_point == 0


def test_a_flush_after_each_message_needs_one_sync():
    disk = sim_disk()
    log = open_log("/data/orders-0", disk=disk)
    fill(log, 1)
    log.flush()
    before = disk.stats.operations["sync"]
    for _ in range(5):
        fill(log, 1)
        log.flush()
    assert disk.stats.operations["sync"] == before + 5
