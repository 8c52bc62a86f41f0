"""OffsetCommit, versions 2 to 10: see `protocol/offset_commit_codec.py` for what each of them brought."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import repeat

from ottla.broker.connection import ResponseParts
from ottla.broker.dispatch import REQUEST_BYTES_ON_LOOP, RequestContext
from ottla.broker.promise import Promise
from ottla.broker.services import BrokerServices
from ottla.core.controller.image import MetadataImage
from ottla.core.groups.commands import OffsetCommit, OffsetToCommit, PartitionError
from ottla.core.groups.offsets.repetition import CommitShape, CommitShapes
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.offset_commit_codec import (
    NO_RETENTION,
    OffsetCommitRequest,
    decode_offset_commit_request,
    encode_offset_commit_response,
)

FIRST_WITH_STALE_MEMBER_EPOCH = 9
OFFSETS_PER_TURN = 1000
SHAPE_BYTES_MAX = 16 * 1024  # larger commits are rare, and might not fit into one batch

# The errors of partitions that are not there, in the order of the request; None for those that the group is asked.
Refusals = list[ErrorCode | None]
Committed = tuple[PartitionError, ...] | KafkaError


def handle_body(
    services: BrokerServices, context: RequestContext, body: memoryview
) -> ResponseParts | Promise[ResponseParts]:
    if len(body) > REQUEST_BYTES_ON_LOOP:
        decoded = services.message_thread.submit(lambda: decode_offset_commit_request(body, context.version))
        return decoded.then(lambda request: _commit(services, context, None, request))
    sent = bytes(body)
    shape = services.groups.get().shapes.find(sent, context.version)
    if shape is not None:
        return _commit_again(services, context, sent, shape)
    return _commit(services, context, sent, decode_offset_commit_request(memoryview(sent), context.version))


def _commit_again(
    services: BrokerServices, context: RequestContext, body: bytes, shape: CommitShape
) -> ResponseParts | Promise[ResponseParts]:
    def answer(committed: Committed) -> ResponseParts:
        if committed is shape.accepted:
            return context.respond(shape.response)
        topics = decode_offset_commit_request(memoryview(body), context.version).topics
        codes = _codes(committed, [None] * shape.count)
        return context.respond(encode_offset_commit_response(topics, codes, context.version))

    committed = services.groups.get().submit(shape.command.group_id, shape.again(body))
    return answer(committed.value) if committed.done else committed.then(answer)


def _commit(
    services: BrokerServices, context: RequestContext, body: bytes | None, request: OffsetCommitRequest
) -> ResponseParts | Promise[ResponseParts]:
    """`body` is what `request` was read from, unless it is too large to be a repeated commit's."""
    version = context.version
    offsets, refusals = _check_topics(services.metadata.image, request)

    def answer(committed: Committed) -> ResponseParts:
        codes = list(_codes(committed, refusals))
        response = encode_offset_commit_response(request.topics, iter(codes), version)
        if body is not None and not any(codes):
            _learn(services.groups.get().shapes, body, version, request, command, response)
        return context.respond(response)

    command = OffsetCommit(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        generation_or_member_epoch=request.generation_or_member_epoch,
        offsets=tuple(offsets),
        can_stale_member_epoch=version >= FIRST_WITH_STALE_MEMBER_EPOCH,
        retention_ms=None if request.retention_ms == NO_RETENTION else request.retention_ms,
    )
    if not offsets:  # nothing for the group: whether it is there does not matter
        return answer(())
    return _submit(services, command).then(answer)


def _submit(services: BrokerServices, command: OffsetCommit) -> Promise[Committed]:
    """Very many offsets in pieces, for a turn of the event loop each. A refused piece refuses the whole."""
    if len(command.offsets) <= OFFSETS_PER_TURN:
        return services.groups.get().submit(command.group_id, command)
    pieces = [
        replace(command, offsets=command.offsets[start : start + OFFSETS_PER_TURN])
        for start in range(0, len(command.offsets), OFFSETS_PER_TURN)
    ]

    def merge(committed: list[Committed]) -> Committed:
        merged: list[PartitionError] = []
        for some in committed:
            if isinstance(some, KafkaError):
                return some
            merged += some
        return tuple(merged)

    return services.scheduler.run(
        pieces, lambda piece: services.groups.get().submit(piece.group_id, piece)
    ).then(merge)


def _learn(
    shapes: CommitShapes,
    body: bytes,
    version: int,
    request: OffsetCommitRequest,
    command: OffsetCommit,
    response: bytes,
) -> None:
    """The commit was accepted as it is; when its sender commits again it will mostly be the same, offsets aside."""
    can_repeat = bool(command.offsets) and command.retention_ms is None and len(body) <= SHAPE_BYTES_MAX
    if can_repeat and shapes.is_repeated(body, version):
        positions = [partition.position for topic in request.topics for partition in topic.partitions]
        shapes.learn(body, version, CommitShape(body, positions, command, response))


def _codes(committed: Committed, refusals: Refusals) -> Iterator[ErrorCode]:
    given: Iterator[ErrorCode]
    if isinstance(committed, KafkaError):
        given = repeat(committed.code)
    else:
        given = iter([partition.error_code for partition in committed])
    return (next(given) if refusal is None else refusal for refusal in refusals)


def _check_topics(
    image: MetadataImage, request: OffsetCommitRequest
) -> tuple[list[OffsetToCommit], Refusals]:
    offsets: list[OffsetToCommit] = []
    refusals: Refusals = []
    for name, topic_id, partitions in request.topics:
        if topic_id is not None:
            topic, missing = image.topics_by_id.get(topic_id), ErrorCode.unknown_topic_id
        else:
            topic, missing = image.topics.get(name or ""), ErrorCode.unknown_topic_or_partition
        if topic is None:
            refusals += [missing] * len(partitions)
            continue
        for index, offset, leader_epoch, metadata, _ in partitions:
            if index not in topic.partitions:
                refusals.append(ErrorCode.unknown_topic_or_partition)
                continue
            refusals.append(None)
            offsets.append(OffsetToCommit(topic.name, index, offset, leader_epoch, metadata, topic.topic_id))
    return offsets, refusals
