"""Metadata, versions 0 to 13.

v1 null means all topics (in v0 an empty list does); v4 the client chooses auto-creation (KIP-204); v5 offline replicas;
v7 leader epochs; v8 authorized operations (KIP-430; those of the cluster moved to DescribeCluster in v11); v10 and v12
topics by id (KIP-516); v13 a top-level error (KIP-1102).
"""

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from kio.schema.metadata.v13.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v13.response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

from ottla.broker.active_controller import AUTO_CREATE_TIMEOUT_S
from ottla.broker.authorized_operations import NOT_REQUESTED, TOPIC_OPERATIONS
from ottla.broker.client_view import controller_id_for_clients, nodes_for_client
from ottla.broker.dispatch import RequestContext
from ottla.broker.promise import Promise
from ottla.broker.random_uuid import random_uuid
from ottla.broker.services import BrokerServices
from ottla.core.controller.commands import CreateTopics, NewTopic
from ottla.core.controller.image import MetadataImage, PartitionImage, TopicImage
from ottla.core.controller.topic_names import topic_name_error
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.topics import is_internal


def lift(request: MetadataRequest, as_sent: MetadataRequest, version: int) -> MetadataRequest:
    if version == 0 and not request.topics:
        return MetadataRequest(
            topics=None, allow_auto_topic_creation=True, include_topic_authorized_operations=False
        )
    if not request.topics or len(request.topics) == 1:
        return request
    # As in Kafka, a topic that is named twice has one entry in the response.
    return replace(request, topics=tuple(dict.fromkeys(request.topics)))


async def handle(
    services: BrokerServices, context: RequestContext, request: MetadataRequest
) -> Promise[MetadataResponse]:
    errors: dict[str, ErrorCode] = {}
    if (
        request.topics
        and request.allow_auto_topic_creation
        and services.config.get_bool("auto.create.topics.enable")
    ):
        errors = await _create_missing(services, request.topics)
    image = services.metadata.image
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_REQUESTED
    topics: Promise[list[MetadataResponseTopic]]
    if request.topics is None:
        all_topics = list(image.topics.values())
        topics = services.scheduler.run(all_topics, lambda topic: _describe_topic(image, topic, operations))
    else:
        topics = services.scheduler.run(
            request.topics, lambda topic: _find_topic(image, topic, operations, errors)
        )
    return topics.then(lambda found: _response(services, context, found))


def _response(
    services: BrokerServices, context: RequestContext, topics: list[MetadataResponseTopic]
) -> MetadataResponse:
    return MetadataResponse(
        throttle_time=timedelta(),
        brokers=tuple(
            MetadataResponseBroker(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
            for node in nodes_for_client(services, context.connection)
        ),
        cluster_id=services.cluster_id,
        controller_id=controller_id_for_clients(services),
        topics=tuple(topics),
        error_code=ErrorCode.none,
    )


async def _create_missing(
    services: BrokerServices, wanted: tuple[MetadataRequestTopic, ...]
) -> dict[str, ErrorCode]:
    """Creates the topics that do not exist. Returns the errors of those that could not be created."""
    errors: dict[str, ErrorCode] = {}
    for topic in wanted:
        if topic.name is not None and topic.name not in services.metadata.image.topics:
            # Coordinators create internal topics, with the partitions and configs that they need.
            if topic_name_error(topic.name) is not None or is_internal(topic.name):
                continue
            try:
                await _create_topic(services, topic.name)
            except KafkaError as error:
                if error.code is ErrorCode.not_controller:
                    break  # there is none now: the topics are unknown, and the client asks again
                errors[topic.name] = error.code
    return errors


async def _create_topic(services: BrokerServices, name: str) -> None:
    """Raises KafkaError if the topic cannot be created. It is no error if another request has created it meanwhile."""
    command = CreateTopics(
        (NewTopic(name, random_uuid(services.env)),), placement_start=services.env.random.getrandbits(31)
    )
    (result,) = await services.topic_creation.submit(command, AUTO_CREATE_TIMEOUT_S)
    if result.error.code not in (ErrorCode.none, ErrorCode.topic_already_exists):
        raise KafkaError(result.error.code, result.error.message or f"{name} could not be created")


def _find_topic(
    image: MetadataImage, wanted: MetadataRequestTopic, operations: int, errors: dict[str, ErrorCode]
) -> MetadataResponseTopic:
    if wanted.name is None or wanted.topic_id is not None:  # the Java client sends an empty name with the id
        by_id = None if wanted.topic_id is None else image.topics_by_id.get(wanted.topic_id)
        if by_id is None:
            return _no_topic(ErrorCode.unknown_topic_id, None, wanted.topic_id)
        return _describe_topic(image, by_id, operations)
    found = image.topics.get(wanted.name)
    if found is not None:
        return _describe_topic(image, found, operations)
    if topic_name_error(wanted.name) is not None:
        return _no_topic(ErrorCode.invalid_topic_exception, wanted.name, None)
    return _no_topic(errors.get(wanted.name, ErrorCode.unknown_topic_or_partition), wanted.name, None)


def _no_topic(error: ErrorCode, name: str | None, topic_id: UUID | None) -> MetadataResponseTopic:
    internal = name is not None and is_internal(name)
    return MetadataResponseTopic(
        error_code=error, name=name, topic_id=topic_id, is_internal=internal, partitions=()
    )


def _describe_topic(image: MetadataImage, topic: TopicImage, operations: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.none,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        partitions=tuple(
            _describe_partition(image, index, partition) for index, partition in topic.partitions.items()
        ),
        topic_authorized_operations=operations,
    )


def _describe_partition(
    image: MetadataImage, index: int, partition: PartitionImage
) -> MetadataResponsePartition:
    led = partition.has_leader and image.is_active(partition.leader)
    return MetadataResponsePartition(
        error_code=ErrorCode.none if led else ErrorCode.leader_not_available,
        partition_index=index,
        leader_id=partition.leader if led else -1,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        offline_replicas=tuple(
            replica for replica in partition.replicas if not image.is_available(partition, replica)
        ),
    )
