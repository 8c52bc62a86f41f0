"""Builds batches and logs for the storage tests."""

from random import Random

from ottla.env.disk import Disk
from ottla.env.real_disk import RealDisk
from ottla.model.ids import TopicPartition
from ottla.records.control import build_control_batch
from ottla.records.header import BatchHeader, read_header
from ottla.records.markers import EndTransactionMarker
from ottla.records.records import Record, build_batch, read_batches
from ottla.sim.disk import SimDisk
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig

PARTITION = TopicPartition("orders", 0)
NOW_MS = 1_700_000_000_000
# Small enough that a handful of batches rolls segments and fills indexes.
SMALL = LogConfig(
    segment_bytes=2000, index_interval_bytes=100, max_index_bytes=240, file_delete_delay_ms=1000
)

AppendedBatch = tuple[BatchHeader, list[bytes]]


def batch(
    base_offset: int, count: int = 1, *, timestamp: int = NOW_MS, size: int = 20, **fields
) -> AppendedBatch:
    """A batch of `count` records, one millisecond apart, the first at `timestamp`."""
    fields.setdefault("leader_epoch", 0)
    records = [
        Record(base_offset + index, timestamp + index, None, b"%0*d" % (size, base_offset + index))
        for index in range(count)
    ]
    data = build_batch(records, **fields)
    return read_header(data), [data[:40], data[40:]]


def marker(offset: int, producer_id: int, *, commit: bool, timestamp: int = NOW_MS) -> AppendedBatch:
    data = build_control_batch(
        [EndTransactionMarker(commit, coordinator_epoch=3)],
        base_offset=offset,
        timestamp=timestamp,
        leader_epoch=0,
        producer_id=producer_id,
        producer_epoch=0,
    )
    return read_header(data), [data]


def open_log(directory, config: LogConfig = SMALL, *, disk: Disk | None = None, **fields) -> Log:
    fields.setdefault("clean_shutdown", False)
    fields.setdefault("now_ms", NOW_MS)
    return Log.open(disk or RealDisk(), str(directory), PARTITION, config, **fields)


def fill(log: Log, batches: int, *, count: int = 2, **fields) -> list[bytes]:
    """Appends batches one by one and returns the bytes of each."""
    written = []
    for _ in range(batches):
        header, parts = batch(log.log_end_offset, count, **fields)
        log.append([(header, parts)], NOW_MS)
        written.append(b"".join(parts))
    return written


def read_all(log: Log, offset: int | None = None, max_bytes: int = 700) -> bytes:
    """Reads everything from `offset` on, in slices of about `max_bytes`."""
    parts = []
    offset = log.log_start_offset if offset is None else offset
    while offset < log.log_end_offset:
        found = log.read(offset, max_bytes, end_offset=log.log_end_offset, at_least_one=True)
        data = found.region.read()
        if not data:
            break
        parts.append(data)
        offset = read_batches(data)[-1].header.next_offset
    return b"".join(parts)


def offsets_of(data: bytes) -> list[int]:
    return [record.offset for found in read_batches(data) for record in found.records]


def sim_disk(seed: int = 0) -> SimDisk:
    return SimDisk(Random(seed), lambda: NOW_MS)
