"""TxnOffsetCommit, versions 0 to 5: offsets that become visible when the transaction commits.

v2 leader epochs (KIP-320); v3 flexible, the group checks the member (KIP-447); v4 TRANSACTION_ABORTABLE; v5 the broker
adds the partition of the group's offsets to the transaction (KIP-890).
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import repeat

from kio.schema.txn_offset_commit.v5.request import TxnOffsetCommitRequest
from kio.schema.txn_offset_commit.v5.response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

from ottla.broker.coordinators.shard_runtime import ShardRuntime
from ottla.broker.coordinators.verification import (
    VerificationMode,
    verification_is_enabled,
    verification_mode,
    verify_partitions,
)
from ottla.broker.dispatch import RequestContext
from ottla.broker.group_requests import NO_THROTTLE
from ottla.broker.long_requests import is_long, prepare, submit_in_slices
from ottla.broker.promise import Promise, completed
from ottla.broker.services import BrokerServices
from ottla.core.controller.image import MetadataImage
from ottla.core.groups.commands import OffsetToCommit, PartitionError, TxnOffsetCommit
from ottla.core.groups.shard import GroupShard
from ottla.core.partition.producers import Verification
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_SEQUENCE, TopicPartition

FIRST_THAT_KNOWS_LOADING = 2
FIRST_WITH_ABORTABLE = 4
FIRST_THAT_ADDS_PARTITIONS = 5

Committed = tuple[PartitionError, ...] | KafkaError
# In the order of the request: errors of partitions that do not exist; None for those that the group gets.
PartitionErrors = list[ErrorCode | None]


def handle(
    services: BrokerServices, context: RequestContext, request: TxnOffsetCommitRequest
) -> Promise[TxnOffsetCommitResponse]:
    in_thread = is_long(topic.partitions for topic in request.topics)
    image = services.metadata.image

    def commit(
        checked: tuple[list[OffsetToCommit], PartitionErrors],
    ) -> Promise[TxnOffsetCommitResponse]:
        offsets, errors = checked
        committed: Promise[Committed] = completed(())
        if offsets:
            committed = _commit(services, context.version, request, tuple(offsets))
        return committed.then(
            lambda codes: prepare(
                services,
                lambda: _response(request, _codes(codes, errors, context.version)),
                in_thread=in_thread,
            )
        )

    return prepare(services, lambda: _check_topics(image, request), in_thread=in_thread).then(commit)


def _codes(committed: Committed, errors: PartitionErrors, version: int) -> list[ErrorCode]:
    codes: Iterator[ErrorCode]
    if isinstance(committed, KafkaError):
        codes = repeat(_error_code_for_version(committed.code, version))
    else:
        codes = iter([partition.error_code for partition in committed])
    return [next(codes) if error is None else error for error in errors]


def _commit(
    services: BrokerServices,
    version: int,
    request: TxnOffsetCommitRequest,
    offsets: tuple[OffsetToCommit, ...],
) -> Promise[Committed]:
    """Commits the offsets after verifying that the partition of the group's offsets is in the transaction.

    Very many offsets are committed in slices. If one fails, the producer gets an error and must abort, and the offsets
    of the other slices are dropped with the transaction.
    """
    if not request.group_id:
        return completed(KafkaError(ErrorCode.invalid_group_id, "the group id is empty: set group.id"))
    if request.producer_id < 0 or request.producer_epoch < 0:
        message = f"there is no producer {request.producer_id} with epoch {request.producer_epoch}"
        return completed(KafkaError(ErrorCode.invalid_producer_id_mapping, message))
    runtime = services.groups.get().runtimes.for_key(request.group_id)
    if runtime is None:  # `_submit` returns the error
        return _submit(services, request, offsets[:1])
    mode = verification_mode(version, FIRST_WITH_ABORTABLE, FIRST_THAT_ADDS_PARTITIONS)
    transaction = _Transaction(services, request, runtime, mode)
    try:
        transaction.start()
    except KafkaError as error:
        return completed(error)
    if not verification_is_enabled(services, mode):
        return submit_in_slices(services, offsets, partial(_submit, services, request))
    if transaction.verification is None:
        return submit_in_slices(services, offsets, transaction.submit)
    partition = runtime.hosted.topic_partition

    def commit(errors: Mapping[TopicPartition, KafkaError]) -> Committed | Promise[Committed]:
        return errors.get(partition) or submit_in_slices(services, offsets, transaction.submit)

    return verify_partitions(
        services,
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        [partition],
        mode,
    ).then(commit)


def _submit(
    services: BrokerServices, request: TxnOffsetCommitRequest, part: Sequence[OffsetToCommit]
) -> Promise[Committed]:
    command = TxnOffsetCommit(
        group_id=request.group_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        generation_id=request.generation_id,
        offsets=tuple(part),
    )
    return services.groups.get().submit(request.group_id, command)


class _Transaction:
    """The transaction of a request. It must be open with each slice: nobody would end one that a late slice opens."""

    def __init__(
        self,
        services: BrokerServices,
        request: TxnOffsetCommitRequest,
        runtime: ShardRuntime[GroupShard],
        mode: VerificationMode,
    ) -> None:
        self._services = services
        self._request = request
        self._runtime = runtime
        self._mode = mode
        self.verification: Verification | None = None

    def start(self) -> None:
        """Starts the verification, unless the transaction is open here already. Raises KafkaError for an old epoch."""
        self.verification = self._verification()

    def submit(self, part: Sequence[OffsetToCommit]) -> Promise[Committed]:
        try:
            self._check()
        except KafkaError as error:
            return completed(error)
        return _submit(self._services, self._request, part)

    def _check(self) -> None:
        group_id, runtime = self._request.group_id, self._runtime
        if (
            self._services.groups.get().runtimes.for_key(group_id) is not runtime
            or not runtime.has_leadership
        ):
            # The log may have been truncated, and the verification dropped with it. The transaction may still be open.
            raise KafkaError(
                ErrorCode.not_coordinator, f"the group {group_id!r} was moved during the request"
            )
        now = self._verification()  # None after the first slice, which has opened the transaction here
        if now is not None and now is not self.verification:
            message = f"the transaction of {self._request.transactional_id!r} has ended"
            raise KafkaError(ErrorCode.invalid_txn_state, message)

    def _verification(self) -> Verification | None:
        return self._runtime.hosted.log.producers.start_verification(
            self._request.producer_id,
            self._request.producer_epoch,
            NO_SEQUENCE,
            self._services.env.clock.now_ms(),
            epoch_per_transaction=self._mode.epoch_per_transaction,
        )


def _error_code_for_version(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.coordinator_load_in_progress and version < FIRST_THAT_KNOWS_LOADING:
        return ErrorCode.coordinator_not_available  # older producers do not retry the other code
    return code


def _check_topics(
    image: MetadataImage, request: TxnOffsetCommitRequest
) -> tuple[list[OffsetToCommit], PartitionErrors]:
    offsets: list[OffsetToCommit] = []
    errors: PartitionErrors = []
    for asked in request.topics:
        topic = image.topics.get(asked.name)
        for partition in asked.partitions:
            if topic is None or partition.partition_index not in topic.partitions:
                errors.append(ErrorCode.unknown_topic_or_partition)
                continue
            errors.append(None)
            offsets.append(
                OffsetToCommit(
                    topic.name,
                    partition.partition_index,
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.committed_metadata,
                    topic.topic_id,
                )
            )
    return offsets, errors


def _response(request: TxnOffsetCommitRequest, codes: list[ErrorCode]) -> TxnOffsetCommitResponse:
    next_code = iter(codes)
    return TxnOffsetCommitResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=next(next_code)
                    )
                    for partition in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )
