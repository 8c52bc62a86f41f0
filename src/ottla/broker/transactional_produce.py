"""Produce with a transactional id: the coordinator must verify a partition before its first batch in a transaction."""

from collections.abc import Callable
from functools import partial

from ottla.broker.connection import ResponseParts
from ottla.broker.coordinators.verification import (
    PartitionErrors,
    VerificationMode,
    verification_is_enabled,
    verification_mode,
    verify_partitions,
)
from ottla.broker.delayed_response import DelayedResponse
from ottla.broker.hosted_partition import HostedPartition
from ottla.broker.promise import Promise
from ottla.broker.services import BrokerServices
from ottla.core.partition.leader import AppendPlan
from ottla.core.partition.producers import NO_VERIFICATION, Verification
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition
from ottla.protocol.produce_codec import ProduceRequest
from ottla.records.header import HEADER_SIZE, MAGIC, BatchHeader, Bytes, read_header

FIRST_WITH_ABORTABLE = 11
FIRST_THAT_ADDS_PARTITIONS = 12

# The coordinator cannot verify now. Older clients do not retry these codes; they do retry NOT_ENOUGH_REPLICAS, and
# without fetching metadata first.
_SENT_AS_NOT_ENOUGH_REPLICAS = (
    ErrorCode.network_exception,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
)


class VerifiedRequest:
    """The result of the verification for the partitions of one request.

    `errors` are those of the partitions that are not in the transaction. Batches for the others present their entry of
    `verifications`, or `default`, to the leader: it rejects them if the transaction has ended meanwhile.
    """

    def __init__(self) -> None:
        self.errors: dict[TopicPartition, KafkaError] = {}
        self.verifications: dict[TopicPartition, Verification] = {}
        self.default: Verification | None = None

    def append(self, hosted: HostedPartition, records: Bytes, now_ms: int, required_acks: int) -> AppendPlan:
        """Raises KafkaError, or LongExamination."""
        verification = self.verification_of(hosted.topic_partition)
        return hosted.append_in_transaction(
            records, now_ms, required_acks=required_acks, verification=verification
        )

    def verification_of(self, partition: TopicPartition) -> Verification | None:
        """Raises KafkaError if the partition is not in the transaction."""
        if partition in self.errors:
            raise self.errors[partition]
        return self.verifications.get(partition, self.default)


Append = Callable[[VerifiedRequest], ResponseParts | Promise[ResponseParts]]


def verify_and_append(
    services: BrokerServices, request: ProduceRequest, version: int, append: Append
) -> ResponseParts | Promise[ResponseParts]:
    """Calls `append` with the result of the verification: at once if no partition needs one."""
    mode = verification_mode(version, FIRST_WITH_ABORTABLE, FIRST_THAT_ADDS_PARTITIONS)
    verified = VerifiedRequest()
    batches = _transactional_batches(services, request)
    if not batches:
        return append(verified)
    producer = batches[0][1].producer_id, batches[0][1].producer_epoch
    if len(batches) > 1 and any(
        (header.producer_id, header.producer_epoch) != producer for _, header in batches
    ):
        mixed = KafkaError(
            ErrorCode.invalid_producer_id_mapping,
            "the request has transactional records of several producers",
        )
        verified.errors = {hosted.topic_partition: mixed for hosted, _ in batches}
    elif not verification_is_enabled(services, mode):
        verified.default = NO_VERIFICATION
    else:
        _start_verifications(services, verified, batches, mode)
    if not verified.verifications:
        return append(verified)
    assert request.transactional_id is not None
    transaction = (request.transactional_id, *producer, tuple(verified.verifications))
    if mode is not VerificationMode.ADD and services.transactions.get().has_partitions(*transaction):
        return append(verified)
    verify = partial(verify_partitions, services, *transaction, mode)
    errors = verify()
    if errors.done and not errors.value:
        return append(verified)
    return _DelayedVerification(services, verified, mode, verify, append).wait_for(errors)


def _transactional_batches(
    services: BrokerServices, request: ProduceRequest
) -> list[tuple[HostedPartition, BatchHeader]]:
    """The transactional batches for partitions that are led here. Other errors are found by the append."""
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
                found.append(
                    (services.partitions.find_leader(topic.name, topic.topic_id, data.index), header)
                )
            except KafkaError:
                continue
    return found


def _start_verifications(
    services: BrokerServices,
    verified: VerifiedRequest,
    batches: list[tuple[HostedPartition, BatchHeader]],
    mode: VerificationMode,
) -> None:
    now_ms = services.env.clock.now_ms()
    for hosted, header in batches:
        try:
            verification = hosted.log.producers.start_verification(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                now_ms,
                epoch_per_transaction=mode.epoch_per_transaction,
            )
        except KafkaError as error:
            verified.errors[hosted.topic_partition] = error
            continue
        if verification is not None:
            verified.verifications[hosted.topic_partition] = verification


class _DelayedVerification(DelayedResponse):
    """Waits for the coordinator, and asks it again after a backoff while the previous transaction is not complete.

    The producer would retry too, but much later, and it would send all its records again.
    """

    def __init__(
        self,
        services: BrokerServices,
        verified: VerifiedRequest,
        mode: VerificationMode,
        verify: Callable[[], Promise[PartitionErrors]],
        append: Append,
    ) -> None:
        super().__init__(Promise())
        self._services = services
        self._verified = verified
        self._mode = mode
        self._verify = verify
        self._append = append
        self._left_ms = services.config.get_int("add.partitions.to.txn.retry.backoff.max.ms")

    def wait_for(self, errors: Promise[PartitionErrors]) -> Promise[ResponseParts]:
        errors.subscribe(self._verification_done, self._response.fail)
        return self._response

    def _verification_done(self, errors: PartitionErrors) -> None:
        is_too_early = any(error.code is ErrorCode.concurrent_transactions for error in errors.values())
        if is_too_early and self._mode is VerificationMode.ADD and self._left_ms > 0:
            backoff_ms = self._services.config.get_int("add.partitions.to.txn.retry.backoff.ms")
            self._left_ms -= backoff_ms
            self._services.delayed_operations.watch(self, (), backoff_ms)
            return
        for partition, error in errors.items():
            self._verified.errors[partition] = _producer_error(error, self._mode)
        try:
            response = self._append(self._verified)
        except Exception as error:
            self._response.fail(error)
        else:
            self._response.resolve(response)

    def try_complete(self, now_ms: int) -> bool:
        return False

    def on_expire(self, now_ms: int) -> None:
        self.wait_for(self._verify())


def _producer_error(error: KafkaError, mode: VerificationMode) -> KafkaError:
    if error.code in _SENT_AS_NOT_ENOUGH_REPLICAS or (
        error.code is ErrorCode.concurrent_transactions and mode is not VerificationMode.ADD
    ):
        return KafkaError(
            ErrorCode.not_enough_replicas,
            f"it cannot be verified now that the partition is in the transaction ({error.code.name}: "
            f"{error.message}); try again",
        )
    return error
