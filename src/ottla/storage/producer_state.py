"""Keeps a log's producers on disk: a snapshot at each roll and at the end, and the batches that came after it."""

import logging
from collections.abc import Callable, Iterable

from ottla.core.partition.producers import ProducerEntry, ProducerStateTable
from ottla.env.disk import Disk
from ottla.records.header import BatchHeader, Bytes
from ottla.records.markers import read_marker_batch
from ottla.storage.batch_scan import iter_headers
from ottla.storage.file_names import DELETED_SUFFIX, SNAPSHOT_SUFFIX, segment_file
from ottla.storage.mapped_index import CorruptIndexError
from ottla.storage.producer_snapshots import CorruptSnapshotError, encode_snapshot, read_snapshot
from ottla.storage.segment import Segment
from ottla.storage.segments import Segments
from ottla.storage.txn_index import AbortedTxn

logger = logging.getLogger("ottla.storage")


class ProducerSnapshots:
    """The snapshot files of one log, by offset: each holds what came before its offset."""

    def __init__(self, disk: Disk, directory: str, offsets: Iterable[int]) -> None:
        self.offsets = sorted(offsets)
        self._disk = disk
        self._directory = directory

    def path(self, offset: int) -> str:
        return segment_file(self._directory, offset, SNAPSHOT_SUFFIX)

    def write(self, offset: int, entries: list[ProducerEntry]) -> None:
        """Not synced here: that is for the flush to come, and until it recovery goes by an older one."""
        data = encode_snapshot(entries)
        file = self._disk.open(self.path(offset), create=True)
        file.write_at(0, [data])
        file.truncate(len(data))
        if offset not in self.offsets:
            self.offsets = sorted([*self.offsets, offset])

    def newest(self, up_to: int) -> tuple[int, list[ProducerEntry]]:
        """The newest that can be read, and its offset; (-1, nothing) where there is none."""
        for offset in reversed([offset for offset in self.offsets if offset <= up_to]):
            try:
                return offset, read_snapshot(self._disk, self.path(offset))
            except CorruptSnapshotError as error:
                logger.warning("removing the producer snapshot %s: %s", self.path(offset), error)
                self.remove([offset])
        return -1, []

    def remove(self, offsets: Iterable[int]) -> None:
        for offset in set(offsets).intersection(self.offsets):
            self._disk.remove(self.path(offset))
            self.offsets.remove(offset)

    def remove_strays(self, base_offsets: Iterable[int]) -> None:
        """Keeps one per segment, and the newest: a start needs no other."""
        self.remove(set(self.offsets[:-1]).difference(base_offsets))

    def mark_deleted(self, offsets: Iterable[int]) -> list[str]:
        """Renames those of deleted segments; returns what is to be removed later."""
        renamed = []
        for offset in sorted(set(offsets).intersection(self.offsets)):
            path = self.path(offset) + DELETED_SUFFIX
            self._disk.rename(self.path(offset), path)
            self.offsets.remove(offset)
            renamed.append(path)
        return renamed


def replay_batch(
    producers: ProducerStateTable,
    header: BatchHeader,
    data: Bytes,
    add_aborted: Callable[[AbortedTxn], None] | None,
) -> None:
    """Takes in a batch of a producer that is in the log. Only a control batch needs its `data`."""
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
    """Brings `producers` to what the log below `end_offset` makes of them: a snapshot, and what lies after it."""
    start_offset, entries = snapshots.newest(end_offset)
    producers.load(entries)
    if start_offset >= end_offset or not len(segments):
        return
    for segment in segments.from_offset(start_offset):
        if segment.base_offset >= end_offset:
            break
        _replay_segment(producers, segment, start_offset, end_offset)


def repair_txn_indexes(segments: Segments, snapshots: ProducerSnapshots, end_offset: int) -> None:
    """Rebuilds the transaction indexes that are missing or damaged, from the headers and markers of their segments.

    A marker may end a transaction that began in an earlier segment, so each segment is replayed on the producers as
    they were at its base offset. It has to be done before anybody reads: the walk is too long for a fetch.
    """
    ends = [*segments.base_offsets[1:], end_offset]
    lost = [(segment, end) for segment, end in zip(segments, ends, strict=True) if _is_lost(segment, end)]
    if not lost:
        return
    producers, reached = ProducerStateTable(), -1
    for segment, segment_end in lost:
        if reached != segment.base_offset:
            load_producers(producers, snapshots, segments, segment.base_offset)
        found: list[AbortedTxn] = []
        _replay_segment(producers, segment, segment.base_offset, segment_end, found.append)
        segment.txn_index.rebuild(found)
        reached = segment_end


def _is_lost(segment: Segment, end_offset: int) -> bool:
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
    for place, header in iter_headers(segment.file, position, segment.size):
        if header.base_offset >= end_offset:
            break
        if header.producer_id >= 0 and header.base_offset >= start_offset:
            data = segment.file.read_at(place, header.size) if header.is_control else b""
            replay_batch(producers, header, data, add_aborted)
