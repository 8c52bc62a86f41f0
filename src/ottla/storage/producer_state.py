"""Restores the producers of a log from a snapshot and the batches after it, and rebuilds transaction indexes."""

import logging
from collections.abc import Callable

from ottla.core.partition.producers import ProducerStateTable
from ottla.records.header import BatchHeader, Bytes
from ottla.records.markers import read_marker_batch
from ottla.storage.batch_scan import iter_headers
from ottla.storage.mapped_index import CorruptIndexError
from ottla.storage.producer_snapshots import ProducerSnapshots
from ottla.storage.segment import Segment
from ottla.storage.segments import Segments
from ottla.storage.txn_index import AbortedTxn

logger = logging.getLogger("ottla.storage")


def replay_batch(
    producers: ProducerStateTable,
    header: BatchHeader,
    data: Bytes,
    add_aborted: Callable[[AbortedTxn], None] | None,
) -> None:
    """Applies a batch in the log to the producers. `data` is needed for control batches only."""
    if not header.is_control:
        producers.update(header)
        return
    marker = read_marker_batch(data)
    if marker is None:
        return
    completed = producers.complete_transaction(
        header, commit=marker.commit, coordinator_epoch=marker.coordinator_epoch
    )
    if completed is not None and completed.is_aborted and add_aborted is not None:
        add_aborted(
            AbortedTxn(
                completed.producer_id,
                completed.first_offset,
                completed.last_offset,
                producers.last_stable_offset(completed),
            )
        )


def load_producers(
    producers: ProducerStateTable, snapshots: ProducerSnapshots, segments: Segments, end_offset: int
) -> None:
    """Restores `producers` to their state at `end_offset`: loads a snapshot and replays the batches after it."""
    start_offset, entries = snapshots.newest(end_offset)
    producers.load(entries)
    if start_offset >= end_offset or not len(segments):
        return
    for segment in segments.from_offset(start_offset):
        if segment.base_offset >= end_offset:
            break
        _replay_segment(producers, segment, start_offset, end_offset)


def repair_txn_indexes(segments: Segments, snapshots: ProducerSnapshots, end_offset: int) -> None:
    """Rebuilds missing or damaged transaction indexes from the headers and markers of their segments.

    A marker may end a transaction that began in an earlier segment, so each segment is replayed on the state of the
    producers at its base offset. This happens when the log is opened, because it would take too long in a fetch.
    """
    ends = [*segments.base_offsets[1:], end_offset]
    invalid = [
        (segment, end) for segment, end in zip(segments, ends, strict=True) if _is_invalid(segment, end)
    ]
    if not invalid:
        return
    producers, reached = ProducerStateTable(), -1
    for segment, segment_end in invalid:
        if reached != segment.base_offset:
            load_producers(producers, snapshots, segments, segment.base_offset)
        found: list[AbortedTxn] = []
        _replay_segment(producers, segment, segment.base_offset, segment_end, found.append)
        segment.txn_index.rebuild(found)
        reached = segment_end


def _is_invalid(segment: Segment, end_offset: int) -> bool:
    try:
        segment.txn_index.check(end_offset)
    except FileNotFoundError:
        if segment.size:
            logger.info("rebuilding the transaction index of %s: it is missing", segment.path)
        return True
    except CorruptIndexError as error:
        logger.warning("rebuilding the transaction index of %s: %s", segment.path, error)
        return True
    return False


def _replay_segment(
    producers: ProducerStateTable,
    segment: Segment,
    start_offset: int,
    end_offset: int,
    add_aborted: Callable[[AbortedTxn], None] | None = None,
) -> None:
    if not segment.size:
        return
    position = segment.offset_index.position_for(start_offset) if start_offset > segment.base_offset else 0
    for batch_position, header in iter_headers(segment.file, position, segment.size):
        if header.base_offset >= end_offset:
            break
        if header.producer_id >= 0 and header.base_offset >= start_offset:
            data = segment.file.read_at(batch_position, header.size) if header.is_control else b""
            replay_batch(producers, header, data, add_aborted)
