"""TxnOffsetCommit, versions 0 to 5: offsets that become visible when the transaction commits.

v2 leader epochs (KIP-320); v3 flexible, the group checks the member (KIP-447); v4 TRANSACTION_ABORTABLE; v5 the broker
adds the partition of the group's offsets to the transaction (KIP-890).
"""

from collections.abc import Iterator, Mapping
from itertools import repeat

from kio.schema.txn_offset_commit.v5.request import TxnOffsetCommitRequest
from kio.schema.txn_offset_commit.v5.response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

from ottla.broker.coordinators.verification import (
    verification_is_enabled,
    verification_mode,
    verify_partitions,
)
from ottla.broker.dispatch import RequestContext
from ottla.broker.group_requests import NO_THROTTLE
from ottla.broker.promise import Promise, completed
from ottla.broker.services import BrokerServices
from ottla.core.controller.image import MetadataImage
from ottla.core.groups.commands import OffsetToCommit, PartitionError, TxnOffsetCommit
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
    offsets, errors = _check_topics(services.metadata.image, request)

    def respond(committed: Committed) -> TxnOffsetCommitResponse:
        codes: Iterator[ErrorCode]
        if isinstance(committed, KafkaError):
            codes = repeat(_error_code_for_version(committed.code, context.version))
        else:
            codes = iter([partition.error_code for partition in committed])
        return _response(request, [next(codes) if error is None else error for error in errors])

    if not offsets:
        return completed(respond(()))
    return _commit(services, context.version, request, tuple(offsets)).then(respond)


def _commit(
    services: BrokerServices,
    version: int,
    request: TxnOffsetCommitRequest,
    offsets: tuple[OffsetToCommit, ...],
) -> Promise[Committed]:
    """Commits the offsets after verifying that the partition of the group's offsets is in the transaction."""
    if not request.group_id:
        return completed(KafkaError(ErrorCode.invalid_group_id, "the group id is empty: set group.id"))
    if request.producer_id < 0 or request.producer_epoch < 0:
        message = f"there is no producer {request.producer_id} with epoch {request.producer_epoch}"
        return completed(KafkaError(ErrorCode.invalid_producer_id_mapping, message))
    command = TxnOffsetCommit(
        group_id=request.group_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        generation_id=request.generation_id,
        offsets=offsets,
    )
    groups = services.groups.get()
    runtime = groups.runtimes.for_key(request.group_id)
    if runtime is None:  # `submit` returns the error
        return groups.submit(request.group_id, command)
    hosted, partition = runtime.hosted, runtime.hosted.topic_partition
    mode = verification_mode(version, FIRST_WITH_ABORTABLE, FIRST_THAT_ADDS_PARTITIONS)
    try:
        verification = hosted.log.producers.start_verification(
            request.producer_id,
            request.producer_epoch,
            NO_SEQUENCE,
            services.env.clock.now_ms(),
            epoch_per_transaction=mode.epoch_per_transaction,
        )
    except KafkaError as error:
        return completed(error)
    if verification is None or not verification_is_enabled(services, mode):
        return groups.submit(request.group_id, command)

    def commit(errors: Mapping[TopicPartition, KafkaError]) -> Committed | Promise[Committed]:
        if partition in errors:
            return errors[partition]
        if not hosted.log.producers.is_verified(request.producer_id, verification):
            message = f"the transaction of {request.transactional_id!r} has ended"
            return KafkaError(ErrorCode.invalid_txn_state, message)
        return groups.submit(request.group_id, command)

    return verify_partitions(
        services,
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        [partition],
        mode,
    ).then(commit)


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
