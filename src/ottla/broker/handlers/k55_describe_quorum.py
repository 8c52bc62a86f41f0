"""DescribeQuorum, versions 0 to 2 (KIP-595, KIP-836). v2 directory ids and addresses of the voters (KIP-853)."""

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
from ottla.broker.services import NodeServices
from ottla.model.errors import ErrorCode
from ottla.model.ids import METADATA_TOPIC


def handle(
    services: NodeServices, context: RequestContext, request: DescribeQuorumRequest
) -> DescribeQuorumResponse:
    asked = [
        (topic.topic_name, [part.partition_index for part in topic.partitions]) for topic in request.topics
    ]
    if asked != [(METADATA_TOPIC, [0])]:
        return DescribeQuorumResponse(
            error_code=ErrorCode.unknown_topic_or_partition,
            error_message=f"only {METADATA_TOPIC}-0 has a quorum to describe",
            topics=(),
            nodes=(),
        )
    quorum = services.quorum.describe_quorum()
    now_ms = services.env.clock.now_ms()
    voters = tuple(
        ReplicaState(
            replica_id=voter,
            replica_directory_id=None,
            log_end_offset=quorum.log_end_offset,
            last_fetch_timestamp=now_ms,
            last_caught_up_timestamp=now_ms,
        )
        for voter in quorum.voters
    )
    partition = PartitionData(
        partition_index=0,
        error_code=ErrorCode.none,
        error_message=None,
        leader_id=quorum.leader_id,
        leader_epoch=quorum.leader_epoch,
        high_watermark=quorum.high_watermark,
        current_voters=voters,
        observers=(),
    )
    return DescribeQuorumResponse(
        error_code=ErrorCode.none,
        error_message=None,
        topics=(TopicData(topic_name=METADATA_TOPIC, partitions=(partition,)),),
        nodes=tuple(
            Node(
                node_id=node.node_id, listeners=(Listener(name="CONTROLLER", host=node.host, port=node.port),)
            )
            for node in nodes_for_client(services, context.connection.stream)
        ),
    )
