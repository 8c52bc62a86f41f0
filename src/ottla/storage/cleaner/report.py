"""Reports from the files of a data directory how dirty the partitions of a topic are, and what compaction would free.

Kafka's protocol has no such request. The files are only read, so a broker may run on them.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ottla.env.disk import Disk
from ottla.model.ids import TopicPartition
from ottla.storage.checkpoints import read_offset_checkpoint
from ottla.storage.cleaner.batch_cleaner import BatchCleaner, CleaningRules, map_offsets
from ottla.storage.cleaner.chunks import CHUNK_BYTES, ChunkReader
from ottla.storage.cleaner.offset_map import OffsetMap
from ottla.storage.cleaner.transactions import CleanedTransactions
from ottla.storage.file_names import (
    LOG_SUFFIX,
    TXN_INDEX_SUFFIX,
    parse_partition_dir,
    parse_segment_file,
    segment_file,
)
from ottla.storage.log_dir import CLEANER_OFFSETS
from ottla.storage.txn_index import AbortedTxn, read_txn_index

_DEDUPE_BYTES = 128 << 20
_LOAD_FACTOR = 0.9


class CompactionReport(NamedTuple):
    """Covers closed segments only, as compaction does. `last_run_ms` is None if the partition was never cleaned."""

    partition: int
    clean_bytes: int
    dirty_bytes: int
    dirty_ratio: float
    keys: int  # records that compaction would keep
    frees_bytes: int
    last_run_ms: int | None


def compaction_reports(disk: Disk, log_dir: str, topic: str, now_ms: int) -> Iterator[CompactionReport]:
    """A report for each partition of `topic` in `log_dir`. Raises KafkaError if a file is damaged."""
    checkpoint = read_offset_checkpoint(disk, f"{log_dir}/{CLEANER_OFFSETS}")
    partitions = (parse_partition_dir(name) for name in disk.list_dir(log_dir))
    for partition in sorted(found for found in partitions if found is not None and found.topic == topic):
        yield _report(disk, log_dir, partition, checkpoint.get(partition), now_ms)


class _ClosedSegment(NamedTuple):
    path: str
    base_offset: int
    size: int
    is_dirty: bool


def _report(
    disk: Disk, log_dir: str, partition: TopicPartition, clean_up_to: int | None, now_ms: int
) -> CompactionReport:
    directory = f"{log_dir}/{partition}"
    parsed = (parse_segment_file(name) for name in disk.list_dir(directory))
    bases = sorted(found[0] for found in parsed if found is not None and found[1] == LOG_SUFFIX)
    paths = [segment_file(directory, base, LOG_SUFFIX) for base in bases]
    closed = [
        _ClosedSegment(path, base, disk.file_size(path), following > (clean_up_to or 0))
        for path, base, following in zip(paths, bases, bases[1:], strict=False)
    ]
    dirty_bytes = sum(segment.size for segment in closed if segment.is_dirty)
    clean = [segment for segment in closed if not segment.is_dirty]
    clean_bytes = sum(segment.size for segment in clean)
    keys, left_bytes = _dry_run(disk, directory, bases, closed, clean_up_to or 0, now_ms)
    return CompactionReport(
        partition.partition,
        clean_bytes,
        dirty_bytes,
        dirty_bytes / (clean_bytes + dirty_bytes) if closed and clean_bytes + dirty_bytes else 0.0,
        keys,
        clean_bytes + dirty_bytes - left_bytes,
        max((disk.modified_ms(segment.path) for segment in clean), default=None),
    )


def _dry_run(
    disk: Disk,
    directory: str,
    bases: list[int],
    closed: list[_ClosedSegment],
    clean_up_to: int,
    now_ms: int,
) -> tuple[int, int]:
    """Returns the number of records, tombstones included, and of bytes that compaction would keep now."""
    aborted = _aborted(disk, directory, bases)
    reader = ChunkReader(CHUNK_BYTES, lambda size: None)
    offset_map = OffsetMap(_DEDUPE_BYTES, _LOAD_FACTOR, max(bases[-1] - clean_up_to, 0) if bases else 0)
    first_dirty = next((segment.base_offset for segment in closed if segment.is_dirty), 0)
    transactions = CleanedTransactions(txn for txn in aborted if txn.last_offset >= first_dirty)
    dirty = (
        chunk
        for segment in closed
        if segment.is_dirty
        for chunk in reader.read(disk.open(segment.path), segment.size)
    )
    # Records that the map has no room for are kept.
    all(map_offsets(offset_map, chunk, clean_up_to, transactions, 0) for chunk in dirty)
    rules = CleaningRules(clean_up_to, now_ms, 0, 0, {})
    cleaner = BatchCleaner(offset_map, CleanedTransactions(aborted), rules)
    records = size = 0
    for segment in closed:
        for chunk in reader.read(disk.open(segment.path), segment.size):
            output = cleaner.clean(chunk)
            records, size = records + output.records_kept, size + output.size
    return records, size


def _aborted(disk: Disk, directory: str, bases: list[int]) -> list[AbortedTxn]:
    paths = (segment_file(directory, base, TXN_INDEX_SUFFIX) for base in bases)
    return [txn for path in paths if disk.exists(path) for txn in read_txn_index(disk, path)]
