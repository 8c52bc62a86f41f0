"""TxnOffsetCommit, versions 0 to 5: offsets that count when the transaction does.

v2 leader epochs (KIP-320); v3 flexible, the group checks who commits (KIP-447); v4 TRANSACTION_ABORTABLE; v5 the
partition of the group's offsets comes into the transaction with them (KIP-890).
"""

from collections.abc import Iterator, Mapping
from itertools import repeat

from kio.schema.txn_offset_commit.v5.request import TxnOffsetCommitRequest
from kio.schema.txn_offset_commit.v5.response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

from ottla.broker.coordinators.verification import Entry, ask_coordinator, verification_is_on
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
# The errors of partitions that are not there, in the order of the request; None for those that the group is asked.
Refusals = list[ErrorCode | None]


def handle(
    services: BrokerServices, context: RequestContext, request: TxnOffsetCommitRequest
) -> Promise[TxnOffsetCommitResponse]:
    offsets, refusals = _check_topics(services.metadata.image, request)

    def answer(committed: Committed) -> TxnOffsetCommitResponse:
        given: Iterator[ErrorCode]
        if isinstance(committed, KafkaError):
            given = repeat(_told(committed.code, context.version))
        else:
            given = iter([partition.error_code for partition in committed])
        return _response(request, [next(given) if code is None else code for code in refusals])

    if not offsets:
        return completed(answer(()))
    return _commit(services, context.version, request, tuple(offsets)).then(answer)


def _commit(
    services: BrokerServices,
    version: int,
    request: TxnOffsetCommitRequest,
    offsets: tuple[OffsetToCommit, ...],
) -> Promise[Committed]:
    """Once it is sure that the transaction has the partition of the group's offsets."""
    if not request.group_id:
        return completed(KafkaError(ErrorCode.invalid_group_id, "the group id is empty: name the group"))
    if request.producer_id < 0 or request.producer_epoch < 0:
        nobody = f"there is no producer {request.producer_id} with epoch {request.producer_epoch}"
        return completed(KafkaError(ErrorCode.invalid_producer_id_mapping, nobody))
    command = TxnOffsetCommit(
        group_id=request.group_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        generation_id=request.generation_id,
        offsets=offsets,
    )
    shard = services.groups.get().shards.shard_of(request.group_id)
    if shard is None:  # the refusal says so
        return services.groups.get().submit(request.group_id, command)
    hosted, partition = shard.hosted, shard.hosted.topic_partition
    entry = _entry(version)
    try:
        verification = hosted.log.producers.start_verification(
            request.producer_id,
            request.producer_epoch,
            NO_SEQUENCE,
            services.env.clock.now_ms(),
            epoch_per_transaction=entry.epoch_per_transaction,
        )
    except KafkaError as error:
        return completed(error)
    if verification is None or not verification_is_on(services, entry):
        return services.groups.get().submit(request.group_id, command)

    def asked(refused: Mapping[TopicPartition, KafkaError]) -> Committed | Promise[Committed]:
        if partition in refused:
            return refused[partition]
        if not hosted.log.producers.is_verified(request.producer_id, verification):
            gone = f"the transaction of {request.transactional_id!r} has ended"
            return KafkaError(ErrorCode.invalid_txn_state, gone)
        return services.groups.get().submit(request.group_id, command)

    return ask_coordinator(
        services,
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        [partition],
        entry,
    ).then(asked)


def _entry(version: int) -> Entry:
    if version >= FIRST_THAT_ADDS_PARTITIONS:
        return Entry.ADDED
    return Entry.VERIFIED_OR_ABORTABLE if version >= FIRST_WITH_ABORTABLE else Entry.VERIFIED


def _told(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.coordinator_load_in_progress and version < FIRST_THAT_KNOWS_LOADING:
        return ErrorCode.coordinator_not_available  # older producers would fail for good
    return code


def _check_topics(
    image: MetadataImage, request: TxnOffsetCommitRequest
) -> tuple[list[OffsetToCommit], Refusals]:
    offsets: list[OffsetToCommit] = []
    refusals: Refusals = []
    for asked in request.topics:
        topic = image.topics.get(asked.name)
        for each in asked.partitions:
            if topic is None or each.partition_index not in topic.partitions:
                refusals.append(ErrorCode.unknown_topic_or_partition)
                continue
            refusals.append(None)
            offsets.append(
                OffsetToCommit(
                    topic.name,
                    each.partition_index,
                    each.committed_offset,
                    each.committed_leader_epoch,
                    each.committed_metadata,
                    topic.topic_id,
                )
            )
    return offsets, refusals


def _response(request: TxnOffsetCommitRequest, codes: list[ErrorCode]) -> TxnOffsetCommitResponse:
    given = iter(codes)
    return TxnOffsetCommitResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=next(given)
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )
