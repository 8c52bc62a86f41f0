"""Where the log of a partition's leader starts and ends (ListOffsets, as a follower asks)."""

from typing import TYPE_CHECKING

from kio.schema.list_offsets.v9.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.list_offsets.v9.response import ListOffsetsResponse

from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition

if TYPE_CHECKING:
    from ottla.rpc.node_connections import NodeConnections

_LATEST, _EARLIEST = -1, -2
_READ_UNCOMMITTED = 0


async def fetch_leader_offsets(
    connections: "NodeConnections",
    leader_id: int,
    topic_partition: TopicPartition,
    replica_id: int,
    leader_epoch: int,
    timeout_s: float,
) -> tuple[int, int]:
    """The log start offset and the log end offset. Raises KafkaError and OSError."""
    start, end = [
        await _fetch_offset(
            connections, leader_id, topic_partition, replica_id, leader_epoch, which, timeout_s
        )
        for which in (_EARLIEST, _LATEST)
    ]
    return start, end


async def _fetch_offset(
    connections: "NodeConnections",
    leader_id: int,
    topic_partition: TopicPartition,
    replica_id: int,
    leader_epoch: int,
    timestamp: int,
    timeout_s: float,
) -> int:
    request = ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=_READ_UNCOMMITTED,
        topics=(
            ListOffsetsTopic(
                name=topic_partition.topic,
                partitions=(
                    ListOffsetsPartition(
                        partition_index=topic_partition.partition,
                        current_leader_epoch=leader_epoch,
                        timestamp=timestamp,
                    ),
                ),
            ),
        ),
    )
    response = await connections.call(leader_id, request, ListOffsetsResponse, timeout_s)
    for topic in response.topics:
        for partition in topic.partitions:
            if partition.error_code is not ErrorCode.none:
                raise KafkaError(
                    partition.error_code,
                    f"broker {leader_id} has no offsets of {topic_partition} for a follower",
                )
            return partition.offset
    raise KafkaError(ErrorCode.unknown_server_error, f"broker {leader_id} left out {topic_partition}")
