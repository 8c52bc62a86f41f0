"""The description of the quorum, from the responses of fake nodes."""

import socket
import uuid
from typing import Any

import pytest
from kio.schema.describe_quorum.v2.response import (
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32, i64, u16
from tests.unit.admin.fake_nodes import cluster_at, fake_node

from ottla.admin.cluster import ClusterError, UnreachableError
from ottla.admin.quorum import QuorumReplica, describe_quorum
from ottla.model.errors import ErrorCode

DESCRIBE_QUORUM = 55
NOW_MS = 1_800_000_000_000
DIRECTORY = uuid.UUID("f0e1d2c3-b4a5-4687-9788-796a5b4c3d2e")


def replica(node_id: int, end: int, fetched: int, caught_up: int, directory: uuid.UUID | None = None) -> Any:
    return ReplicaState(
        replica_id=BrokerId(node_id),
        replica_directory_id=directory,
        log_end_offset=i64(end),
        last_fetch_timestamp=i64(fetched),
        last_caught_up_timestamp=i64(caught_up),
    )


def response(
    *voters: Any, observers: tuple[Any, ...] = (), leader: int = 2, error: ErrorCode = ErrorCode.none
) -> DescribeQuorumResponse:
    partition = PartitionData(
        partition_index=i32(0),
        error_code=error,
        error_message=None,
        leader_id=BrokerId(leader),
        leader_epoch=i32(7),
        high_watermark=i64(95),
        current_voters=voters,
        observers=observers,
    )
    listener = Listener(name="CONTROLLER", host="h2", port=u16(9093))
    return DescribeQuorumResponse(
        error_code=ErrorCode.none,
        error_message=None,
        topics=(TopicData(topic_name=TopicName("__cluster_metadata"), partitions=(partition,)),),
        nodes=(Node(node_id=BrokerId(2), listeners=(listener,)),),
    )


LEADER = replica(2, 100, NOW_MS, NOW_MS, DIRECTORY)
FOLLOWER = replica(1, 90, NOW_MS - 250, NOW_MS - 400)
SILENT = replica(3, -1, -1, -1)


def test_roles_lag_and_times_are_relative_to_the_leader() -> None:
    observer = replica(9, 100, NOW_MS - 20, NOW_MS - 20)
    with fake_node({DESCRIBE_QUORUM: response(LEADER, FOLLOWER, observers=(observer,))}) as (
        address,
        requests,
    ):
        quorum = describe_quorum(cluster_at(address))
    assert requests == [(DESCRIBE_QUORUM, 2)]
    assert (quorum.leader_id, quorum.leader_epoch, quorum.high_watermark) == (2, 7, 95)
    assert quorum.voters == [
        QuorumReplica(1, "follower", None, [], 90, 10, 250, 400),
        QuorumReplica(2, "leader", "8OHSw7SlRoeXiHlqW0w9Lg", ["CONTROLLER://h2:9093"], 100, 0, 0, 0),
    ]
    assert quorum.observers == [QuorumReplica(9, "observer", None, [], 100, 0, 20, 20)]
    assert (quorum.max_follower_lag, quorum.max_follower_lag_ms) == (10, 400)


def test_a_voter_that_never_fetched_has_no_lag_and_no_times() -> None:
    with fake_node({DESCRIBE_QUORUM: response(LEADER, SILENT)}) as (address, _):
        quorum = describe_quorum(cluster_at(address))
    assert quorum.voters[1] == QuorumReplica(3, "follower", None, [], None, None, None, None)
    assert (quorum.max_follower_lag, quorum.max_follower_lag_ms) == (None, None)


def test_a_quorum_without_a_leader_has_no_lag() -> None:
    with fake_node({DESCRIBE_QUORUM: response(FOLLOWER, leader=-1)}) as (address, _):
        quorum = describe_quorum(cluster_at(address))
    assert quorum.leader_id is None
    assert (quorum.voters[0].role, quorum.voters[0].lag) == ("follower", None)


def test_the_next_address_is_asked_if_one_does_not_respond() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        closed = f"127.0.0.1:{probe.getsockname()[1]}"
    with fake_node({DESCRIBE_QUORUM: response(LEADER)}) as (address, _):
        assert describe_quorum(cluster_at(f"{closed},{address}")).leader_id == 2
        with pytest.raises(UnreachableError, match=rf"the node at {closed} does not respond"):
            describe_quorum(cluster_at(closed))


def test_the_next_controller_is_asked_if_one_does_not_lead() -> None:
    follower = {DESCRIBE_QUORUM: response(LEADER, error=ErrorCode.not_leader_or_follower)}
    with fake_node(follower) as (first, _), fake_node({DESCRIBE_QUORUM: response(LEADER)}) as (second, _):
        assert describe_quorum(cluster_at(f"{first},{second}")).leader_id == 2


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (
            response(LEADER, error=ErrorCode.not_leader_or_follower),
            "leads the quorum. Set --bootstrap",
        ),
        (response(LEADER, error=ErrorCode.unknown_topic_or_partition), r"\(UNKNOWN_TOPIC_OR_PARTITION\)"),
        (
            DescribeQuorumResponse(
                error_code=ErrorCode.request_timed_out, error_message="no leader", topics=(), nodes=()
            ),
            r"The quorum cannot be described: no leader \(REQUEST_TIMED_OUT\)",
        ),
        (
            DescribeQuorumResponse(error_code=ErrorCode.none, error_message=None, topics=(), nodes=()),
            "the response has 0 partitions",
        ),
    ],
)
def test_errors_say_what_is_wrong(answer: DescribeQuorumResponse, error: str) -> None:
    with fake_node({DESCRIBE_QUORUM: answer}) as (address, _), pytest.raises(ClusterError, match=error):
        describe_quorum(cluster_at(address))
