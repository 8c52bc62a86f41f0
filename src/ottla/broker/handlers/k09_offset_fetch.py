"""OffsetFetch, versions 1 to 10.

v2 null asks for all partitions, and the group has an error code; v5 leader epochs (KIP-320); v6 flexible; v7 stable
offsets only (KIP-447); v8 many groups (KIP-709); v9 member epochs and v10 topic ids (KIP-848). A message has either
names or ids, so there are two shapes: requests of v1 to v9 are lifted to v9.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID

from kio.schema.offset_fetch.v7 import response as v7
from kio.schema.offset_fetch.v9 import request as v9_request
from kio.schema.offset_fetch.v9 import response as v9
from kio.schema.offset_fetch.v10 import request as v10_request
from kio.schema.offset_fetch.v10 import response as v10

from ottla.broker.dispatch import RequestContext
from ottla.broker.group_requests import NO_THROTTLE
from ottla.broker.promise import Promise, completed
from ottla.broker.services import BrokerServices
from ottla.broker.topic_slices import run_by_topic
from ottla.core.controller.image import MetadataImage
from ottla.core.groups.commands import CommittedOffset, OffsetFetch
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition
from ottla.protocol.messages import converter

FIRST_WITH_GROUP_ERROR = 2
FIRST_WITH_MANY_GROUPS = 8
FIRST_WITH_TOPIC_IDS = 10
ENTRIES_PER_SLICE = 1000

Request = v9_request.OffsetFetchRequest | v10_request.OffsetFetchRequest
Response = v9.OffsetFetchResponse | v10.OffsetFetchResponse
Group = v9_request.OffsetFetchRequestGroup | v10_request.OffsetFetchRequestGroup


class Topic(NamedTuple):
    """`name` is None if the topic id is unknown; `topic_id` is None if the client sent names."""

    name: str | None
    topic_id: UUID | None
    partitions: tuple[int, ...]


class FetchedTopic(NamedTuple):
    name: str | None
    topic_id: UUID | None
    partitions: list[CommittedOffset]


def lift(request: v10_request.OffsetFetchRequest, as_sent: Any, version: int) -> Request:
    if version >= FIRST_WITH_TOPIC_IDS:
        # A group that is named twice has one entry in the response.
        return replace(request, groups=tuple(dict.fromkeys(request.groups)))
    if version >= FIRST_WITH_MANY_GROUPS:
        by_name = converter(as_sent.__class__, v9_request.OffsetFetchRequest)(as_sent)
        return v9_request.OffsetFetchRequest(
            groups=tuple(dict.fromkeys(by_name.groups)), require_stable=by_name.require_stable
        )
    group = v9_request.OffsetFetchRequestGroup(
        group_id=as_sent.group_id,
        topics=None
        if as_sent.topics is None
        else tuple(
            v9_request.OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in as_sent.topics
        ),
    )
    return v9_request.OffsetFetchRequest(groups=(group,), require_stable=request.require_stable)


def lower(response: Response, version: int) -> Any:
    if version >= FIRST_WITH_MANY_GROUPS:
        return response
    (group,) = response.groups
    lowered = converter(v9.OffsetFetchResponseTopics, v7.OffsetFetchResponseTopic)
    return v7.OffsetFetchResponse(
        throttle_time=response.throttle_time,
        topics=tuple(lowered(topic) for topic in group.topics),
        error_code=group.error_code,
    )


def handle(services: BrokerServices, context: RequestContext, request: Request) -> Promise[Response]:
    version = context.version
    shape: Any = v10 if version >= FIRST_WITH_TOPIC_IDS else v9

    def respond(groups: list[Any]) -> Response:
        response: Response = shape.OffsetFetchResponse(throttle_time=NO_THROTTLE, groups=tuple(groups))
        return response

    groups: tuple[Group, ...] = request.groups
    return services.scheduler.run(
        groups, lambda group: _fetch(services, group, request.require_stable, version)
    ).then(respond)


def _fetch(services: BrokerServices, group: Group, require_stable: bool, version: int) -> Promise[Any]:
    """The response for one group, in the shape of v9 or v10."""
    shape: Any = v10 if version >= FIRST_WITH_TOPIC_IDS else v9
    requested = _requested_topics(services.metadata.image, group)

    def fetch(topics: list[Topic] | None) -> Promise[list[FetchedTopic] | KafkaError]:
        return _fetch_topics(services, group, topics, require_stable, version)

    def respond_partition(topic: FetchedTopic, offset: CommittedOffset) -> Any:
        return _response_partition(shape, offset)

    def respond(fetched: list[list[FetchedTopic] | KafkaError]) -> Promise[Any]:
        topics: list[FetchedTopic] = []
        for part in fetched:
            if isinstance(part, KafkaError):
                return completed(_response_group(shape, group.group_id, part.code, ()))
            topics += part
        results = run_by_topic(
            services.scheduler,
            _join(topics),
            respond_partition,
            lambda topic, partitions: _response_topic(shape, topic, partitions),
        )
        return results.then(lambda done: _response_group(shape, group.group_id, ErrorCode.none, done))

    slices = [None] if requested is None else _slice(requested)
    return services.scheduler.run(slices, fetch).then(respond)


def _fetch_topics(
    services: BrokerServices, group: Group, requested: list[Topic] | None, require_stable: bool, version: int
) -> Promise[list[FetchedTopic] | KafkaError]:
    command = OffsetFetch(
        group_id=group.group_id,
        partitions=None
        if requested is None
        else tuple(
            [
                TopicPartition(name, index)
                for name, _, partitions in requested
                if name is not None
                for index in partitions
            ]
        ),
        member_id=group.member_id,
        member_epoch=group.member_epoch,
        require_stable=require_stable,
    )

    def to_topics(fetched: tuple[CommittedOffset, ...] | KafkaError) -> list[FetchedTopic] | KafkaError:
        if not isinstance(fetched, KafkaError):
            if requested is not None:
                return _fetched_topics(requested, fetched)
            topics = _all_topics(services.metadata.image, fetched)
            if version >= FIRST_WITH_TOPIC_IDS:  # the response cannot name a topic without an id
                topics = [topic for topic in topics if topic.topic_id is not None]
            return topics
        code = _client_error(fetched.code)
        if version >= FIRST_WITH_GROUP_ERROR:
            return KafkaError(code, fetched.message)
        return [
            FetchedTopic(topic.name, None, [_error_offset(index, code) for index in topic.partitions])
            for topic in requested or ()
        ]

    return services.groups.get().submit(group.group_id, command).then(to_topics)


def _client_error(code: ErrorCode) -> ErrorCode:
    """As in Kafka: Java consumers before 3.9 fail with COORDINATOR_NOT_AVAILABLE. NOT_COORDINATOR they retry, and they
    look for the coordinator before, which helps if this one is cut off.
    """
    return ErrorCode.not_coordinator if code is ErrorCode.coordinator_not_available else code


def _slice(requested: list[Topic]) -> list[list[Topic] | None]:
    """Slices that one turn of the event loop has time for. All but the largest requests are one slice."""
    part: list[Topic] = []
    slices: list[list[Topic] | None] = [part]
    left = ENTRIES_PER_SLICE
    for topic in requested:
        start, count = 0, len(topic.partitions)
        while start == 0 or start < count:
            if left <= 0:
                part, left = [], ENTRIES_PER_SLICE
                slices.append(part)
            some = topic.partitions[start : start + left]
            part.append(topic if len(some) == count else topic._replace(partitions=some))
            left -= len(some) + 1
            start += len(some) or 1
    return slices


def _join(topics: list[FetchedTopic]) -> list[FetchedTopic]:
    """Joins the parts of topics that were in two slices."""
    joined: list[FetchedTopic] = []
    for topic in topics:
        if joined and joined[-1][:2] == topic[:2]:
            joined[-1].partitions.extend(topic.partitions)
        else:
            joined.append(topic)
    return joined


def _requested_topics(image: MetadataImage, group: Group) -> list[Topic] | None:
    if group.topics is None:
        return None
    requested = []
    for topic in group.topics:
        if isinstance(topic, v9_request.OffsetFetchRequestTopics):
            requested.append(Topic(topic.name, None, topic.partition_indexes))
        else:
            known = None if topic.topic_id is None else image.topics_by_id.get(topic.topic_id)
            requested.append(
                Topic(None if known is None else known.name, topic.topic_id, topic.partition_indexes)
            )
    return requested


def _fetched_topics(requested: list[Topic], fetched: tuple[CommittedOffset, ...]) -> list[FetchedTopic]:
    """`fetched` has the partitions of the topics in `requested` whose id is known, in their order."""
    offsets = iter(fetched)
    topics = []
    for name, topic_id, indexes in requested:
        if name is None:
            partitions = [_error_offset(index, ErrorCode.unknown_topic_id) for index in indexes]
        else:
            partitions = [_of_topic(next(offsets), topic_id) for _ in indexes]
        topics.append(FetchedTopic(name, topic_id, partitions))
    return topics


def _of_topic(offset: CommittedOffset, topic_id: UUID | None) -> CommittedOffset:
    """An offset that was committed for a deleted topic of the same name is not valid for this topic."""
    if topic_id is None or offset.topic_id in (None, topic_id):
        return offset
    return CommittedOffset(offset.topic, offset.partition)


def _all_topics(image: MetadataImage, fetched: tuple[CommittedOffset, ...]) -> list[FetchedTopic]:
    topics: dict[str, FetchedTopic] = {}
    for offset in fetched:
        topic = topics.get(offset.topic)
        if topic is None:
            known = image.topics.get(offset.topic)
            topic_id = offset.topic_id or (None if known is None else known.topic_id)
            topic = topics[offset.topic] = FetchedTopic(offset.topic, topic_id, [])
        topic.partitions.append(offset)
    return list(topics.values())


def _error_offset(index: int, code: ErrorCode) -> CommittedOffset:
    return CommittedOffset("", index, error_code=code)


def _response_group(shape: Any, group_id: str, code: ErrorCode, topics: Sequence[Any]) -> Any:
    return shape.OffsetFetchResponseGroup(group_id=group_id, error_code=code, topics=tuple(topics))


def _response_topic(shape: Any, topic: FetchedTopic, partitions: tuple[Any, ...]) -> Any:
    key = {"topic_id": topic.topic_id} if shape is v10 else {"name": topic.name}
    return shape.OffsetFetchResponseTopics(**key, partitions=partitions)


def _response_partition(shape: Any, offset: CommittedOffset) -> Any:
    return shape.OffsetFetchResponsePartitions(
        partition_index=offset.partition,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        error_code=offset.error_code,
    )
