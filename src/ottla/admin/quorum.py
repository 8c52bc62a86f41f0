"""The quorum of controllers: leader, voters and observers of the metadata log (KIP-595, KIP-836, KIP-853)."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest, PartitionData, TopicData
from kio.schema.describe_quorum.v2.response import (
    DescribeQuorumResponse,
    Node,
    ReplicaState,
)
from kio.schema.types import TopicName
from kio.static.primitive import i32

from ottla.admin.cluster import Cluster, ClusterError
from ottla.admin.nodes import call_any, check_error
from ottla.model.errors import ErrorCode
from ottla.model.ids import METADATA_TOPIC, uuid_to_string

LEADER, FOLLOWER, OBSERVER = "leader", "follower", "observer"
_UNKNOWN = -1


class QuorumReplica(NamedTuple):
    """A node that reads the metadata log. None means that the leader does not know it."""

    node_id: int
    role: str
    directory_id: str | None
    end_points: list[str]
    log_end_offset: int | None
    lag: int | None
    # By the clock of the leader.
    since_last_fetch_ms: int | None
    since_caught_up_ms: int | None


class QuorumDescription(NamedTuple):
    leader_id: int | None
    leader_epoch: int
    high_watermark: int
    voters: list[QuorumReplica]
    observers: list[QuorumReplica]

    @property
    def max_follower_lag(self) -> int | None:
        """Of the voters. None if the leader does not know the lag of one of them."""
        return _max(voter.lag for voter in self.voters)

    @property
    def max_follower_lag_ms(self) -> int | None:
        return _max(0 if voter.lag == 0 else voter.since_caught_up_ms for voter in self.voters)


def describe_quorum(cluster: Cluster) -> QuorumDescription:
    """Asks a broker, which forwards it to the leader of the quorum, or a controller. Raises ClusterError."""
    what = "The quorum cannot be described"
    topic = TopicData(
        topic_name=TopicName(METADATA_TOPIC), partitions=(PartitionData(partition_index=i32(0)),)
    )
    request = DescribeQuorumRequest(topics=(topic,))
    response = call_any(cluster, request, DescribeQuorumResponse, what, is_final=_is_of_leader)
    check_error(response, what)
    partitions = [partition for topic in response.topics for partition in topic.partitions]
    if len(partitions) != 1:
        raise ClusterError(f"{what}: the response has {len(partitions)} partitions, not one")
    if partitions[0].error_code is ErrorCode.not_leader_or_follower:
        raise ClusterError(
            f"{what}: no controller at {cluster.bootstrap} leads the quorum. Set --bootstrap to a broker, or to all "
            "controllers"
        )
    check_error(partitions[0], what)
    return _description(partitions[0], response.nodes)


def _is_of_leader(response: DescribeQuorumResponse) -> bool:
    """A controller that follows cannot describe the quorum, and does not forward the request as a broker does."""
    codes = [partition.error_code for topic in response.topics for partition in topic.partitions]
    return ErrorCode.not_leader_or_follower not in codes


def _description(partition: Any, nodes: Iterable[Node]) -> QuorumDescription:
    end_points = {
        node.node_id: [f"{listener.name}://{listener.host}:{listener.port}" for listener in node.listeners]
        for node in nodes
    }
    states: tuple[ReplicaState, ...] = partition.current_voters
    leader = next((state for state in states if state.replica_id == partition.leader_id), None)
    end_offset = _UNKNOWN if leader is None else leader.log_end_offset
    # The leader reports its present time as the time at which it was caught up itself.
    now_ms = _UNKNOWN if leader is None else leader.last_caught_up_timestamp

    def replica(state: ReplicaState, role: str) -> QuorumReplica:
        return QuorumReplica(
            int(state.replica_id),
            role,
            None if state.replica_directory_id is None else uuid_to_string(state.replica_directory_id),
            end_points.get(state.replica_id, []),
            _known(state.log_end_offset),
            _behind(end_offset, state.log_end_offset),
            _behind(now_ms, state.last_fetch_timestamp),
            _behind(now_ms, state.last_caught_up_timestamp),
        )

    voters = [replica(state, LEADER if state is leader else FOLLOWER) for state in states]
    observers = [replica(state, OBSERVER) for state in partition.observers]
    return QuorumDescription(
        _known(partition.leader_id),
        int(partition.leader_epoch),
        int(partition.high_watermark),
        sorted(voters, key=lambda voter: voter.node_id),
        sorted(observers, key=lambda observer: observer.node_id),
    )


def _known(number: int) -> int | None:
    return None if number == _UNKNOWN else int(number)


def _behind(leaders: int, own: int) -> int | None:
    return None if _UNKNOWN in (leaders, own) else max(int(leaders) - int(own), 0)


def _max(numbers: Iterable[int | None]) -> int | None:
    known = list(numbers)
    return None if None in known else max((number for number in known if number is not None), default=0)
