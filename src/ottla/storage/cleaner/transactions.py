"""Tracks transactions while compaction reads a log: which batches are aborted, and which markers can be dropped."""

import heapq
from collections.abc import Iterable

from ottla.records.header import BatchHeader
from ottla.records.markers import ControlType
from ottla.storage.txn_index import AbortedTxn


class CleanedTransactions:
    """`aborted`: all aborted transactions that have, or had, a batch in the part of the log that is read.

    The batches must come in the order of the log. `kept` collects the aborted transactions whose marker is kept, for
    the transaction index of the cleaned segment; the caller empties it after each segment.
    """

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self.kept: list[AbortedTxn] = []
        self._not_begun = [(txn.first_offset, txn) for txn in set(aborted)]
        heapq.heapify(self._not_begun)
        # By producer id, until the marker is read.
        self._aborted: dict[int, AbortedTxn] = {}
        self._with_data: set[int] = set()  # producer ids in `_aborted` of which a data batch was read
        # Producer ids of data that is not aborted, until the marker is read.
        self._committed: set[int] = set()

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether the data batch belongs to an aborted transaction."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted:
            self._with_data.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def can_discard_marker(self, header: BatchHeader, control_type: int | None) -> bool:
        """Whether no data of the transaction is left for which a consumer needs the marker.

        `control_type` is None if an earlier cleaning has removed the record of the control batch.
        """
        self._begin_up_to(header.last_offset)
        producer_id = header.producer_id
        if control_type is None:
            return True
        if control_type == ControlType.ABORT:
            txn = self._aborted.pop(producer_id, None)
            if txn is None or producer_id not in self._with_data:
                return True
            # This cleaning removes the data; a later one removes the marker, because a consumer may be between them.
            self._with_data.discard(producer_id)
            self.kept.append(txn)
            return False
        if control_type == ControlType.COMMIT:
            had_data = producer_id in self._committed
            self._committed.discard(producer_id)
            return not had_data
        return False

    def _begin_up_to(self, offset: int) -> None:
        while self._not_begun and self._not_begun[0][0] <= offset:
            _, txn = heapq.heappop(self._not_begun)
            self._aborted.setdefault(txn.producer_id, txn)
