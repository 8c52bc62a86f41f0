"""OffsetCommit, versions 2 to 10: see `protocol/offset_commit_codec.py` for what each of them brought."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import repeat
from typing import TYPE_CHECKING

from ottla.broker.connection import Answer
from ottla.broker.dispatch import REQUEST_BYTES_ON_LOOP, RequestContext
from ottla.broker.pending import Pending
from ottla.core.controller.image import MetadataImage
from ottla.core.groups.commands import OffsetCommit, OffsetToCommit, PartitionError
from ottla.core.groups.offsets.repeated_commits import CommitTemplate, CommitTemplates
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.offset_commit_codec import (
    NO_RETENTION,
    OffsetCommitRequest,
    decode_offset_commit_request,
    encode_offset_commit_response,
)

if TYPE_CHECKING:
    from ottla.broker.node import Broker

FIRST_WITH_STALE_MEMBER_EPOCH = 9
OFFSETS_PER_TURN = 1000
SHAPE_BYTES_MAX = 16 * 1024  # larger commits are rare, and might not fit into one batch

# The errors of partitions that are not there, in the order of the request; None for those that the group is asked.
Refusals = list[ErrorCode | None]
Committed = tuple[PartitionError, ...] | KafkaError


def handle_body(broker: "Broker", context: RequestContext, body: memoryview) -> Answer | Pending[Answer]:
    if len(body) > REQUEST_BYTES_ON_LOOP:
        decoded = broker.in_worker(lambda: decode_offset_commit_request(body, context.version))
        return decoded.then(lambda request: _commit(broker, context, None, request))
    sent = bytes(body)
    template = broker.groups.templates.find(sent, context.version)
    if template is not None:
        return _commit_again(broker, context, sent, template)
    return _commit(broker, context, sent, decode_offset_commit_request(memoryview(sent), context.version))


def _commit_again(
    broker: "Broker", context: RequestContext, body: bytes, template: CommitTemplate
) -> Answer | Pending[Answer]:
    def answer(committed: Committed) -> Answer:
        if committed is template.accepted:
            return context.respond(template.response)
        topics = decode_offset_commit_request(memoryview(body), context.version).topics
        codes = _codes(committed, [None] * template.count)
        return context.respond(encode_offset_commit_response(topics, codes, context.version))

    committed = broker.groups.submit(template.command.group_id, template.read_commit(body))
    return answer(committed.value) if committed.done else committed.then(answer)


def _commit(
    broker: "Broker", context: RequestContext, body: bytes | None, request: OffsetCommitRequest
) -> Answer | Pending[Answer]:
    """`body` is what `request` was read from, unless it is too large to be a repeated commit's."""
    version = context.version
    offsets, refusals = _check_topics(broker.image, request)

    def answer(committed: Committed) -> Answer:
        codes = list(_codes(committed, refusals))
        response = encode_offset_commit_response(request.topics, iter(codes), version)
        if body is not None and not any(codes):
            _learn(broker.groups.templates, body, version, request, command, response)
        return context.respond(response)

    command = OffsetCommit(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        generation_or_member_epoch=request.generation_or_member_epoch,
        offsets=tuple(offsets),
        supports_stale_member_epoch=version >= FIRST_WITH_STALE_MEMBER_EPOCH,
        retention_ms=None if request.retention_ms == NO_RETENTION else request.retention_ms,
    )
    if not offsets:  # nothing for the group: whether it is there does not matter
        return answer(())
    return _submit(broker, command).then(answer)


def _submit(broker: "Broker", command: OffsetCommit) -> Pending[Committed]:
    """Very many offsets in pieces, for a turn of the event loop each. A refused piece refuses the whole."""
    if len(command.offsets) <= OFFSETS_PER_TURN:
        return broker.groups.submit(command.group_id, command)
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

    return broker.turns.run(pieces, lambda piece: broker.groups.submit(piece.group_id, piece)).then(merge)


def _learn(
    templates: CommitTemplates,
    body: bytes,
    version: int,
    request: OffsetCommitRequest,
    command: OffsetCommit,
    response: bytes,
) -> None:
    """The commit was accepted as it is; when its sender commits again it will mostly be the same, offsets aside."""
    can_repeat = bool(command.offsets) and command.retention_ms is None and len(body) <= SHAPE_BYTES_MAX
    if can_repeat and templates.is_repeated(body, version):
        positions = [partition.position for topic in request.topics for partition in topic.partitions]
        templates.add(body, version, CommitTemplate(body, positions, command, response))


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
