"""DeleteTopics, versions 1 to 6. v4 flexible; v5 error messages; v6 by topic id (KIP-516)."""

from datetime import timedelta
from typing import Any

from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.delete_topics.v6.response import DeletableTopicResult, DeleteTopicsResponse

from ottla.broker.dispatch import RequestContext
from ottla.broker.services import NodeServices
from ottla.core.controller.commands import DeletedTopic, DeleteTopics, TopicToDelete
from ottla.model.errors import ErrorCode


def lift(request: DeleteTopicsRequest, as_sent: Any, version: int) -> DeleteTopicsRequest:
    if version >= 6:
        return request
    return DeleteTopicsRequest(
        topics=tuple(DeleteTopicState(name=name, topic_id=None) for name in as_sent.topic_names),
        timeout=request.timeout,
    )


async def handle(
    services: NodeServices, context: RequestContext, request: DeleteTopicsRequest
) -> DeleteTopicsResponse:
    if not services.config.get_bool("delete.topic.enable"):
        code = ErrorCode.topic_deletion_disabled if context.version >= 3 else ErrorCode.invalid_request
        return _response(
            DeletableTopicResult(
                name=topic.name,
                topic_id=topic.topic_id,
                error_code=code,
                error_message="topic deletion is disabled (delete.topic.enable=false)",
            )
            for topic in request.topics
        )
    topics = tuple(TopicToDelete(topic.name, topic.topic_id) for topic in request.topics)
    return _response(_result(deleted) for deleted in await services.controller.submit(DeleteTopics(topics)))


def _result(deleted: DeletedTopic) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=deleted.name,
        topic_id=deleted.topic_id,
        error_code=deleted.error.code,
        error_message=deleted.error.message,
    )


def _response(results: Any) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(throttle_time=timedelta(), responses=tuple(results))
