"""Brokers, from the responses of fake nodes."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.describe_cluster.v2.response import DescribeClusterBroker, DescribeClusterResponse
from kio.schema.describe_log_dirs.v4.response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kio.schema.types import BrokerId, TopicName
from kio.schema.unregister_broker.v0.response import UnregisterBrokerResponse
from kio.static.primitive import i8, i32, i64
from tests.unit.admin.fake_nodes import cluster_at, fake_node

from ottla.admin import brokers
from ottla.admin.brokers import BrokerListing, LogDirectory, PartitionCounts
from ottla.admin.cluster import ClusterError, UnreachableError
from ottla.admin.configs import ConfigValue
from ottla.admin.quorum import QuorumDescription, QuorumReplica
from ottla.model.errors import ErrorCode

DESCRIBE_LOG_DIRS, DESCRIBE_CLUSTER, UNREGISTER_BROKER = 35, 60, 64
NO_WAIT: Any = timedelta()
FIRST = BrokerListing(1, "h1", 9092, "r1", "active", "voter")
SECOND = BrokerListing(2, "h2", 9092, None, "active", "leader")
THIRD = BrokerListing(3, "h3", 9092, None, "fenced", None)


def voter(node_id: int) -> QuorumReplica:
    return QuorumReplica(node_id, "follower", None, [], 1, 0, 0, 0)


QUORUM = QuorumDescription(2, 1, 1, [voter(1), voter(2)], [])


def described(error: ErrorCode = ErrorCode.none, endpoint_type: int = 1) -> DescribeClusterResponse:
    def broker(listing: BrokerListing) -> DescribeClusterBroker:
        return DescribeClusterBroker(
            broker_id=BrokerId(listing.id),
            host=listing.host,
            port=i32(listing.port),
            rack=listing.rack,
            is_fenced=listing.state == "fenced",
        )

    return DescribeClusterResponse(
        throttle_time=NO_WAIT,
        error_code=error,
        error_message=None,
        endpoint_type=i8(endpoint_type),
        cluster_id="4L6g3nShT-eMCtK--X86sw",
        brokers=() if error is not ErrorCode.none else tuple(map(broker, (THIRD, FIRST, SECOND))),
    )


def test_brokers_are_listed_with_state_and_part_in_the_quorum() -> None:
    with fake_node({DESCRIBE_CLUSTER: described()}) as (address, requests):
        assert brokers.list_brokers(cluster_at(address), QUORUM) == [FIRST, SECOND, THIRD]
        unknown = brokers.list_brokers(cluster_at(address), None)
    assert requests[0] == (DESCRIBE_CLUSTER, 2)
    assert [broker.controller for broker in unknown] == [None, None, None]


def test_a_controller_cannot_list_brokers_but_knows_the_cluster_id() -> None:
    mismatch = described(ErrorCode.mismatched_endpoint_type)
    with (
        fake_node({DESCRIBE_CLUSTER: mismatch}) as (address, _),
        pytest.raises(ClusterError, match=r"is a controller. Set --bootstrap to a broker"),
    ):
        brokers.list_brokers(cluster_at(address), None)
    with fake_node({DESCRIBE_CLUSTER: [mismatch, described(endpoint_type=2)]}) as (address, _):
        assert brokers.cluster_id(cluster_at(address)) == "4L6g3nShT-eMCtK--X86sw"
    with fake_node({DESCRIBE_CLUSTER: described()}) as (address, _):
        assert brokers.cluster_id(cluster_at(address)) == "4L6g3nShT-eMCtK--X86sw"


def test_an_unknown_broker_is_an_error_that_lists_the_known_ones() -> None:
    assert brokers.find_broker([FIRST, THIRD], 3) == THIRD
    with pytest.raises(ClusterError, match=r"Broker 9 is not registered. Registered brokers: 1, 3"):
        brokers.find_broker([FIRST, THIRD], 9)
    with pytest.raises(ClusterError, match="Registered brokers: none"):
        brokers.find_broker([], 9)


def test_replicas_leaders_and_replicas_out_of_sync_are_counted() -> None:
    def partition(leader: int, replicas: list[int], isrs: list[int]) -> Any:
        return SimpleNamespace(leader=leader, replicas=replicas, isrs=isrs)

    topic = SimpleNamespace(
        partitions={0: partition(1, [1, 2], [1]), 1: partition(2, [2], [2]), 2: partition(-1, [3, 2], [3])}
    )
    cluster = cluster_at("", metadata=lambda: SimpleNamespace(topics={"orders": topic}))
    assert brokers.count_partitions(cluster, 2) == PartitionCounts(leaders=1, replicas=3, out_of_sync=2)
    assert brokers.count_partitions(cluster, 9) == PartitionCounts(0, 0, 0)


def log_dirs(error: ErrorCode = ErrorCode.none) -> DescribeLogDirsResponse:
    partitions = tuple(
        DescribeLogDirsPartition(
            partition_index=i32(number), partition_size=i64(100), offset_lag=i64(0), is_future_key=False
        )
        for number in range(3)
    )
    return DescribeLogDirsResponse(
        throttle_time=NO_WAIT,
        error_code=error,
        results=(
            DescribeLogDirsResult(error_code=ErrorCode.kafka_storage_error, log_dir="/b", topics=()),
            DescribeLogDirsResult(
                error_code=ErrorCode.none,
                log_dir="/a",
                topics=(DescribeLogDirsTopic(name=TopicName("orders"), partitions=partitions),),
                total_bytes=i64(5000),
                usable_bytes=i64(4000),
            ),
        ),
    )


@pytest.mark.parametrize(
    ("configs", "end_points"),
    [
        ({"listeners": "A://:1,B://:2", "advertised.listeners": None}, ["A://:1", "B://:2"]),
        ({"listeners": "A://:1", "advertised.listeners": "A://h1:1, B://h1:2"}, ["A://h1:1", "B://h1:2"]),
        ({}, []),
    ],
)
def test_a_broker_tells_its_end_points_and_directories(
    configs: dict[str, str | None], end_points: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        ConfigValue(name, value, "STATIC_BROKER_CONFIG", False, False) for name, value in configs.items()
    ]
    monkeypatch.setattr(brokers, "describe_configs", lambda *_: lines)
    with fake_node({DESCRIBE_LOG_DIRS: log_dirs()}) as (address, requests):
        broker = FIRST._replace(host="127.0.0.1", port=int(address.rpartition(":")[2]))
        details = brokers.describe_broker(cluster_at(address), broker)
    assert requests == [(DESCRIBE_LOG_DIRS, 4)]
    assert details.end_points == end_points
    assert details.directories == [
        LogDirectory("/a", None, 3, 300, 5000, 4000),
        LogDirectory("/b", "KAFKA_STORAGE_ERROR", 0, 0, None, None),
    ]


def test_a_broker_that_rejects_the_request_or_is_away_is_named() -> None:
    with fake_node({DESCRIBE_LOG_DIRS: log_dirs(ErrorCode.cluster_authorization_failed)}) as (address, _):
        broker = FIRST._replace(host="127.0.0.1", port=int(address.rpartition(":")[2]))
        with pytest.raises(ClusterError, match="Broker 1 cannot be described: CLUSTER_AUTHORIZATION_FAILED"):
            brokers.describe_broker(cluster_at(address), broker)
    with pytest.raises(UnreachableError, match=r"broker 1 \(127.0.0.1:\d+\) does not respond"):
        brokers.describe_broker(cluster_at(address), broker)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.none, None),
        (ErrorCode.broker_id_not_registered, "it is not registered. See: ottla brokers list"),
        (ErrorCode.request_timed_out, r"the reason \(REQUEST_TIMED_OUT\)"),
    ],
)
def test_unregister_reports_the_answer_of_the_controller(code: ErrorCode, error: str | None) -> None:
    answer = UnregisterBrokerResponse(throttle_time=NO_WAIT, error_code=code, error_message="the reason")
    with fake_node({UNREGISTER_BROKER: answer}) as (address, requests):
        if error is None:
            brokers.unregister_broker(cluster_at(address), 3)
        else:
            with pytest.raises(ClusterError, match=f"Broker 3 was not unregistered: {error}"):
                brokers.unregister_broker(cluster_at(address), 3)
    assert requests == [(UNREGISTER_BROKER, 0)]
