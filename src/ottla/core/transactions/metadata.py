"""The state of one transactional id: its last record, and volatile state."""

from dataclasses import dataclass, field
from functools import lru_cache

from ottla.core.transactions.commands import ProducerIdAndEpoch, WriteMarkers
from ottla.core.transactions.states import ENDED, PREPARED, STATE_BY_STATUS, TransactionState
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_PRODUCER_EPOCH, TopicPartition
from ottla.protocol.transaction_records.records import TransactionLogValue, TransactionPartitions

# Never given to a producer: reserved for fencing the producer that has the epoch before it.
MAX_PRODUCER_EPOCH = 2**15 - 1
NO_TIMEOUT_MS = 2**31 - 1  # of a two-phase commit (KIP-939)


@dataclass(slots=True, eq=False)
class TransactionMetadata:
    """`record` is durable and is replaced as a whole. The volatile fields are:

    `last_producer_epoch`: the previous epoch, if the producer itself requested the present one, so that its retry is
    recognized (KIP-360); else NO_PRODUCER_EPOCH.
    `markers`: the effect that the runtime performs; `unmarked`: the partitions that it has not reported yet.
    """

    record: TransactionLogValue
    state: TransactionState
    partitions: dict[TopicPartition, None]
    last_producer_epoch: int
    markers: WriteMarkers | None = None
    unmarked: dict[TopicPartition, None] = field(default_factory=dict)

    @property
    def producer(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.record.producer_id, self.record.producer_epoch)

    @property
    def is_epoch_exhausted(self) -> bool:
        return self.record.producer_epoch >= MAX_PRODUCER_EPOCH - 1

    def is_current_epoch(self, producer_epoch: int) -> bool:
        return producer_epoch == self.record.producer_epoch != MAX_PRODUCER_EPOCH

    def validate(self) -> None:
        record, state = self.record, self.state
        assert state in STATE_BY_STATUS.values(), f"{state.name} is never written"
        assert record.producer_id >= 0
        assert 0 <= record.producer_epoch <= MAX_PRODUCER_EPOCH
        if state in (TransactionState.EMPTY, TransactionState.ONGOING):
            assert record.producer_epoch < MAX_PRODUCER_EPOCH, (
                "a producer has the epoch that is reserved for fencing"
            )
        assert (record.transaction_partitions is None) == (state is TransactionState.EMPTY)
        assert not self.partitions or state is TransactionState.ONGOING or state in PREPARED
        assert (record.transaction_start_timestamp_ms == -1) == (state is TransactionState.EMPTY)
        assert record.next_producer_id == -1 or state in PREPARED
        if state in PREPARED:
            assert self.unmarked, "all markers are written, but the transaction is not complete"
            assert self.partitions.keys() >= self.unmarked.keys()
            assert self.markers is not None, "the markers are not being written"
            assert (self.markers.producer_id, self.markers.producer_epoch) == self.producer
        else:
            assert self.markers is None


def metadata_from_record(transactional_id: str, record: TransactionLogValue) -> TransactionMetadata:
    """Raises CORRUPT_MESSAGE for a state that is never written."""
    state = STATE_BY_STATUS.get(record.transaction_status)
    if state is None:
        raise KafkaError(
            ErrorCode.corrupt_message,
            f"the record of the transactional id {transactional_id!r} has the status {record.transaction_status}, "
            "which no release writes",
        )
    return TransactionMetadata(
        record,
        state,
        {
            TopicPartition(each.topic, partition): None
            for each in record.transaction_partitions or ()
            for partition in each.partition_ids
        },
        _last_producer_epoch(record, state),
    )


def _last_producer_epoch(record: TransactionLogValue, state: TransactionState) -> int:
    """The end of a transaction of version 2 raised the epoch by one; in other states the record does not tell."""
    if state not in ENDED or record.client_transaction_version < 2:
        return NO_PRODUCER_EPOCH
    return record.producer_epoch - 1 if record.producer_epoch else MAX_PRODUCER_EPOCH - 1


def next_epoch(producer_epoch: int) -> int:
    """The last epoch has no successor: a producer that is fenced with it continues with a new producer id."""
    return min(producer_epoch + 1, MAX_PRODUCER_EPOCH)


# Cached because consecutive transactions of a producer mostly have the same partitions.
@lru_cache(maxsize=1024)
def with_partitions(
    present: tuple[TransactionPartitions, ...] | None, added: tuple[TopicPartition, ...]
) -> tuple[TransactionPartitions, ...]:
    """Adds partitions, grouped by topic, in the order of their arrival. `added` must not contain present ones."""
    by_topic = {each.topic: each.partition_ids for each in present or ()}
    for topic, partition in added:
        by_topic[topic] = (*by_topic.get(topic, ()), partition)
    return tuple(
        TransactionPartitions(topic=topic, partition_ids=partition_ids)
        for topic, partition_ids in by_topic.items()
    )
