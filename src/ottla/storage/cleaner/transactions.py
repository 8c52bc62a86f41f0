"""What compaction knows of transactions while it walks over a log: whose batches are aborted, which markers may go."""

import heapq
from collections.abc import Iterable

from ottla.records.header import BatchHeader
from ottla.records.markers import ControlType
from ottla.storage.txn_index import AbortedTxn


class CleanedTransactions:
    """`aborted`: all aborted transactions that have, or had, something between the first batch and the last.

    Batches are to be told in the order of the log. `kept` collects the aborted transactions whose marker stays,
    for the index of the cleaned segment; whoever writes one segment takes them out and empties it for the next.
    """

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self.kept: list[AbortedTxn] = []
        self._waiting = [(txn.first_offset, txn) for txn in set(aborted)]
        heapq.heapify(self._waiting)
        self._aborted: dict[int, AbortedTxn] = {}  # by producer id: those whose marker is still to come
        self._seen: set[int] = set()  # of those, whose data was met
        self._committed: set[int] = (
            set()
        )  # producer ids of data that is not aborted, its marker still to come

    def is_aborted(self, header: BatchHeader) -> bool:
        """Of a batch of data."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted:
            self._seen.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def may_lose_marker(self, header: BatchHeader, control_type: int | None) -> bool:
        """Whether nothing of the transaction is left that a reader needs the marker for.

        `control_type` is None where an earlier cleaning has left no record in the batch.
        """
        self._begin_up_to(header.last_offset)
        producer_id = header.producer_id
        if control_type is None:
            return True
        if control_type == ControlType.ABORT:
            txn = self._aborted.pop(producer_id, None)
            if txn is None or producer_id not in self._seen:
                return True
            # Its data goes now, the marker with a later cleaning: a reader may be in between.
            self._seen.discard(producer_id)
            self.kept.append(txn)
            return False
        if control_type == ControlType.COMMIT:
            had_data = producer_id in self._committed
            self._committed.discard(producer_id)
            return not had_data
        return False

    def _begin_up_to(self, offset: int) -> None:
        while self._waiting and self._waiting[0][0] <= offset:
            _, txn = heapq.heappop(self._waiting)
            self._aborted.setdefault(txn.producer_id, txn)
