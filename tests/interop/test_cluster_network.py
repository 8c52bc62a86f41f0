"""Three nodes on hosts of their own, whose links are cut: both ways, one way, one pair of them, while clients go on.
A link may also be slow and lose packets.

The clients reach every node all the time, also one that the others cannot reach: such a leader must acknowledge nothing
that is lost when it follows again.
"""

import contextlib
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaError, Message, Producer
from tests.interop.cluster_clients import (
    PATIENCE,
    ProduceLoad,
    TopicCreations,
    TransactionLoad,
    create_on,
    create_topic,
)
from tests.interop.clusters import FIND_COORDINATOR, Cluster, ask, ask_metadata, combined, run_cluster
from tests.interop.librdkafka import flush, read_records
from tests.interop.network_hosts import Network, network_hosts

pytestmark = pytest.mark.slow

PARTITIONS = 3
NODES = (1, 2, 3)
# A connection over a cut link ends after this time; by default a request waits for 30 s.
SETTINGS = {"replica.socket.timeout.ms": "3000", "controller.socket.timeout.ms": "3000"}
# Less than what `ProduceLoad` makes a node send and receive.
SLOW_RATE = "4mbit"
Record = Callable[[str, object], None]
Cut = Callable[[Network, int], None]


def isolate(network: Network, node_id: int) -> None:
    for other in others(node_id):
        network.cut(node_id, other)


def lose_what_it_sends(network: Network, node_id: int) -> None:
    for other in others(node_id):
        network.cut_one_way(node_id, other)


def lose_what_it_receives(network: Network, node_id: int) -> None:
    for other in others(node_id):
        network.cut_one_way(other, node_id)


def cut_one_link(network: Network, node_id: int) -> None:
    """The third node still reaches both."""
    network.cut(node_id, others(node_id)[0])


def slow_and_lossy(network: Network, node_id: int) -> None:
    """The link of the node with everyone, clients included."""
    network.slow_down(node_id, SLOW_RATE)


CUTS = pytest.mark.parametrize(
    "cut",
    [isolate, lose_what_it_sends, lose_what_it_receives, cut_one_link, slow_and_lossy],
    ids=["isolated", "sends lost", "receives lost", "one link", "slow and lossy"],
)


def others(node_id: int) -> list[int]:
    return [other for other in NODES if other != node_id]


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with network_hosts(len(NODES)) as network:
        yield network


