"""The producer state of a partition: the last five batches of each producer, its epoch, its open transaction.

This makes a retry harmless (KIP-98): for a duplicate the leader returns the offsets of the original, and it rejects a
gap in the sequence numbers or an old epoch. The table also knows the first unstable offset, up to which a
read-committed consumer may read.
"""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_OFFSET, NO_SEQUENCE, NO_TIMESTAMP
from ottla.records.header import TRANSACTIONAL_MASK, BatchHeader

# From this transaction.version on, each transaction has an epoch of its own, and its marker the next (KIP-890).
EPOCH_PER_TRANSACTION = 2
# A producer has at most five requests in flight, so no retry can reach further back.
_BATCHES_TO_RETAIN = 5
_SEQUENCE_MASK = 0x7FFFFFFF
_LAST_EPOCH = 0x7FFF  # of a marker only: the next transaction has another producer id
NO_COORDINATOR_EPOCH = -1


class Duplicate(NamedTuple):
    """The offsets and timestamp of the first copy of a batch that was sent again."""

    base_offset: int
    last_offset: int
    timestamp: int


class CompletedTxn(NamedTuple):
    """A transaction that ended with the marker at `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class Verification:
    """The question to the coordinator whether a transaction is open, before its first batch here (KIP-890).

    Compared by identity. If the transaction ends before the coordinator responds and the producer begins another one,
    the waiting batch still holds the old object, and the leader rejects it.
    """

    __slots__ = ("epoch", "epoch_per_transaction", "lowest_sequence", "started_ms")

    def __init__(self, epoch: int, sequence: int, started_ms: int, *, epoch_per_transaction: bool) -> None:
        self.epoch = epoch
        self.lowest_sequence = sequence
        self.started_ms = started_ms
        self.epoch_per_transaction = epoch_per_transaction

    def add_batch(self, epoch: int, sequence: int) -> None:
        """Another batch waits for the response. If the batch with the lowest sequence fails, no later one may pass."""
        if epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence
        elif epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)


# For batches that are appended while transaction.partition.verification.enable is false.
NO_VERIFICATION = Verification(-1, _SEQUENCE_MASK, 0, epoch_per_transaction=False)


class ProducerEntry(NamedTuple):
    """One producer as Kafka's `.snapshot` files hold it, and as DescribeProducers shows it.

    The sequence and the offset are -1 before the first data batch, the transaction's offset if none is open.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int


class _AppendedBatch(NamedTuple):
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int


