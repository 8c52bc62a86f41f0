"""A power loss or a kill at every single step of a cleaning: after a restart the log is complete."""

import errno
from itertools import count
from random import Random

import pytest
from tests.unit.storage.cleaner_bench import COMPACTED, clean, job_for
from tests.unit.storage.log_builder import NOW_MS, PARTITION, read_all

from ottla.records.header import read_header
from ottla.records.records import Record, build_batch, read_batches
from ottla.sim.disk import SimDisk
from ottla.storage.cleaner.cleanable_log import measure_log
from ottla.storage.cleaner.job import CleanedGroup
from ottla.storage.cleaner.rewrite import clean_log
from ottla.storage.cleaner.swap import SegmentSwap
from ottla.storage.file_names import parse_segment_file
from ottla.storage.log import Log

pytestmark = pytest.mark.slow  # each test cleans the log once for each step

DIRECTORY = "/data/orders-0"
KEYS = 6
RECORDS = 40
# A deleted key. One cleaning removes its old value and its tombstone; the old value must not come back alone.
DELETED = b"deleted"


def written(disk: SimDisk) -> Log:
    """A log of four segments, which a cleaning merges into one."""
    log = Log.open(disk, DIRECTORY, PARTITION, COMPACTED, clean_shutdown=False, now_ms=NOW_MS)
    put(log, DELETED, b"old")
    for number in range(RECORDS):
        put(log, b"k%d" % (number % KEYS), b"%d" % number)
        if number == 1:
            put(log, DELETED, None)
        if number % 10 == 9:
            log.roll(NOW_MS)
    # This cleaning gives the tombstone a delete horizon, which has passed when the interrupted cleaning runs.
    assert clean(log, disk, NOW_MS) is not None
    put(log, b"k0", b"last")
    log.roll(NOW_MS)
    log.flush()
    return log


def put(log: Log, key: bytes, value: bytes | None) -> None:
    data = build_batch([Record(log.log_end_offset, NOW_MS, key, value)], leader_epoch=0)
    log.append([(read_header(data), [data])], NOW_MS)


def view(log: Log) -> dict[bytes | None, bytes | None]:
    found = [record for batch in read_batches(read_all(log, max_bytes=1 << 20)) for record in batch.records]
    assert [record.offset for record in found] == sorted({record.offset for record in found})
    state = {record.key: record.value for record in found}
    return {key: value for key, value in state.items() if value is not None}


def expected() -> dict[bytes | None, bytes | None]:
    state: dict[bytes | None, bytes | None] = {b"k%d" % (n % KEYS): b"%d" % n for n in range(RECORDS)}
    return {**state, b"k0": b"last"}


def interrupt(operation: int, seed: int, *, power_loss: bool) -> bool:
    """Returns whether the cleaning still ran at that disk operation."""
    disk = SimDisk(Random(seed), lambda: NOW_MS)
    log = written(disk)
    recovery_point, clean_up_to = log.recovery_checkpoint, log.clean_up_to
    disk.crash_after(operation)
    if not power_loss:
        disk.crash = disk.kill  # type: ignore[method-assign]
    is_interrupted = False
    try:
        clean(log, disk, NOW_MS + 5000)
    except OSError:
        is_interrupted = True
    disk.crash()
    disk = disk.reopen()
    log = Log.open(
        disk,
        DIRECTORY,
        PARTITION,
        COMPACTED,
        clean_shutdown=False,
        now_ms=NOW_MS,
        recovery_point=recovery_point,
    )
    assert view(log) == expected()
    unexpected = [
        name for name in disk.list_dir(DIRECTORY)
        if parse_segment_file(name) is None and not name.startswith("leader-epoch")
    ]  # fmt: skip
    assert unexpected == []
    # The next cleaning works, too.
    log.clean_up_to = clean_up_to
    put(log, b"k1", b"after")
    log.roll(NOW_MS)
    clean(log, disk, NOW_MS + 6000)
    assert view(log) == {**expected(), b"k1": b"after"}
    return is_interrupted


@pytest.mark.parametrize("seed", range(4))
def test_a_power_loss_at_any_step_loses_nothing(seed: int) -> None:
    steps = next(at for at in count() if not interrupt(at, seed * 1000 + at, power_loss=True))
    assert steps > 30


def test_a_kill_at_any_step_loses_nothing() -> None:
    steps = next(at for at in count() if not interrupt(at, at, power_loss=False))
    assert steps > 30


def test_an_aborted_swap_does_not_change_the_log() -> None:
    disk = SimDisk(Random(1), lambda: NOW_MS)
    log = written(disk)
    before = view(log)
    groups = list(
        clean_log(job_for(log, measure_log(log, log.log_end_offset, NOW_MS), NOW_MS), disk, lambda n: None)
    )
    group = groups[0]
    assert isinstance(group, CleanedGroup)
    swap = SegmentSwap(disk, log, group.base_offset, list(log.segments)[:-1], group.size)
    swap.prepare()
    swap.abort()
    assert [name for name in disk.list_dir(DIRECTORY) if name.endswith((".swap", ".cleaned"))] == []
    assert view(log) == before


@pytest.mark.parametrize("seed", range(2))
def test_the_swap_works_on_a_disk_without_hard_links(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(disk: SimDisk, source: str, target: str) -> None:
        raise OSError(errno.EPERM, "no hard links", target)

    monkeypatch.setattr(SimDisk, "link", fail)
    steps = next(at for at in count() if not interrupt(at, seed * 1000 + at, power_loss=True))
    assert steps > 30
