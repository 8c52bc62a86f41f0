"""A log that was truncated after a flush: a crash or a power loss neither damages it nor changes its epochs."""

import errno
from pathlib import Path

import pytest
from tests.unit.storage.log_builder import NOW_MS, PARTITION, SMALL, fill, offsets_of, open_log, read_all

from ottla.env.real_disk import RealDisk
from ottla.storage.log import Log
from ottla.storage.log_dirs import LogDirs
from ottla.storage.truncation import prepare_read


def open_dirs(path: Path) -> tuple[LogDirs, Log]:
    dirs = LogDirs(RealDisk(), [str(path)])
    return dirs, dirs.open(PARTITION, SMALL, NOW_MS)


def truncated_after_a_flush(path: Path) -> tuple[LogDirs, Log]:
    """The recovery point on disk was beyond offset 10, to which the log is truncated."""
    dirs, log = open_dirs(path)
    fill(log, 50, leader_epoch=1)
    log.flush()
    for checkpoint in dirs.recovery_point_checkpoints():
        checkpoint.write()
        checkpoint.complete()
    while (lowered := dirs.plan_truncation(PARTITION, 10)) is not None:
        lowered.write()
        lowered.complete()
    log.truncate_to(10, NOW_MS)
    return dirs, log


@pytest.mark.parametrize("batches", [1, 5, 40, 60])
def test_the_epochs_are_right_after_a_crash(tmp_path: Path, batches: int) -> None:
    dirs, log = truncated_after_a_flush(tmp_path)
    fill(log, batches, leader_epoch=2)
    expected = log.epochs.entries(), log.log_end_offset
    assert expected[0] == [(1, 0), (2, 10)]
    dirs.release()
    _, loaded = open_dirs(tmp_path)
    assert (loaded.epochs.entries(), loaded.log_end_offset) == expected


def test_a_torn_batch_after_the_truncation_is_no_damage(tmp_path: Path) -> None:
    dirs, log = truncated_after_a_flush(tmp_path)
    fill(log, 5, leader_epoch=2)
    active = log.segments.active
    active.file.truncate(active.size - 10)
    dirs.release()
    _, loaded = open_dirs(tmp_path)
    assert loaded.log_end_offset == 18


def test_a_truncation_without_file_descriptors_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    disk = RealDisk()
    log = Log.open(disk, str(tmp_path / "p-0"), PARTITION, SMALL, clean_shutdown=False, now_ms=NOW_MS)
    fill(log, 50, leader_epoch=1)
    before = len(log.segments), log.log_end_offset
    offset = log.segments.base_offsets[1] + 1
    remaining = prepare_read(log, offset)()
    log.segments.from_offset(offset)[
        0
    ].txn_index._entries = None  # as if it had not been read since the start

    def no_descriptor(path: str) -> bytes:
        raise OSError(errno.EMFILE, "Too many open files", path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk, "read_bytes", no_descriptor)
        with pytest.raises(OSError, match="Too many open files"):
            log.truncate_to(offset, NOW_MS, remaining)
    assert (len(log.segments), log.log_end_offset) == before
    found = log.read(log.log_end_offset - 1, 1 << 20, end_offset=log.log_end_offset, at_least_one=True)
    assert found.region.length > 0
    assert log.truncate_to(offset, NOW_MS, remaining)
    assert log.log_end_offset == offset


def test_a_power_loss_after_a_new_start_inside_the_log_brings_the_old_log_back(tmp_path: Path) -> None:
    """The deletion of the old segment was not on disk. Its records must not lie under the new segment."""
    log = open_log(tmp_path)
    fill(log, 3)
    old_segment = tmp_path / f"{0:020d}.log"
    records = old_segment.read_bytes()
    log.truncate_fully_and_start_at(1, NOW_MS)
    fill(log, 1)
    log.close(clean=False)
    old_segment.write_bytes(records)
    (tmp_path / f"{1:020d}.unflushed").touch()  # it was removed after the old segment
    recovered = open_log(tmp_path)
    assert (recovered.segments.base_offsets, recovered.log_end_offset) == ([0], 6)
    fill(recovered, 1)
    assert offsets_of(read_all(recovered)) == list(range(8))
