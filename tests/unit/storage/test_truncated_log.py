"""A log that was truncated after a flush: a crash or a power loss neither damages it nor changes its epochs."""

from pathlib import Path

import pytest
from tests.unit.storage.log_builder import NOW_MS, PARTITION, SMALL, fill

from ottla.env.real_disk import RealDisk
from ottla.storage.log import Log
from ottla.storage.log_dirs import LogDirs


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
