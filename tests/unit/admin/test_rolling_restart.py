"""Rolling restarts: the order of the nodes, and when the cluster can spare the next one."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.admin import rolling_restart
from ottla.admin.brokers import BrokerListing
from ottla.admin.cluster import ClusterError
from ottla.admin.quorum import QuorumDescription, QuorumReplica
from ottla.admin.rolling_restart import (
    PartitionReplicas,
    RestartError,
    RestartNode,
    RollingRestart,
    next_node,
    nodes_of,
)
from ottla.model.ids import TopicPartition
from ottla.rpc import Address

BROKERS = [
    BrokerListing(1, "h1", 9092, None, "active", None),
    BrokerListing(2, "h2", 9092, None, "active", None),
]


def voter(node_id: int, caught_up_ms: int | None = 100, end_points: tuple[str, ...] = ()) -> QuorumReplica:
    return QuorumReplica(node_id, "follower", None, list(end_points), 10, 0, 100, caught_up_ms)


def quorum(*voters: QuorumReplica, leader: int | None = 101) -> QuorumDescription:
    return QuorumDescription(leader, 3, 10, list(voters), [])


class FakeCluster:
    """A healthy cluster of two brokers and three controllers; the tests change it."""

    def __init__(self, bootstrap: str = "h1:9092") -> None:
        self.bootstrap = bootstrap
        self.brokers = list(BROKERS)
        self.quorum = quorum(voter(101, 0), voter(102), voter(103, end_points=("CONTROLLER://[::1]:9093",)))
        self.partitions = {TopicPartition("orders", 0): PartitionReplicas((1, 2), (1, 2))}
        self.restarted: list[int] = []
        self.waits = 0
        # The old process of a node ends so many waits after the command.
        self.ends_after: float = 0
        self.refused: list[str] = []
        self.on_wait: Callable[[], None] = lambda: None

    def monotonic(self) -> float:
        return float(self.waits)

    def sleep(self, seconds: float) -> None:
        self.waits += 1
        self.on_wait()


class FakeProcess:
    def __init__(self, cluster: FakeCluster, address: Address) -> None:
        if address.host in cluster.refused:
            raise ConnectionRefusedError("refused")
        self._cluster, self._began = cluster, cluster.waits

    def __enter__(self) -> "FakeProcess":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def has_ended(self) -> bool:
        return self._cluster.waits >= self._began + self._cluster.ends_after


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    cluster = FakeCluster()
    monkeypatch.setattr(rolling_restart, "time", cluster)
    monkeypatch.setattr(rolling_restart, "Cluster", lambda bootstrap: cluster)
    monkeypatch.setattr(rolling_restart, "NodeProcess", lambda address: FakeProcess(cluster, address))
    monkeypatch.setattr(rolling_restart, "list_brokers", lambda *_: cluster.brokers)
    monkeypatch.setattr(rolling_restart, "describe_quorum", lambda _: cluster.quorum)
    monkeypatch.setattr(rolling_restart, "read_partitions", lambda node: cluster.partitions)
    monkeypatch.setattr(RollingRestart, "_min_insync_replicas", lambda self, topics: {"orders": 1})
    return cluster


def roll(cluster: FakeCluster, **options: Any) -> RollingRestart:
    def restart(node: RestartNode) -> None:
        cluster.restarted.append(node.id)

    return RollingRestart("h1:9092", restart, **options)


def test_brokers_come_before_voters_and_the_leader_of_the_quorum_is_last() -> None:
    combined = [RestartNode(node_id, "h", is_broker=True, is_voter=True) for node_id in (1, 2, 3)]
    observer = RestartNode(4, "h", is_broker=True, is_voter=False)
    left, order = [*combined, observer], []
    while left:
        left.remove(node := next_node(left, leader_id=1))
        order.append(node.id)
    assert order == [4, 2, 3, 1]


def test_a_controller_has_the_host_of_its_end_point(cluster: FakeCluster) -> None:
    nodes = {node.id: node for node in nodes_of(cluster.brokers, cluster.quorum)}
    assert [*nodes] == [1, 2, 101, 102, 103]
    assert (nodes[1].host, nodes[102].host, nodes[103].host) == ("h1", None, "[::1]")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"brokers": [BROKERS[0], BROKERS[1]._replace(state="fenced")]}, "broker 2 is not active"),
        ({"quorum": quorum(voter(101), leader=None)}, "the quorum has no leader"),
        ({"quorum": quorum(voter(101, 0), voter(102, 60_000))}, "voter 102 has not caught up"),
        ({"quorum": quorum(voter(101, 0), voter(102, None))}, "voter 102 has not caught up"),
        (
            {"partitions": {TopicPartition("orders", 0): PartitionReplicas((1, 2), (1,))}},
            "broker 2 is not in the ISR of orders-0",
        ),
    ],
)
def test_nothing_is_restarted_while_the_cluster_can_spare_no_node(
    cluster: FakeCluster, change: dict[str, Any], reason: str
) -> None:
    for name, value in change.items():
        setattr(cluster, name, value)
    with pytest.raises(RestartError, match=f"no node was restarted: {reason}"):
        roll(cluster).prepare(force=True)


def test_a_partition_that_would_be_below_its_min_isr_is_named(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RollingRestart, "_min_insync_replicas", lambda self, topics: {"orders": 2})
    with pytest.raises(RestartError, match=r"1 partitions have no replica to spare \(orders-0\)"):
        roll(cluster).prepare()
    assert len(roll(cluster).prepare(force=True)) == 5


def test_the_next_node_waits_until_all_replicas_are_in_sync_again(cluster: FakeCluster) -> None:
    whole = cluster.partitions

    def restarted(node: RestartNode) -> None:
        cluster.restarted.append(node.id)
        cluster.partitions = {TopicPartition("orders", 0): PartitionReplicas((1, 2), (2,))}

    def on_wait() -> None:
        if cluster.waits % 3 == 0:
            cluster.partitions = whole

    seen: list[tuple[int, int]] = []
    cluster.on_wait = on_wait
    rolling = roll(cluster)
    rolling._restart = restarted
    brokers = [node for node in rolling.prepare() if node.is_broker]
    rolling.restart_one_after_the_other(brokers, lambda node, _: seen.append((node.id, cluster.waits)))
    assert seen == [(1, 3), (2, 6)]


def test_a_cluster_that_does_not_respond_is_asked_again(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    rolling = roll(cluster)
    nodes = rolling.prepare()[:1]

    def read(node: Any) -> Any:
        if cluster.waits < 2:
            raise ClusterError("Broker 1 does not serve")
        return cluster.partitions

    monkeypatch.setattr(rolling_restart, "read_partitions", read)
    rolling.restart_one_after_the_other(nodes, lambda *_: None)
    assert cluster.waits == 2


def test_a_voter_is_back_when_it_has_caught_up_since_its_restart(cluster: FakeCluster) -> None:
    rolling = roll(cluster, timeout_s=0.0)
    nodes = rolling.prepare()
    cluster.quorum = quorum(voter(101, 0), voter(102, 60_000), voter(103))
    with pytest.raises(RestartError, match="is not back: voter 102 has not caught up"):
        rolling.restart_one_after_the_other(nodes, lambda *_: None)
    assert cluster.restarted == [1]


def test_a_node_that_failed_stops_the_restart_and_names_the_others(cluster: FakeCluster) -> None:
    rolling = roll(cluster, failure=lambda node: "its process ended")
    with pytest.raises(
        RestartError,
        match=r"node 1 is not back: its process ended. The restart stops here; nodes that were not restarted: 2, 101",
    ):
        rolling.restart_one_after_the_other(rolling.prepare(), lambda *_: None)
    assert cluster.restarted == [1]


def test_a_node_is_not_back_before_its_old_process_has_ended(cluster: FakeCluster) -> None:
    """`systemctl restart --no-block` returns before: the old process still answers, and all is well with it."""
    cluster.ends_after = 3
    rolling = roll(cluster)
    seen: list[tuple[int, int]] = []
    rolling.restart_one_after_the_other(
        rolling.prepare()[:2], lambda node, _: seen.append((node.id, cluster.waits))
    )
    # Three waits for the end of each old process, and one until the voters have caught up since.
    assert seen == [(1, 4), (2, 8)]


def test_a_command_that_restarts_nothing_stops_the_restart(cluster: FakeCluster) -> None:
    cluster.ends_after = float("inf")
    rolling = roll(cluster)
    with pytest.raises(
        RestartError,
        match=r"node 1 was not restarted: its old process still runs 300 s after the command for its restart\. "
        r"Check the command\. The restart stops here; nodes that were not restarted: 2, 101",
    ):
        rolling.restart_one_after_the_other(rolling.prepare(), lambda *_: None)
    assert cluster.restarted == [1]


def test_a_broker_that_cannot_be_reached_is_not_restarted(cluster: FakeCluster) -> None:
    cluster.refused = ["h1", "::1"]
    rolling = roll(cluster)
    nodes = {node.id: node for node in rolling.prepare()}
    with pytest.raises(RestartError, match="node 1 was not restarted: broker 1 does not respond at h1:9092"):
        rolling.restart_one_after_the_other([nodes[1]], lambda *_: None)
    assert cluster.restarted == []
    # The listener of a controller may be reached by the other nodes only.
    rolling.restart_one_after_the_other([nodes[103]], lambda *_: None)
    assert cluster.restarted == [103]


def test_all_nodes_of_a_host_restart_together(cluster: FakeCluster) -> None:
    """As the workers of a host; their partitions have replicas on other hosts."""
    cluster.brokers = [
        BrokerListing(broker, host, 9092, None, "active", None)
        for broker, host in ((1, "a"), (2, "b"), (1001, "a"), (1002, "b"))
    ]
    cluster.quorum = quorum(voter(1, 0), leader=1)
    cluster.partitions = {TopicPartition("orders", 0): PartitionReplicas((1, 1002), (1, 1002))}
    rolling = roll(cluster, by_host=True)
    seen: list[tuple[int, ...]] = []
    rolling.restart_one_after_the_other(rolling.prepare(), lambda node, _: seen.append(node.ids))
    assert seen == [(2, 1002), (1, 1001)]
    cluster.partitions = {TopicPartition("orders", 0): PartitionReplicas((1, 1001), (1, 1001))}
    assert len(roll(cluster).prepare()) == 4
    with pytest.raises(RestartError, match="no replica to spare"):
        roll(cluster, by_host=True).prepare()
