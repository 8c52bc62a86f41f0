"""A partition is deleted and created again under the same name: nothing of the old one affects the new one."""

import uuid
from collections.abc import Callable
from dataclasses import replace
from itertools import count

import pytest
from tests.unit.storage.log_builder import NOW_MS, SMALL, fill, offsets_of, read_all, sim_disk

from ottla.model.errors import KafkaError
from ottla.model.ids import TopicPartition
from ottla.sim.disk import SimDisk
from ottla.storage.checkpoints import encode_partition_metadata, read_offset_checkpoint
from ottla.storage.damaged_log import InconsistentTopicIdError
from ottla.storage.file_names import MOVED_FROM, PARTITION_METADATA
from ottla.storage.log_dir import (
    CHECKPOINTS,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    CheckpointWrite,
)
from ottla.storage.log_dirs import LogDirs
from ottla.storage.meta_properties import UnusableDirectoryError
from ottla.storage.replica_move import ReplicaMove, remove_moved_from

ORDERS = TopicPartition("orders", 0)
OTHER = TopicPartition("other", 0)
OLD_ID, NEW_ID, OTHER_ID = (uuid.UUID(int=number) for number in (1, 2, 3))
OLD_START, OLD_END = 50, 60
# With one segment, only the checkpoint has the log start offset.
CONFIG = replace(SMALL, segment_bytes=1_000_000)
unique = (uuid.UUID(int=number) for number in count(100))


def write(*checkpoints: list[CheckpointWrite]) -> None:
    for checkpoint in [checkpoint for found in checkpoints for checkpoint in found]:
        checkpoint.write()
        checkpoint.complete()


def all_checkpoints(dirs: LogDirs) -> list[CheckpointWrite]:
    return [
        *dirs.recovery_point_checkpoints(),
        *dirs.log_start_offset_checkpoints(),
        *dirs.high_watermark_checkpoints({partition: log.log_end_offset for partition, log in dirs.logs.items()}),
        *dirs.cleaner_offset_checkpoints(),
    ]  # fmt: skip


