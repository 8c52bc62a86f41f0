"""Produce under a transactional id: a transaction's first batch in a partition waits for the coordinator's word."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.connection import Answer
from ottla.broker.coordinators.verification import Entry, Refusals, ask_coordinator, verification_is_on
from ottla.broker.delayed_answer import DelayedAnswer
from ottla.broker.hosted_partition import HostedPartition
from ottla.broker.pending import Pending
from ottla.core.partition.leader import AppendPlan
from ottla.core.partition.producers import NO_VERIFICATION, Verification
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition
from ottla.protocol.produce_codec import ProduceRequest
from ottla.records.header import HEADER_SIZE, MAGIC, BatchHeader, Bytes, read_header

if TYPE_CHECKING:
    from ottla.broker.node import Broker

FIRST_WITH_ABORTABLE = 11
FIRST_THAT_ADDS_PARTITIONS = 12

# The coordinator cannot say now. Older clients would not retry on these; on this they do, without new metadata.
_TOLD_AS_NOT_ENOUGH_REPLICAS = (
    ErrorCode.network_exception,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
)


class Admission:
    """What the partitions of one request may do: who is refused, and what the others have to show with their batch."""

    def __init__(self) -> None:
        self.refused: dict[TopicPartition, KafkaError] = {}
        self.verifications: dict[TopicPartition, Verification] = {}
        self.by_default: Verification | None = None

    def append(self, hosted: HostedPartition, records: Bytes, now_ms: int, required_acks: int) -> AppendPlan:
        """Raises KafkaError, or LongExamination."""
        verification = self.verification_of(hosted.topic_partition)
        return hosted.append_in_transaction(
            records, now_ms, required_acks=required_acks, verification=verification
        )

    def verification_of(self, partition: TopicPartition) -> Verification | None:
        """What a batch for `partition` has to show. Raises KafkaError if the partition is refused."""
        if partition in self.refused:
            raise self.refused[partition]
        return self.verifications.get(partition, self.by_default)


def admit(
    broker: "Broker",
    request: ProduceRequest,
    version: int,
    append: Callable[[Admission], Answer | Pending[Answer]],
) -> Answer | Pending[Answer]:
    """Calls `append` when all is known, which is at once where every transaction is open in its partition already."""
    if version >= FIRST_THAT_ADDS_PARTITIONS:
        entry = Entry.ADDED
    else:
        entry = Entry.VERIFIED_OR_ABORTABLE if version >= FIRST_WITH_ABORTABLE else Entry.VERIFIED
    admission = Admission()
    batches = _transactional_batches(broker, request)
    if not batches:
        return append(admission)
    producer = batches[0][1].producer_id, batches[0][1].producer_epoch
    if len(batches) > 1 and any(
        (header.producer_id, header.producer_epoch) != producer for _, header in batches
    ):
        mixed = KafkaError(
            ErrorCode.invalid_producer_id_mapping,
            "the request has transactional records of several producers",
        )
        admission.refused = {hosted.topic_partition: mixed for hosted, _ in batches}
    elif not verification_is_on(broker, entry):
        admission.by_default = NO_VERIFICATION
    else:
        _start_verifications(broker, admission, batches, entry)
    if not admission.verifications:
        return append(admission)
    assert request.transactional_id is not None
    question = (request.transactional_id, *producer, tuple(admission.verifications))
    if entry is not Entry.ADDED and broker.transactions.has_partitions(*question):
        return append(admission)
    asking = partial(ask_coordinator, broker, *question, entry)
    told = asking()
    if told.done and not told.value:
        return append(admission)
    return _Asking(broker, admission, entry, asking, append).wait_for(told)


def _transactional_batches(
    broker: "Broker", request: ProduceRequest
) -> list[tuple[HostedPartition, BatchHeader]]:
    """Of partitions that are here. What else is wrong is found when the batch is appended."""
    found = []
    for topic in request.topics:
        for data in topic.partitions:
            records = data.records
            if records is None or len(records) < HEADER_SIZE:
                continue
            header = read_header(records)
            if header.magic != MAGIC or not header.is_transactional or header.producer_id < 0:
                continue
            try:
                found.append((broker.partitions.find(topic.name, topic.topic_id, data.index), header))
            except KafkaError:
                continue
    return found


def _start_verifications(
    broker: "Broker",
    admission: Admission,
    batches: list[tuple[HostedPartition, BatchHeader]],
    entry: Entry,
) -> None:
    now_ms = broker.env.clock.now_ms()
    for hosted, header in batches:
        try:
            verification = hosted.log.producers.start_verification(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                now_ms,
                epoch_per_transaction=entry.epoch_per_transaction,
            )
        except KafkaError as error:
            admission.refused[hosted.topic_partition] = error
            continue
        if verification is not None:
            admission.verifications[hosted.topic_partition] = verification


class _Asking(DelayedAnswer):
    """The question to the coordinator, again after a while where the transaction before is not complete yet.

    The producer would ask again itself, but much later, and with all its records.
    """

    def __init__(
        self,
        broker: "Broker",
        admission: Admission,
        entry: Entry,
        ask: Callable[[], Pending[Refusals]],
        append: Callable[[Admission], Answer | Pending[Answer]],
    ) -> None:
        self._answer: Pending[Answer] = Pending()
        super().__init__(self._answer)
        self._broker = broker
        self._admission = admission
        self._entry = entry
        self._ask = ask
        self._append = append
        self._left_ms = broker.config.get_int("add.partitions.to.txn.retry.backoff.max.ms")

    def wait_for(self, told: Pending[Refusals]) -> Pending[Answer]:
        told.subscribe(self._told, self._answer.fail)
        return self._answer

    def _told(self, refused: Refusals) -> None:
        is_early = any(error.code is ErrorCode.concurrent_transactions for error in refused.values())
        if is_early and self._entry is Entry.ADDED and self._left_ms > 0:
            backoff_ms = self._broker.config.get_int("add.partitions.to.txn.retry.backoff.ms")
            self._left_ms -= backoff_ms
            self._broker.waiting_room.wait(self, (), backoff_ms)
            return
        for partition, error in refused.items():
            self._admission.refused[partition] = _told_to_producer(error, self._entry)
        try:
            answer = self._append(self._admission)
        except Exception as error:
            self._answer.fail(error)
        else:
            self._answer.resolve(answer)

    def try_complete(self, now_ms: int) -> bool:
        return False

    def on_expire(self, now_ms: int) -> None:
        self.wait_for(self._ask())


def _told_to_producer(error: KafkaError, entry: Entry) -> KafkaError:
    if error.code in _TOLD_AS_NOT_ENOUGH_REPLICAS or (
        error.code is ErrorCode.concurrent_transactions and entry is not Entry.ADDED
    ):
        return KafkaError(
            ErrorCode.not_enough_replicas,
            f"it cannot be verified now that the partition is in the transaction ({error.code.name}: "
            f"{error.message}); try again",
        )
    return error
