"""A move between data directories (KIP-113) together with truncations: the moved log has the records of the old one."""

import uuid

import pytest
from tests.unit.storage.log_builder import NOW_MS, PARTITION, fill, marker, offsets_of, read_all, sim_disk
from tests.unit.storage.log_builder import batch as new_batch

from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.log_dirs import LogDirs
from ottla.storage.replica_move import ReplicaMove

TOPIC_ID = uuid.UUID(int=1)
CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100, file_delete_delay_ms=0)


class Bench:
    """A log of 20 records in /one, which is moved to /two."""

    def __init__(self) -> None:
        self.dirs = LogDirs(sim_disk(), ["/one", "/two"])
        self.log = self.dirs.open(PARTITION, CONFIG, NOW_MS, topic_id=TOPIC_ID, in_directory="/one")
        fill(self.log, 10, leader_epoch=1)
        self.move: ReplicaMove = self.dirs.start_move(PARTITION, "/two", uuid.UUID(int=2))

    def copy_round(self) -> None:
        segments = self.move.seal(NOW_MS)
        truncations = self.log.truncations
        self.move.copy(segments)
        self.move.mark_copied(segments, truncations)

    def finish(self) -> Log | None:
        last, checkpoints = self.dirs.plan_last_copy(self.move, TOPIC_ID, NOW_MS)
        last.run(checkpoints)
        return self.dirs.finish_move(last, checkpoints, uuid.UUID(int=3), NOW_MS)

    def moved(self) -> Log:
        while (log := self.finish()) is None:
            pass
        return log


@pytest.mark.parametrize("offset", [0, 4, 5, 8, 12, 18, 20])
def test_a_truncation_after_a_copy_is_in_the_moved_log(offset: int) -> None:
    bench = Bench()
    bench.copy_round()
    bench.log.truncate_to(offset, NOW_MS)
    fill(bench.log, 3, leader_epoch=2, size=33)
    expected, epochs = read_all(bench.log), bench.log.epochs.entries()
    moved = bench.moved()
    assert moved.directory == f"/two/{PARTITION}"
    assert read_all(moved) == expected
    assert moved.epochs.entries() == epochs
    assert moved.truncations == bench.log.truncations


def test_a_copy_that_ran_during_a_truncation_does_not_count() -> None:
    bench = Bench()
    segments, truncations = bench.move.seal(NOW_MS), bench.log.truncations
    bench.move.copy(segments)
    bench.log.truncate_to(7, NOW_MS)
    assert not bench.move.mark_copied(segments, truncations)
    assert bench.move.bytes_copied == 0
    assert bench.move.bytes_left == bench.log.size_bytes
    fill(bench.log, 3, leader_epoch=2, size=33)
    expected = read_all(bench.log)
    assert read_all(bench.moved()) == expected


def test_a_truncation_during_the_last_copy_repeats_it() -> None:
    bench = Bench()
    fill(bench.log, 1)
    last, checkpoints = bench.dirs.plan_last_copy(bench.move, TOPIC_ID, NOW_MS)
    last.run(checkpoints)
    # The active segment stays the same, and only grows again.
    fill(bench.log, 1, leader_epoch=1)
    bench.log.truncate_to(bench.log.segments.active.base_offset, NOW_MS)
    assert bench.dirs.finish_move(last, checkpoints, uuid.UUID(int=3), NOW_MS) is None
    assert offsets_of(read_all(bench.moved())) == list(range(22))


def test_an_index_of_aborted_transactions_and_snapshots_do_not_survive_a_truncation() -> None:
    bench = Bench()
    log = bench.log
    end = log.log_end_offset
    log.append(
        [new_batch(end, 1, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)], NOW_MS
    )
    log.append([marker(end + 1, 7, commit=False)], NOW_MS)
    bench.copy_round()
    log.truncate_fully_and_start_at(log.segments.active.base_offset, NOW_MS)
    fill(log, 20)
    moved = bench.moved()
    assert moved.snapshots.offsets == log.snapshots.offsets
    assert moved.aborted_transactions(0, moved.log_end_offset) == []