def used_partition(dirs: LogDirs) -> None:
    """A log of 60 records, the first 50 deleted and the first 40 compacted, with entries in every checkpoint."""
    log = dirs.open(ORDERS, CONFIG, NOW_MS, topic_id=OLD_ID)
    fill(log, OLD_END // 2, leader_epoch=7)
    log.delete_records_before(OLD_START)
    log.clean_up_to = 40
    log.flush()
    write(all_checkpoints(dirs))


def delete(dirs: LogDirs) -> None:
    dirs.delete(ORDERS, next(unique), NOW_MS)


def sync_deletions(dirs: LogDirs) -> None:
    for sync in dirs.deletion_syncs():
        sync.sync()
        sync.complete()


def create_again(dirs: LogDirs, batches: int = 40) -> None:
    """A log of 80 records, so that the old log start offset and recovery point are within it."""
    log = dirs.open(ORDERS, CONFIG, NOW_MS, topic_id=NEW_ID, is_new=True)
    fill(log, batches)
    log.flush()


def in_files(disk: SimDisk, partition: TopicPartition = ORDERS, path: str = "/data") -> set[str]:
    """The checkpoint files with an entry of the partition."""
    return {name for name in CHECKPOINTS if partition in read_offset_checkpoint(disk, f"{path}/{name}")}


def check_after(crash: Callable[[], None], disk: SimDisk, batches: int = 40) -> None:
    crash()
    dirs = LogDirs(disk.reopen(), ["/data"])
    log = dirs.open(ORDERS, CONFIG, NOW_MS, topic_id=NEW_ID)
    assert log.topic_id == NEW_ID
    assert offsets_of(read_all(log)) == list(range(2 * batches))
    assert (log.log_start_offset, log.clean_up_to) == (0, None)
    assert log.epochs.entries() == [(0, 0)]
    dirs.release()


@pytest.fixture
def disk() -> SimDisk:
    return sim_disk()


@pytest.fixture
def dirs(disk: SimDisk) -> LogDirs:
    found = LogDirs(disk, ["/data"])
    used_partition(found)
    assert in_files(disk) == set(CHECKPOINTS)
    return found


@pytest.mark.parametrize("is_synced", [True, False])
@pytest.mark.parametrize("is_power_loss", [True, False])
def test_the_new_log_is_complete_after_a_crash(dirs, disk, is_synced, is_power_loss):
    delete(dirs)
    if is_synced:
        sync_deletions(dirs)
    create_again(dirs)
    assert not in_files(disk), "before the first record could be acknowledged"
    check_after(disk.crash if is_power_loss else disk.kill, disk)


def test_no_checkpoint_has_an_entry_of_a_deleted_partition_after_the_deletion_sync(dirs, disk):
    delete(dirs)
    sync_deletions(dirs)
    assert not in_files(disk)
    assert not dirs.deletion_syncs()


@pytest.mark.parametrize("is_synced", [True, False])
def test_a_power_loss_at_any_disk_operation_leaves_the_old_log_or_the_new_one(is_synced):
    """If the next start finds the log of the new topic id, it has all flushed records from offset 0 on."""
    for operations in count():
        disk = sim_disk(operations)
        dirs = LogDirs(disk, ["/data"])
        used_partition(dirs)
        disk.crash_after(operations)
        is_acknowledged = False
        try:
            delete(dirs)
            if is_synced:
                sync_deletions(dirs)
            create_again(dirs)
            is_acknowledged = True
        except Exception:
            assert not disk.is_alive
        is_done = disk.is_alive
        disk.crash()
        found = LogDirs(disk.reopen(), ["/data"])
        try:
            log = found.open(ORDERS, CONFIG, NOW_MS, topic_id=NEW_ID)
        except InconsistentTopicIdError:
            assert not is_acknowledged
            assert found.open(ORDERS, CONFIG, NOW_MS, topic_id=OLD_ID).log_end_offset == OLD_END
        else:
            assert log.log_start_offset == 0, f"the power went at operation {operations}"
            expected = list(range(80)) if is_acknowledged else list(range(log.log_end_offset))
            assert offsets_of(read_all(log)) == expected
        if is_done:
            return


@pytest.mark.parametrize("when", ["before the sync", "after the sync", "after the creation"])
def test_a_checkpoint_planned_before_the_deletion_does_not_bring_the_entry_back(dirs, disk, when):
    fill(dirs.logs[ORDERS], 1)
    dirs.logs[ORDERS].flush()
    dirs.logs[ORDERS].clean_up_to = 42
    dirs.logs[ORDERS].delete_records_before(OLD_START + 2)
    planned = all_checkpoints(dirs)
    assert len(planned) == len(CHECKPOINTS)
    delete(dirs)
    if when == "before the sync":
        write(planned)
    sync_deletions(dirs)
    if when == "after the sync":
        write(planned)
    create_again(dirs)
    if when == "after the creation":
        write(planned)
    assert not in_files(disk)
    check_after(disk.kill, disk)


def test_a_checkpoint_that_is_being_written_counts_as_written(disk):
    """The only checkpoint with an entry of the partition is written by a thread after the deletion sync."""
    dirs = LogDirs(disk, ["/data"])
    log = dirs.open(ORDERS, CONFIG, NOW_MS, topic_id=OLD_ID)
    fill(log, OLD_END // 2)
    log.flush()
    log.delete_records_before(OLD_START)
    planned = all_checkpoints(dirs)
    delete(dirs)
    sync_deletions(dirs)
    create_again(dirs)
    write(planned)
    assert not in_files(disk)
    check_after(disk.kill, disk)


def test_a_late_checkpoint_completion_does_not_affect_the_next_log(dirs, disk):
    fill(dirs.logs[ORDERS], 1)
    dirs.logs[ORDERS].flush()
    (planned,) = dirs.recovery_point_checkpoints()
    planned.write()
    delete(dirs)
    sync_deletions(dirs)
    planned.complete()
    create_again(dirs)
    assert dirs.logs[ORDERS].log_start_offset == 0
    check_after(disk.kill, disk)


def test_a_deletion_keeps_the_checkpoint_entries_of_other_partitions(dirs, disk):
    log = dirs.open(OTHER, CONFIG, NOW_MS, topic_id=OTHER_ID)
    fill(log, 10)
    log.flush()
    log.delete_records_before(7)
    under_way = all_checkpoints(dirs)
    delete(dirs)
    write(under_way)
    sync_deletions(dirs)
    assert read_offset_checkpoint(disk, f"/data/{LOG_START_OFFSETS}") == {OTHER: 7}
    assert read_offset_checkpoint(disk, f"/data/{RECOVERY_POINTS}") == {OTHER: 19}


def test_a_hundred_deletions_rewrite_each_checkpoint_once(disk):
    dirs = LogDirs(disk, ["/data"])
    partitions = [TopicPartition("orders", index) for index in range(100)]
    for partition in partitions:
        log = dirs.open(partition, CONFIG, NOW_MS, topic_id=OLD_ID)
        fill(log, 3)
        log.delete_records_before(2)
        log.clean_up_to = 1
        log.flush()
    write(all_checkpoints(dirs))
    syncs = disk.stats.operations["sync_dir"]
    for partition in partitions:
        dirs.delete(partition, next(unique), NOW_MS)
    (sync,) = dirs.deletion_syncs()
    sync.sync()
    sync.complete()
    assert disk.stats.operations["sync_dir"] - syncs == len(CHECKPOINTS)


def test_the_first_deletion_sync_after_a_start_removes_entries_without_a_folder(dirs, disk):
    """After a crash between the rename of the folder and the writing of the checkpoints."""
    delete(dirs)
    disk.kill()
    disk = disk.reopen()
    dirs = LogDirs(disk, ["/data"])
    assert in_files(disk) == set(CHECKPOINTS)
    assert dirs.high_watermarks == {}
    sync_deletions(dirs)
    assert not in_files(disk)
    create_again(dirs)
    check_after(disk.kill, disk)


def test_a_flush_of_the_deleted_log_does_not_change_the_epochs_of_the_new_one(dirs, disk):
    old = dirs.logs[ORDERS]
    fill(old, 1, leader_epoch=9)
    late = old.prepare_flush()
    assert late is not None
    assert late.epochs
    delete(dirs)
    sync_deletions(dirs)
    create_again(dirs)
    dirs.logs[ORDERS].roll(NOW_MS)
    late.sync()
    old.complete_flush(late)
    check_after(disk.kill, disk)


# Two directories


def two_dirs(disk: SimDisk) -> LogDirs:
    dirs = LogDirs(disk, ["/data", "/data/two"])
    used_partition(dirs)
    assert dirs.directory_of(ORDERS) == "/data"
    return dirs


def move(dirs: LogDirs, path: str) -> None:
    finish_move(dirs, dirs.start_move(ORDERS, path, next(unique)))


def finish_move(dirs: LogDirs, started: ReplicaMove) -> None:
    last, checkpoints = dirs.plan_last_copy(started, OLD_ID, NOW_MS)
    last.run(checkpoints)
    log = dirs.finish_move(last, checkpoints, next(unique), NOW_MS)
    assert log is not None
    sync_deletions(dirs)
    remove_moved_from(log._disk, log.directory)


@pytest.mark.parametrize("is_synced", [True, False])
@pytest.mark.parametrize("path", ["/data", "/data/two"])
def test_a_move_leaves_no_checkpoint_entries_for_the_next_partition(disk, path, is_synced):
    dirs = two_dirs(disk)
    move(dirs, "/data/two")
    write(all_checkpoints(dirs))
    delete(dirs)
    if is_synced:
        sync_deletions(dirs)
        assert not in_files(disk)
        assert not in_files(disk, path="/data/two")
    log = dirs.open(ORDERS, CONFIG, NOW_MS, topic_id=NEW_ID, is_new=True, in_directory=path)
    fill(log, 40)
    log.flush()
    assert not in_files(disk, path=path)
    disk.crash()
    dirs = LogDirs(disk.reopen(), ["/data", "/data/two"])
    log = dirs.open(ORDERS, CONFIG, NOW_MS, topic_id=NEW_ID)
    assert offsets_of(read_all(log)) == list(range(80))


def test_a_partition_is_in_one_directory_after_a_power_loss_at_any_operation_of_a_move():
    for operations in count():
        disk = sim_disk(operations)
        dirs = two_dirs(disk)
        disk.crash_after(operations)
        try:
            move(dirs, "/data/two")
        except Exception:
            assert not disk.is_alive
        is_done = disk.is_alive
        disk.crash()
        dirs = LogDirs(disk.reopen(), ["/data", "/data/two"])
        log = dirs.open(ORDERS, CONFIG, NOW_MS)
        assert (log.log_start_offset, log.log_end_offset) == (OLD_START, OLD_END)
        if is_done:
            return


def test_records_that_are_flushed_right_after_a_move_survive_a_power_loss_at_any_operation():
    """The move has not synced the names of the folders yet."""
    for operations in count():
        disk = sim_disk(operations)
        dirs = two_dirs(disk)
        expected = OLD_END
        last, checkpoints = dirs.plan_last_copy(
            dirs.start_move(ORDERS, "/data/two", next(unique)), OLD_ID, NOW_MS
        )
        last.run(checkpoints)
        fill(dirs.logs[ORDERS], 10, leader_epoch=8)
        disk.crash_after(operations)
        try:
            log = dirs.finish_move(last, checkpoints, next(unique), NOW_MS)
            assert log is not None
            fill(log, 1, leader_epoch=8)
            assert (log.log_end_offset, log.recovery_point) == (OLD_END + 22, OLD_END)
            log.flush()
            expected = OLD_END + 22
            sync_deletions(dirs)
            remove_moved_from(log._disk, log.directory)
        except Exception:
            assert not disk.is_alive
        is_done = disk.is_alive
        disk.crash()
        dirs = LogDirs(disk.reopen(), ["/data", "/data/two"])
        log = dirs.open(ORDERS, CONFIG, NOW_MS)
        assert log.log_start_offset == OLD_START
        assert expected <= log.log_end_offset <= OLD_END + 22
        assert offsets_of(read_all(log)) == list(range(OLD_START, log.log_end_offset))
        if is_done:
            return


@pytest.mark.parametrize("change", ["roll", "delete_records", "flush", "checkpoint"])
def test_the_last_copy_of_a_move_is_repeated_after_a_change_that_it_does_not_have(disk, change):
    dirs = two_dirs(disk)
    started = dirs.start_move(ORDERS, "/data/two", next(unique))
    last, checkpoints = dirs.plan_last_copy(started, OLD_ID, NOW_MS)
    log = dirs.logs[ORDERS]
    other, late = TopicPartition("other", 0), []
    if change == "checkpoint":
        dirs.open(other, CONFIG, NOW_MS, topic_id=OTHER_ID, is_new=True, in_directory="/data/two")
        fill(dirs.logs[other], 1)
        dirs.logs[other].flush()
        late = dirs.recovery_point_checkpoints()
    last.run(checkpoints)
    fill(log, 1)
    if change == "roll":
        log.roll(NOW_MS)
    elif change == "delete_records":
        log.delete_records_before(OLD_START + 2)
    elif change == "flush":
        log.flush()
    else:
        write(late)
    assert dirs.finish_move(last, checkpoints, next(unique), NOW_MS) is None
    finish_move(dirs, started)
    expected = OLD_START + 2 if change == "delete_records" else OLD_START
    moved = dirs.logs[ORDERS]
    assert moved.directory == "/data/two/orders-0"
    assert offsets_of(read_all(moved)) == list(range(expected, OLD_END + 2))
    disk.crash()
    log = LogDirs(disk.reopen(), ["/data", "/data/two"]).open(ORDERS, CONFIG, NOW_MS)
    assert (log.log_start_offset, log.log_end_offset) == (expected, OLD_END + 2)


def test_a_partition_in_two_directories_is_an_error_unless_it_was_moved(disk):
    two_dirs(disk)
    disk.kill()
    disk = disk.reopen()
    disk.make_dirs("/data/two/orders-0")
    with pytest.raises(UnusableDirectoryError, match="orders-0 lies both in"):
        LogDirs(disk, ["/data", "/data/two"])


def test_a_power_loss_does_not_bring_a_deleted_folder_back_beside_the_new_one():
    for seed in range(20):
        disk = sim_disk(seed)
        dirs = two_dirs(disk)
        delete(dirs)
        log = dirs.open(ORDERS, CONFIG, NOW_MS, topic_id=NEW_ID, is_new=True, in_directory="/data/two")
        log.flush()
        disk.crash()
        assert LogDirs(disk.reopen(), ["/data", "/data/two"]).directory_of(ORDERS) == "/data/two"


def test_checkpoint_entries_of_an_unfinished_move_are_kept(disk):
    """After a power loss before the rename of the future folder, with the other directory offline at the next start."""
    dirs = two_dirs(disk)
    started = dirs.start_move(ORDERS, "/data/two", next(unique))
    future = started.future_directory
    finish_move(dirs, started)
    disk.kill()
    disk = disk.reopen()
    disk.rename("/data/two/orders-0", future)
    disk.fail("/data/.lock")
    dirs = LogDirs(disk, ["/data", "/data/two"])
    assert set(dirs.offline) == {"/data"}
    sync_deletions(dirs)
    write(all_checkpoints(dirs))
    assert in_files(disk, path="/data/two") >= {LOG_START_OFFSETS, RECOVERY_POINTS}
    disk.kill()
    dirs = LogDirs(disk.reopen(), ["/data", "/data/two"])
    assert dirs.open(ORDERS, CONFIG, NOW_MS).log_start_offset == OLD_START


def test_a_copy_keeps_its_checkpoint_entries_if_the_old_folder_cannot_be_renamed(disk):
    """The directory that the replica leaves fails, and is gone at the next start: the copy is the only one left."""
    dirs = two_dirs(disk)
    started = dirs.start_move(ORDERS, "/data/two", next(unique))
    last, checkpoints = dirs.plan_last_copy(started, OLD_ID, NOW_MS)
    last.run(checkpoints)
    disk.fail("/data/orders-0", operations=frozenset({"rename"}))
    with pytest.raises(KafkaError):
        dirs.finish_move(last, checkpoints, next(unique), NOW_MS)
    assert set(dirs.offline) == {"/data"}
    sync_deletions(dirs)
    write(all_checkpoints(dirs))
    disk.kill()
    dirs = LogDirs(disk.reopen(), ["/data/two"])
    assert dirs.open(ORDERS, CONFIG, NOW_MS).log_start_offset == OLD_START


def test_high_watermarks_come_from_the_directory_of_the_partition(disk):
    dirs = two_dirs(disk)
    move(dirs, "/data/two")
    write(dirs.high_watermark_checkpoints({ORDERS: 55}))
    disk.kill()
    disk = disk.reopen()
    disk.write_atomically(f"/data/{HIGH_WATERMARKS}", b"0\n1\norders 0 12\n")
    assert LogDirs(disk, ["/data/two", "/data"]).high_watermarks == {ORDERS: 55}


# The checkpoint of log start offsets


def test_the_checkpointed_log_start_offset_is_never_beyond_the_last_flush(disk):
    dirs = LogDirs(disk, ["/data"])
    log = dirs.open(ORDERS, CONFIG, NOW_MS)
    fill(log, 10)
    log.flush()
    fill(log, 10)
    log.delete_records_before(30)
    write(dirs.log_start_offset_checkpoints())
    assert read_offset_checkpoint(disk, f"/data/{LOG_START_OFFSETS}") == {ORDERS: 20}
    disk.crash()
    log = LogDirs(disk.reopen(), ["/data"]).open(ORDERS, CONFIG, NOW_MS)
    assert log.log_start_offset == 20
    assert log.log_end_offset >= 20


def test_cleaner_offsets_are_checkpointed_for_cleaned_logs_only(dirs, disk):
    dirs.logs[ORDERS].clean_up_to = None
    write(dirs.cleaner_offset_checkpoints())
    assert CLEANER_OFFSETS not in in_files(disk)


def test_the_mark_of_an_old_move_does_not_delete_the_folder_of_a_new_topic(disk):
    """The moved folder was offline while its topic was deleted and created again where it was moved from."""
    dirs = two_dirs(disk)
    dirs.release()
    disk.rename("/data/orders-0", "/data/two/orders-0")
    disk.write_atomically(f"/data/two/orders-0/{MOVED_FROM}", b"/data")
    dirs = LogDirs(disk, ["/data"])
    create_again(dirs)
    dirs.release()
    dirs = LogDirs(disk, ["/data", "/data/two"])
    dirs.mark_duplicates(lambda partition: NEW_ID, lambda: next(unique))
    log = dirs.open(ORDERS, CONFIG, NOW_MS, topic_id=NEW_ID)
    assert offsets_of(read_all(log)) == list(range(80))
    (stray,) = [name for name in disk.list_dir("/data/two") if name.endswith("-stray")]
    assert disk.exists(f"/data/two/{stray}/{0:020d}.log")


def test_a_copy_is_kept_if_the_folder_in_its_name_is_of_another_topic(disk):
    """A directory with the folder of a deleted topic comes back. The unfinished copy of the new topic's replica may be
    the only one.
    """
    for path, topic_id in (
        ("/data/orders-0", OLD_ID),
        (f"/data/two/orders-0.{uuid.UUID(int=9).hex}-future", NEW_ID),
    ):
        disk.make_dirs(path)
        disk.write_atomically(f"{path}/{PARTITION_METADATA}", encode_partition_metadata(topic_id))
    dirs = LogDirs(disk, ["/data", "/data/two"])
    assert dirs.partitions == [ORDERS]
    assert not dirs.due_deletions(NOW_MS)
    assert disk.exists(f"/data/two/orders-0.{uuid.UUID(int=9).hex}-future")
