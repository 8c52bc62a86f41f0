"""The new leader of a partition in the responses to Produce and Fetch (KIP-951): clients need no Metadata request."""

from collections.abc import Collection

from ottla.broker.client_view import nodes_for_client
from ottla.broker.dispatch import RequestContext
from ottla.broker.services import BrokerServices
from ottla.model.errors import ErrorCode
from ottla.protocol.primitives import NodeEndpoint
from ottla.protocol.produce_codec import (
    LEADER_HINTS_FROM,
    ProducePartitionResponse,
    ProduceResponse,
    ProduceTopicResponse,
)

_NOT_LEADER = int(ErrorCode.not_leader_or_follower)


def node_endpoints(
    services: BrokerServices, context: RequestContext, broker_ids: Collection[int]
) -> list[NodeEndpoint]:
    """Where the client can reach those of the brokers that are available."""
    return [
        NodeEndpoint(node.node_id, node.host, node.port, node.rack)
        for node in nodes_for_client(services, context.connection)
        if node.node_id in broker_ids
    ]


def with_leader_hints(
    services: BrokerServices, context: RequestContext, response: ProduceResponse
) -> ProduceResponse:
    """The response, with the leaders of the partitions that are not led here, if there are any."""
    if context.header.api_version < LEADER_HINTS_FROM:
        return response
    for topic in response.topics:
        for result in topic.partitions:
            if result.error_code == _NOT_LEADER:
                return _with_leaders(services, context, response)
    return response


def _with_leaders(
    services: BrokerServices, context: RequestContext, response: ProduceResponse
) -> ProduceResponse:
    leaders: dict[int, None] = {}  # an ordered set

    def hinted(topic: ProduceTopicResponse, result: ProducePartitionResponse) -> ProducePartitionResponse:
        if result.error_code != _NOT_LEADER:
            return result
        leader = services.partitions.current_leader(topic.name, topic.topic_id, result.index)
        if leader is not None:
            leaders[leader.leader_id] = None
        return result._replace(current_leader=leader)

    topics = [
        topic._replace(partitions=[hinted(topic, result) for result in topic.partitions])
        for topic in response.topics
    ]
    return ProduceResponse(topics, response.throttle_time_ms, node_endpoints(services, context, leaders))
