"""OffsetCommit, versions 2 to 10. `protocol/offset_commit_codec.py` lists what each version added."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import repeat

from ottla.broker.connection import ResponseParts
from ottla.broker.dispatch import RequestContext
from ottla.broker.long_requests import ELEMENTS_PER_SLICE, REQUEST_BYTES_ON_LOOP, is_long, submit_in_slices
from ottla.broker.promise import Promise
from ottla.broker.services import BrokerServices
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

FIRST_WITH_STALE_MEMBER_EPOCH = 9
SHAPE_BYTES_MAX = 16 * 1024  # larger commits are rare, and might not fit into one batch

# In the order of the request: errors of partitions that do not exist; None for those that the group gets.
PartitionErrors = list[ErrorCode | None]
Committed = tuple[PartitionError, ...] | KafkaError


def handle_body(
    services: BrokerServices, context: RequestContext, body: memoryview
) -> ResponseParts | Promise[ResponseParts]:
    if len(body) > REQUEST_BYTES_ON_LOOP:
        decoded = services.message_thread.submit(lambda: decode_offset_commit_request(body, context.version))
        return decoded.then(lambda request: _commit(services, context, None, request))
    sent = bytes(body)
    template = services.groups.get().templates.find(sent, context.version)
    if template is not None:
        return _commit_repeated(services, context, sent, template)
    return _commit(services, context, sent, decode_offset_commit_request(memoryview(sent), context.version))


def _commit_repeated(
    services: BrokerServices, context: RequestContext, body: bytes, template: CommitTemplate
) -> ResponseParts | Promise[ResponseParts]:
    def respond(committed: Committed) -> ResponseParts:
        if committed is template.accepted:
            return context.respond(template.response)
        topics = decode_offset_commit_request(memoryview(body), context.version).topics
        codes = _codes(committed, [None] * template.count)
        return context.respond(encode_offset_commit_response(topics, codes, context.version))

    committed = services.groups.get().submit(template.command.group_id, template.read_commit(body))
    return respond(committed.value) if committed.done else committed.then(respond)


def _commit(
    services: BrokerServices, context: RequestContext, body: bytes | None, request: OffsetCommitRequest
) -> ResponseParts | Promise[ResponseParts]:
    """`body` is the encoded `request`, or None if it is too large to be kept as the template of a repeated commit."""
    image = services.metadata.image
    if not is_long(topic.partitions for topic in request.topics):
        return _commit_checked(services, context, image, body, request, _check_topics(image, request))
    return services.message_thread.submit(lambda: _check_topics(image, request)).then(
        lambda checked: _commit_checked(services, context, image, None, request, checked)
    )


def _commit_checked(
    services: BrokerServices,
    context: RequestContext,
    image: MetadataImage,
    body: bytes | None,
    request: OffsetCommitRequest,
    checked: tuple[list[OffsetToCommit], PartitionErrors],
) -> ResponseParts | Promise[ResponseParts]:
    version = context.version
    offsets, errors = checked

    def encode(committed: Committed) -> tuple[list[ErrorCode], bytes]:
        codes = list(_codes(committed, errors))
        return codes, encode_offset_commit_response(request.topics, iter(codes), version)

    def respond(committed: Committed) -> ResponseParts | Promise[ResponseParts]:
        if len(errors) > ELEMENTS_PER_SLICE:
            encoded = services.message_thread.submit(lambda: encode(committed))
            return encoded.then(lambda codes_and_response: context.respond(codes_and_response[1]))
        codes, response = encode(committed)
        # A template of topics that were checked in an older image would accept commits for deleted ones.
        if body is not None and not any(codes) and services.metadata.image is image:
            _learn(services.groups.get().templates, body, version, request, command, response)
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
    if not offsets:  # the group gets nothing, so it need not exist
        return respond(())
    return _submit(services, command).then(respond)


def _submit(services: BrokerServices, command: OffsetCommit) -> Promise[Committed]:
    groups = services.groups.get()
    if len(command.offsets) <= ELEMENTS_PER_SLICE:
        return groups.submit(command.group_id, command)
    return submit_in_slices(
        services,
        command.offsets,
        lambda offsets: groups.submit(command.group_id, replace(command, offsets=tuple(offsets))),
    )


def _learn(
    templates: CommitTemplates,
    body: bytes,
    version: int,
    request: OffsetCommitRequest,
    command: OffsetCommit,
    response: bytes,
) -> None:
    """Remembers an accepted commit: the next one of this member is mostly the same, except for the offsets."""
    can_repeat = bool(command.offsets) and command.retention_ms is None and len(body) <= SHAPE_BYTES_MAX
    if can_repeat and templates.is_repeated(body, version):
        positions = [partition.position for topic in request.topics for partition in topic.partitions]
        templates.add(body, version, CommitTemplate(body, positions, command, response))


def _codes(committed: Committed, errors: PartitionErrors) -> Iterator[ErrorCode]:
    codes: Iterator[ErrorCode]
    if isinstance(committed, KafkaError):
        codes = repeat(committed.code)
    else:
        codes = iter([partition.error_code for partition in committed])
    return (next(codes) if error is None else error for error in errors)


def _check_topics(
    image: MetadataImage, request: OffsetCommitRequest
) -> tuple[list[OffsetToCommit], PartitionErrors]:
    offsets: list[OffsetToCommit] = []
    errors: PartitionErrors = []
    for name, topic_id, partitions in request.topics:
        if topic_id is not None:
            topic, missing = image.topics_by_id.get(topic_id), ErrorCode.unknown_topic_id
        else:
            topic, missing = image.topics.get(name or ""), ErrorCode.unknown_topic_or_partition
        if topic is None:
            errors += [missing] * len(partitions)
            continue
        for index, offset, leader_epoch, metadata, _ in partitions:
            if index not in topic.partitions:
                errors.append(ErrorCode.unknown_topic_or_partition)
                continue
            errors.append(None)
            offsets.append(OffsetToCommit(topic.name, index, offset, leader_epoch, metadata, topic.topic_id))
    return offsets, errors
