"""DescribeQuorum, versions 0 to 2 (KIP-595, KIP-836). v2 directory ids and addresses of the voters (KIP-853)."""

from collections.abc import Sequence

from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest
from kio.schema.describe_quorum.v2.response import (
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)

from ottla.broker.client_view import nodes_for_client
from ottla.broker.dispatch import RequestContext
from ottla.broker.quorum.description import ReplicaDescription
from ottla.broker.quorum.voters import controller_listener_name, voter_endpoints
from ottla.broker.services import NodeServices
from ottla.core.raft.messages import NO_NODE
from ottla.core.raft.voter_set import VoterEndpoint
from ottla.model.errors import ErrorCode
from ottla.model.ids import METADATA_TOPIC


def handle(
    services: NodeServices, context: RequestContext, request: DescribeQuorumRequest
) -> DescribeQuorumResponse:
    asked = [
        (topic.topic_name, [part.partition_index for part in topic.partitions]) for topic in request.topics
    ]
    if asked != [(METADATA_TOPIC, [0])]:
        message = f"only {METADATA_TOPIC}-0 has a quorum to describe"
        return _failure(asked, ErrorCode.unknown_topic_or_partition, message)
    quorum = services.quorum.describe_quorum()
    if quorum is None:
        message = (
            f"node {services.config.node_id} does not lead the quorum, and only the leader can describe it"
        )
        return _failure(asked, ErrorCode.not_leader_or_follower, message)
    partition = PartitionData(
        partition_index=0,
        error_code=ErrorCode.none,
        error_message=None,
        leader_id=quorum.leader_id,
        leader_epoch=quorum.leader_epoch,
        high_watermark=quorum.high_watermark,
        current_voters=_states(quorum.voters),
        observers=_states(quorum.observers),
    )
    return DescribeQuorumResponse(
        error_code=ErrorCode.none,
        error_message=None,
        topics=(TopicData(topic_name=METADATA_TOPIC, partitions=(partition,)),),
        nodes=_nodes(services, context, [voter.replica_id for voter in quorum.voters]),
    )


def _failure(asked: list[tuple[str, list[int]]], error: ErrorCode, message: str) -> DescribeQuorumResponse:
    """As in Kafka, each partition has the error, and not the whole response."""
    return DescribeQuorumResponse(
        error_code=ErrorCode.none,
        error_message=None,
        topics=tuple(
            TopicData(
                topic_name=name,
                partitions=tuple(
                    PartitionData(
                        partition_index=index,
                        error_code=error,
                        error_message=message,
                        leader_id=NO_NODE,
                        leader_epoch=0,
                        high_watermark=0,
                        current_voters=(),
                        observers=(),
                    )
                    for index in indexes
                ),
            )
            for name, indexes in asked
        ),
        nodes=(),
    )


def _states(replicas: Sequence[ReplicaDescription]) -> tuple[ReplicaState, ...]:
    return tuple(
        ReplicaState(
            replica_id=replica.replica_id,
            replica_directory_id=replica.directory_id,
            log_end_offset=replica.log_end_offset,
            last_fetch_timestamp=replica.last_fetch_ms,
            last_caught_up_timestamp=replica.last_caught_up_ms,
        )
        for replica in replicas
    )


def _nodes(services: NodeServices, context: RequestContext, voters: Sequence[int]) -> tuple[Node, ...]:
    endpoints = voter_endpoints(services)
    if not endpoints:
        # A node that is its own quorum needs no controller listener: the broker's listener serves all.
        listener = controller_listener_name(services.config)
        endpoints = {
            node.node_id: VoterEndpoint(listener, node.host, node.port)
            for node in nodes_for_client(services, context.connection)
        }
    return tuple(
        Node(node_id=voter, listeners=(Listener(name=found.listener, host=found.host, port=found.port),))
        if (found := endpoints.get(voter)) is not None
        else Node(node_id=voter, listeners=())
        for voter in voters
    )