class _Producer:
    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "next_sequence",
        "timestamp",
        "txn_first_offset",
    )

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.timestamp = NO_TIMESTAMP
        self.txn_first_offset = NO_OFFSET
        self.next_sequence = 0
        self.batches: deque[_AppendedBatch] = deque(maxlen=_BATCHES_TO_RETAIN)

    def move_to_epoch(self, epoch: int) -> None:
        """Sequences start at 0 in each epoch (KIP-360), so a batch of the previous epoch cannot be retried."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.next_sequence = 0
            self.batches.clear()


class ProducerStateTable:
    """Checks run before an append and change nothing. `update` and `complete_transaction` run after it and never
    fail.
    """

    def __init__(self) -> None:
        self._producers: dict[int, _Producer] = {}
        # First offset -> producer id. Offsets only grow, so the first key is always the smallest.
        self._ongoing: dict[int, int] = {}
        # First offset -> offset of the marker, for transactions whose marker is not below the high watermark yet.
        self._unreplicated: dict[int, int] = {}
        # By producer id. Not kept on disk: after a restart the producer's retry starts a new verification.
        self._verifications: dict[int, Verification] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def start_verification(
        self, producer_id: int, epoch: int, sequence: int, now_ms: int, *, epoch_per_transaction: bool
    ) -> Verification | None:
        """Starts the verification of a transaction before its first batch here; None if it is open here already.

        Raises KafkaError for an old epoch.
        """
        producer = self._producers.get(producer_id)
        if producer is not None:
            _check_producer_epoch(producer, producer_id, epoch)
            if producer.txn_first_offset >= 0 and producer.epoch == epoch:
                return None
        verification = self._verifications.get(producer_id)
        if verification is None:
            verification = Verification(epoch, sequence, now_ms, epoch_per_transaction=epoch_per_transaction)
            self._verifications[producer_id] = verification
        else:
            verification.add_batch(epoch, sequence)
        return verification

    def is_verified(self, producer_id: int, verification: Verification) -> bool:
        """Whether the transaction of `verification` has not ended since."""
        return verification is NO_VERIFICATION or self._verifications.get(producer_id) is verification

    def check(self, header: BatchHeader, verification: Verification | None = None) -> Duplicate | None:
        """Checks a client's batch. Returns the original if it is a duplicate; raises KafkaError if it is rejected.

        The first batch of a transaction needs the `verification` that `start_verification` returned.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None:
            # The producer is new, or its state has expired: it may start with any sequence.
            if header.attributes & TRANSACTIONAL_MASK:
                self._check_transaction(None, header, verification)
            return None
        if header.producer_epoch != producer.epoch:
            _check_producer_epoch(producer, header.producer_id, header.producer_epoch)
            if header.base_sequence != 0:
                raise KafkaError(
                    ErrorCode.out_of_order_sequence_number,
                    f"producer {header.producer_id} begins epoch {header.producer_epoch} with sequence "
                    f"{header.base_sequence} (last seen epoch: {producer.epoch}); it must begin with 0",
                )
        elif header.base_sequence != producer.next_sequence:
            return _find_duplicate(producer, header)
        if header.attributes & TRANSACTIONAL_MASK or producer.txn_first_offset >= 0:
            self._check_transaction(producer, header, verification)
        return None

    def _check_transaction(
        self, producer: _Producer | None, header: BatchHeader, verification: Verification | None
    ) -> None:
        if producer is not None and producer.txn_first_offset >= 0:
            _check_within_transaction(producer, header)
            if producer.epoch == header.producer_epoch:
                return
        if verification is None or not self.is_verified(header.producer_id, verification):
            raise KafkaError(
                ErrorCode.invalid_txn_state,
                f"the batch of producer {header.producer_id} (epoch {header.producer_epoch}) is not part of an "
                "ongoing transaction that this partition was added to",
            )
        # With an epoch per transaction, the first batch of an unknown producer must have sequence 0 (KIP-890).
        is_first = producer is None and verification.epoch_per_transaction
        highest = 0 if is_first else verification.lowest_sequence
        if header.base_sequence > highest:
            raise KafkaError(
                ErrorCode.out_of_order_sequence_number,
                f"producer {header.producer_id} (epoch {header.producer_epoch}) begins its transaction here with "
                f"sequence {header.base_sequence} where {highest} was expected",
            )

    def check_coordinator_batch(self, header: BatchHeader) -> None:
        """Checks a coordinator's batch (offsets of a transaction). It has no sequence, so only the epoch is checked."""
        producer = self._producers.get(header.producer_id)
        if producer is not None:
            _check_producer_epoch(producer, header.producer_id, header.producer_epoch)
            _check_within_transaction(producer, header)

    def check_marker(self, header: BatchHeader, coordinator_epoch: int, transaction_version: int = 0) -> None:
        """Rejects an end-transaction marker with an old producer epoch, or from a zombie coordinator."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return
        _check_producer_epoch(producer, header.producer_id, header.producer_epoch)
        is_seen = header.producer_epoch == producer.epoch and transaction_version >= EPOCH_PER_TRANSACTION
        if is_seen and producer.txn_first_offset >= 0 and header.producer_epoch != _LAST_EPOCH:
            # KIP-1228: this epoch belongs to the next transaction, which a late marker must not end. Before it begins,
            # the marker is written again: the first copy may not be replicated yet, and be lost with the leader.
            raise KafkaError(
                ErrorCode.invalid_producer_epoch,
                f"the end marker of producer {header.producer_id} has the epoch {header.producer_epoch}, which has "
                "been seen here: the transaction that it ends has ended",
            )
        if coordinator_epoch < producer.coordinator_epoch:
            raise KafkaError(
                ErrorCode.transaction_coordinator_fenced,
                f"the end marker of producer {header.producer_id} is from coordinator epoch "
                f"{coordinator_epoch}, but epoch {producer.coordinator_epoch} has written here already",
            )

    def update(self, header: BatchHeader) -> None:
        """Adds a data batch that was appended to the log, with its final offsets."""
        producer_id = header.producer_id
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = _Producer(header.producer_epoch)
        elif header.producer_epoch != producer.epoch:
            producer.move_to_epoch(header.producer_epoch)
        base_offset, delta, timestamp = header.base_offset, header.last_offset_delta, header.max_timestamp
        last_sequence = header.base_sequence
        if last_sequence >= 0:
            last_sequence = (last_sequence + delta) & _SEQUENCE_MASK
        producer.batches.append(_AppendedBatch(last_sequence, base_offset + delta, delta, timestamp))
        producer.next_sequence = (last_sequence + 1) & _SEQUENCE_MASK
        producer.timestamp = timestamp
        if header.attributes & TRANSACTIONAL_MASK and producer.txn_first_offset < 0:
            producer.txn_first_offset = base_offset
            self._ongoing[base_offset] = producer_id
            self._verifications.pop(producer_id, None)

    def complete_transaction(
        self, header: BatchHeader, *, commit: bool, coordinator_epoch: int
    ) -> CompletedTxn | None:
        """Applies an end-transaction marker that was appended to the log; None if no transaction was open."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            producer = self._producers[header.producer_id] = _Producer(header.producer_epoch)
        producer.move_to_epoch(header.producer_epoch)
        verification = self._verifications.get(header.producer_id)
        if verification is not None and not (
            # It verifies the next transaction: from KIP-890 on, a marker carries the epoch of the next one.
            verification.epoch_per_transaction and verification.epoch == header.producer_epoch
        ):
            del self._verifications[header.producer_id]
        producer.coordinator_epoch = coordinator_epoch
        producer.timestamp = header.max_timestamp
        first_offset, producer.txn_first_offset = producer.txn_first_offset, NO_OFFSET
        if first_offset < 0:
            return None
        self._ongoing.pop(first_offset, None)
        self._unreplicated[first_offset] = header.base_offset
        return CompletedTxn(header.producer_id, first_offset, header.base_offset, not commit)

    def last_stable_offset(self, completed: CompletedTxn) -> int:
        """The last stable offset once `completed` is replicated, as the transaction index records it."""
        return next(iter(self._ongoing), completed.last_offset + 1)

    def first_unstable_offset(self) -> int | None:
        """The first offset of all transactions that are open or whose marker is not replicated yet."""
        first_ongoing = next(iter(self._ongoing), None)
        if not self._unreplicated:
            return first_ongoing
        first_unreplicated = min(self._unreplicated)
        return first_unreplicated if first_ongoing is None else min(first_ongoing, first_unreplicated)

    def on_high_watermark(self, high_watermark: int) -> None:
        """Transactions whose marker is below the high watermark are stable."""
        if self._unreplicated:
            self._unreplicated = {
                first: marker for first, marker in self._unreplicated.items() if marker >= high_watermark
            }

    def truncate_before(self, log_start_offset: int) -> None:
        """Keeps the producers whose records are deleted, so that their retries are still found as duplicates."""
        self.on_high_watermark(log_start_offset)

    def has_open_transaction(self, producer_id: int) -> bool:
        producer = self._producers.get(producer_id)
        return producer is not None and producer.txn_first_offset >= 0

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Removes producers idle for `expiration_ms`, except those in a transaction; returns how many."""
        expired = [
            producer_id
            for producer_id, producer in self._producers.items()
            if producer.txn_first_offset < 0 and now_ms - producer.timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        self._verifications = {
            producer_id: verification
            for producer_id, verification in self._verifications.items()
            if now_ms - verification.started_ms < expiration_ms
        }
        return len(expired)

    def entries(self) -> list[ProducerEntry]:
        nothing = _AppendedBatch(NO_SEQUENCE, NO_OFFSET, 0, NO_TIMESTAMP)
        entries = []
        for producer_id, producer in self._producers.items():
            batch = producer.batches[-1] if producer.batches else nothing
            entries.append(
                ProducerEntry(
                    producer_id=producer_id,
                    producer_epoch=producer.epoch,
                    last_sequence=batch.last_sequence,
                    last_offset=batch.last_offset,
                    offset_delta=batch.offset_delta,
                    timestamp=producer.timestamp,
                    coordinator_epoch=producer.coordinator_epoch,
                    current_txn_first_offset=producer.txn_first_offset,
                )
            )
        return entries

    def load(self, entries: Iterable[ProducerEntry]) -> None:
        """Replaces the whole state by that of a snapshot."""
        self.clear()
        open_transactions: dict[int, int] = {}
        for entry in entries:
            producer = self._producers[entry.producer_id] = _Producer(entry.producer_epoch)
            producer.coordinator_epoch = entry.coordinator_epoch
            producer.timestamp = entry.timestamp
            producer.txn_first_offset = entry.current_txn_first_offset
            if entry.last_offset >= 0:
                batch = _AppendedBatch(
                    entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp
                )
                producer.batches.append(batch)
                producer.next_sequence = (entry.last_sequence + 1) & _SEQUENCE_MASK
            if entry.current_txn_first_offset >= 0:
                open_transactions[entry.current_txn_first_offset] = entry.producer_id
        self._ongoing = dict(sorted(open_transactions.items()))

    def take_over(self, other: "ProducerStateTable") -> None:
        """Replaces the whole state by that of `other`, which must not be used any more."""
        self._producers, self._ongoing = other._producers, other._ongoing
        self._unreplicated, self._verifications = other._unreplicated, other._verifications

    def clear(self) -> None:
        self._producers.clear()
        self._ongoing.clear()
        self._unreplicated.clear()
        self._verifications.clear()


def _check_producer_epoch(producer: _Producer, producer_id: int, epoch: int) -> None:
    # INVALID_PRODUCER_EPOCH, not PRODUCER_FENCED: the client may abort and continue (KIP-588).
    if epoch < producer.epoch:
        raise KafkaError(
            ErrorCode.invalid_producer_epoch,
            f"epoch {epoch} of producer {producer_id} is older than the last seen "
            f"epoch {producer.epoch}: a newer instance of this producer has taken over",
        )


def _check_within_transaction(producer: _Producer, header: BatchHeader) -> None:
    if producer.txn_first_offset >= 0 and not header.attributes & TRANSACTIONAL_MASK:
        raise KafkaError(
            ErrorCode.invalid_txn_state,
            f"producer {header.producer_id} sent a batch outside its transaction, which is open since offset "
            f"{producer.txn_first_offset}; end the transaction first",
        )


def _find_duplicate(producer: _Producer, header: BatchHeader) -> Duplicate:
    last_sequence, delta = header.last_sequence, header.last_offset_delta
    for batch in producer.batches:
        if batch.last_sequence == last_sequence and batch.offset_delta == delta:
            return Duplicate(batch.last_offset - batch.offset_delta, batch.last_offset, batch.timestamp)
    raise KafkaError(
        ErrorCode.out_of_order_sequence_number,
        f"producer {header.producer_id} (epoch {header.producer_epoch}) sent sequence {header.base_sequence} "
        f"where {producer.next_sequence} was expected",
    )
