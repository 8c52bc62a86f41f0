"""CreateTopics, versions 2 to 7. v4 defaults by -1 (KIP-464); v5 answers with configs (KIP-525); v7 topic ids."""

from datetime import timedelta
from typing import TYPE_CHECKING

from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
from kio.schema.create_topics.v7.response import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)

from ottla.broker.dispatch import RequestContext
from ottla.core.controller.commands import CreateTopics, NewTopic, NewTopicResult
from ottla.model.config import describe_topic_configs
from ottla.model.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.node import Broker


async def handle(
    broker: "Broker", context: RequestContext, request: CreateTopicsRequest
) -> CreateTopicsResponse:
    command = CreateTopics(
        tuple(_new_topic(broker, topic) for topic in request.topics),
        placement_start=broker.env.random.getrandbits(31),
        validate_only=request.validate_only,
    )
    results = await broker.quorum.submit(command)
    return CreateTopicsResponse(
        throttle_time=timedelta(),
        topics=tuple(_result(broker, result, request.validate_only) for result in results),
    )


def _new_topic(broker: "Broker", topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        broker.new_uuid(),
        topic.num_partitions,
        topic.replication_factor,
        tuple((assignment.partition_index, assignment.broker_ids) for assignment in topic.assignments),
        tuple((config.name, config.value) for config in topic.configs),
    )


def _result(broker: "Broker", result: NewTopicResult, validate_only: bool) -> CreatableTopicResult:
    if result.error.code is not ErrorCode.none:
        return CreatableTopicResult(
            name=result.name,
            topic_id=None,
            error_code=result.error.code,
            error_message=result.error.message,
            configs=(),
        )
    return CreatableTopicResult(
        name=result.name,
        topic_id=None if validate_only else result.topic_id,
        error_code=ErrorCode.none,
        error_message=None,
        num_partitions=result.num_partitions,
        replication_factor=result.replication_factor,
        configs=tuple(
            CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.is_sensitive,
            )
            for entry in describe_topic_configs(result.configs, broker.config)
        ),
    )
