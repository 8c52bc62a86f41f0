"""OffsetCommit, versions 2 to 10: see `protocol/offset_commit_codec.py` for what each of them brought."""

from collections.abc import Iterator
from itertools import repeat
from typing import TYPE_CHECKING

from ottla.broker.connection import Answer
from ottla.broker.dispatch import RequestContext
from ottla.broker.pending import Pending
from ottla.core.controller.image import MetadataImage
from ottla.core.groups.commands import OffsetCommit, OffsetToCommit, PartitionError
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

# The errors of partitions that are not there, in the order of the request; None for those that the group is asked.
Refusals = list[ErrorCode | None]


def handle_body(broker: "Broker", context: RequestContext, body: memoryview) -> Answer | Pending[Answer]:
    version = context.version
    request = decode_offset_commit_request(body, version)
    offsets, refusals = _check_topics(broker.image, request)

    def answer(committed: tuple[PartitionError, ...] | KafkaError) -> Answer:
        given: Iterator[ErrorCode]
        if isinstance(committed, KafkaError):
            given = repeat(committed.code)
        else:
            given = iter([partition.error_code for partition in committed])
        codes = (next(given) if refusal is None else refusal for refusal in refusals)
        return context.respond(encode_offset_commit_response(request.topics, codes, version))

    if not offsets:  # nothing for the group: whether it is there does not matter
        return answer(())
    command = OffsetCommit(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        generation_or_member_epoch=request.generation_or_member_epoch,
        offsets=tuple(offsets),
        can_stale_member_epoch=version >= FIRST_WITH_STALE_MEMBER_EPOCH,
        retention_ms=None if request.retention_ms == NO_RETENTION else request.retention_ms,
    )
    return broker.groups.submit(request.group_id, command).then(answer)


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
        for index, offset, leader_epoch, metadata in partitions:
            if index not in topic.partitions:
                refusals.append(ErrorCode.unknown_topic_or_partition)
                continue
            refusals.append(None)
            offsets.append(OffsetToCommit(topic.name, index, offset, leader_epoch, metadata, topic.topic_id))
    return offsets, refusals