@pytest.fixture(scope="module")
def three_hosts(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    specs, folder = combined(len(NODES)), tmp_path_factory.mktemp("c")
    with run_cluster(folder, specs, SETTINGS, network.hosts) as cluster:
        yield cluster


@pytest.fixture
def cluster(network: Network, three_hosts: Cluster) -> Iterator[Cluster]:
    three_hosts.restore()
    yield three_hosts
    network.heal()


@CUTS
def test_acknowledged_records_survive_a_cut_of_their_leader(
    cluster: Cluster, network: Network, topic_name: str, cut: Cut, record_property: Record
) -> None:
    create_topic(cluster, topic_name, PARTITIONS, min_insync_replicas=2)
    with ProduceLoad(cluster, topic_name, PARTITIONS) as load:
        load.wait_for_more()
        cut(network, cluster.leader_of(topic_name))
        load.wait_for_more(1000)
        if cut is slow_and_lossy:
            cluster.wait_until(lambda: network.lost_packets() > 0, "the link loses packets")
        network.heal()
        cluster.wait_until_in_sync(topic_name)
        load.wait_for_more()
        load.finish()
    record_property("latency", f"{cut.__name__}: longest time without a record {load.longest_gap_s():.1f} s")
    load.check()
    for partition in range(PARTITIONS):
        cluster.wait_until_copied(topic_name, partition)


@CUTS
def test_topics_are_created_again_after_a_cut_of_the_active_controller(
    cluster: Cluster, network: Network, topic_name: str, cut: Cut, record_property: Record
) -> None:
    with TopicCreations(cluster, topic_name, replicas=1) as creations:
        creations.wait_for_more(3)
        cut(network, cluster.controller_id())
        creations.wait_for_more(5)
        network.heal()
        creations.wait_for_more(3)
    record_property("latency", f"{cut.__name__}: longest topic creation {creations.longest_s:.1f} s")
    for node_id in NODES:
        cluster.wait_until(
            lambda id=node_id: cluster.knows(id, creations.created),  # type: ignore[misc]
            f"node {node_id} knows all topics",
        )


@pytest.mark.parametrize(
    "cut",
    [isolate, lose_what_it_sends, lose_what_it_receives, slow_and_lossy, None],
    ids=["isolated", "sends lost", "receives lost", "slow and lossy", "link to the controller"],
)
def test_transactions_go_on_after_a_cut_of_their_coordinator(
    cluster: Cluster, network: Network, topic_name: str, cut: Cut | None
) -> None:
    """The client still reaches its coordinator, which does not know that another has taken over. As with Kafka, it may
    stay with that one until the link is healed.
    """
    create_topic(cluster, topic_name, PARTITIONS, min_insync_replicas=2)
    with TransactionLoad(cluster, topic_name, topic_name, PARTITIONS) as load:
        load.wait_for_more()
        coordinator = cluster.coordinator_id(topic_name, of_transactions=True)
        if cut is not None:
            cut(network, coordinator)
            observer = others(coordinator)[-1]
        else:  # The controller fences the coordinator; if it is the coordinator, it fences the other node.
            end = cluster.controller_id()
            end = others(coordinator)[0] if end == coordinator else end
            network.cut(coordinator, end)
            (observer,) = set(NODES) - {coordinator, end}
        enough = len(load.committed) + 10
        cluster.wait_until(
            lambda: (
                len(load.committed) >= enough
                or found_coordinator(cluster, topic_name, observer) not in (None, coordinator)
            ),
            "the transactions go on, or another broker coordinates them",
        )
        network.heal()
        load.wait_for_more()
        load.finish()
    load.check()


def test_transactions_wait_while_their_coordinator_cannot_reach_a_leader(
    cluster: Cluster, network: Network, topic_name: str
) -> None:
    """The controller reaches both, so it fences none of them. As with Kafka, the coordinator can neither verify the
    transaction for the leader nor write its markers until the link is healed.
    """
    coordinator, transactional_id = coordinator_beside_the_controller(cluster, topic_name)
    leader = next(node for node in others(coordinator) if node != cluster.controller_id())
    create_on(cluster, topic_name, [[leader, *others(leader)]], min_insync_replicas=2)
    with TransactionLoad(cluster, topic_name, transactional_id, 1) as load:
        load.wait_for_more()
        network.cut(coordinator, leader)
        cluster.wait_until(lambda: load.seconds_since_commit() > 5, "no transaction is committed for 5 s")
        network.heal()
        load.wait_for_more()
        load.finish()
    load.check()


def test_a_leader_without_the_others_acknowledges_nothing_and_drops_what_it_wrote(
    cluster: Cluster, network: Network, topic_name: str
) -> None:
    """Seed 003: a former leader has records that nobody else has; it truncates them when it follows."""
    create_on(cluster, topic_name, [[1, 2, 3]], min_insync_replicas=2)
    cluster.wait_until(lambda: cluster.leader_of(topic_name) == 1, "node 1 leads")
    alone = Producer({"bootstrap.servers": cluster.nodes[1].bootstrap, "acks": "all", **PATIENCE})
    alone.produce(topic_name, b"before", partition=0)
    flush(alone)
    isolate(network, 1)
    outcome: list[KafkaError | None] = []

    def note(error: KafkaError | None, _: Message) -> None:
        outcome.append(error)

    alone.produce(topic_name, b"in between", partition=0, on_delivery=note)
    cluster.wait_until(lambda: found_leader(cluster, topic_name) in (2, 3), "another node leads")
    assert outcome == []
    network.heal()
    deadline = time.monotonic() + 60
    while not outcome and time.monotonic() < deadline:
        alone.poll(0.1)
    assert outcome == [None]  # the producer has sent it again, to the new leader
    cluster.wait_until_in_sync(topic_name)
    cluster.wait_until_copied(topic_name)
    values = [record.value() for record in read_records(cluster.bootstrap, topic_name, 2)]
    assert values == [b"before", b"in between"]


def coordinator_beside_the_controller(cluster: Cluster, prefix: str) -> tuple[int, str]:
    """A broker that is not the active controller, and a transactional id that it coordinates."""
    controller = cluster.controller_id()
    for number in range(100):
        transactional_id = f"{prefix}-{number}"
        coordinator = cluster.coordinator_id(transactional_id, of_transactions=True)
        if coordinator != controller:
            return coordinator, transactional_id
    raise AssertionError(f"node {controller} coordinates all transactions")


def found_coordinator(cluster: Cluster, transactional_id: str, node_id: int) -> int | None:
    """As the node says."""
    with contextlib.suppress(OSError):
        bootstrap = cluster.nodes[node_id].bootstrap
        answer = ask(bootstrap, FIND_COORDINATOR, 4, key_type=1, coordinator_keys=(transactional_id,))
        return int(answer.coordinators[0].node_id) if answer.coordinators[0].error_code == 0 else None
    return None


def found_leader(cluster: Cluster, topic: str) -> int | None:
    """As node 2 says, if it answers: node 1 does not know of another leader while it is isolated."""
    with contextlib.suppress(OSError):
        (described,) = ask_metadata(cluster.nodes[2], topic).topics
        return int(described.partitions[0].leader_id)
    return None
