"""Several faults at once, from one seed, on real processes under load, as Jepsen combines them: kills and pauses while
partitions move and the voters change; and nodes whose clocks jump.

After each fault the clients go on. At the end nothing acknowledged is lost, and nothing is there twice.
"""

import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.interop.cluster_clients import ProduceLoad, TransactionLoad, create_topic
from tests.interop.cluster_nodes import BROKER, ClusterNode
from tests.interop.clusters import Cluster, NodeSpec, ask, combined
from tests.interop.growing_cluster import GrowingCluster, run_growing_cluster
from tests.interop.test_cluster_reassignment import ongoing

from ottla.testing import KafkaCluster

pytestmark = pytest.mark.slow

SEED = 1
VOTERS, BROKERS = (1, 2, 3), (1, 2, 3, 4)
PARTITIONS = 3
ALTER_REASSIGNMENTS = 45
# More than the session of a broker and a fetch of a follower may take, less than a transaction.
JUMP_MS = 60_000


class Nemesis:
    """`hit` breaks one voter while partitions move; in every second round the dead voter is replaced."""

    def __init__(self, cluster: GrowingCluster, topics: list[str], seed: int) -> None:
        self._cluster, self._topics = cluster, topics
        self._random = random.Random(seed)
        self._rounds = itertools.count()
        self.story: list[str] = []

    def hit(self, wait_for_progress: Callable[[], None]) -> None:
        self._reassign()
        node = self._cluster.nodes[self._random.choice(VOTERS)]
        fault = self._random.choice((ClusterNode.kill, ClusterNode.pause))
        replaces = next(self._rounds) % 2 == 0
        self.story.append(
            f"{fault.__name__} {node.node_id}{', remove it from the voters' if replaces else ''}"
        )
        fault(node)
        wait_for_progress()
        if replaces:
            self._remove_voter(node.node_id)
            wait_for_progress()
        self._cluster.restore()
        if replaces:
            self._cluster.add_voter_with_ottla(node.node_id)
            self._cluster.wait_for_voters(*VOTERS)
        wait_for_progress()
        self._cluster.wait_until(lambda: not ongoing(self._cluster), "all reassignments are complete")
        self._cluster.wait_until_in_sync(*self._topics)

    def _reassign(self) -> None:
        """Some partitions get three of the four brokers, in any order."""
        topics = []
        for topic in self._topics:
            moved = self._random.sample(range(PARTITIONS), 2)
            targets = {index: tuple(self._random.sample(BROKERS, 3)) for index in sorted(moved)}
            self.story.append(f"move {topic} to {targets}")
            partitions = tuple({"partition_index": index, "replicas": to} for index, to in targets.items())
            topics.append({"name": topic, "partitions": partitions})
        bootstrap = self._cluster.running_brokers[-1].bootstrap
        answer = ask(bootstrap, ALTER_REASSIGNMENTS, 0, timeout=10_000, topics=tuple(topics))
        assert answer.error_code == 0, answer
        assert all(p.error_code == 0 for t in answer.responses for p in t.partitions), answer

    def _remove_voter(self, node_id: int) -> None:
        self._cluster.controller_id(other_than=node_id)
        bootstrap = ",".join(node.bootstrap for node in self._cluster.running_brokers)
        self._cluster.ottla("quorum", "remove", str(node_id), "--bootstrap", bootstrap)
        self._cluster.wait_for_voters(*(voter for voter in VOTERS if voter != node_id))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[GrowingCluster]:
    with run_growing_cluster(tmp_path, [*combined(3), NodeSpec(4, BROKER)], initial=VOTERS) as cluster:
        yield cluster


def test_nothing_is_lost_when_nodes_die_while_partitions_move_and_voters_change(
    cluster: GrowingCluster, topic_name: str, record_property: Callable[[str, object], None]
) -> None:
    plain = create_topic(cluster, topic_name, PARTITIONS, min_insync_replicas=2)
    copied = create_topic(cluster, f"{topic_name}-txn", PARTITIONS, min_insync_replicas=2)
    with (
        ProduceLoad(cluster, plain, PARTITIONS) as load,
        TransactionLoad(cluster, copied, topic_name, PARTITIONS) as transactions,
    ):

        def wait_for_progress() -> None:
            load.wait_for_more()
            transactions.wait_for_more(5)

        wait_for_progress()
        nemesis = Nemesis(cluster, [plain, copied], SEED)
        for _ in range(4):
            nemesis.hit(wait_for_progress)
        load.finish()
        transactions.finish()
    record_property("latency", f"combined faults: longest time without a record {load.longest_gap_s():.1f} s")
    load.check()
    transactions.check()
    for topic in (plain, copied):
        for partition in range(PARTITIONS):
            cluster.wait_until_copied(topic, partition)


class LoadedCluster(Cluster):
    """What the loads need of a `KafkaCluster`: its addresses, and to wait."""

    def __init__(self, kafka: KafkaCluster) -> None:
        self.nodes = {}
        self._kafka = kafka

    @property
    def bootstrap(self) -> str:
        return self._kafka.bootstrap


def test_nothing_is_lost_when_the_clock_of_one_node_after_the_other_jumps() -> None:
    """Each is the active controller, the leader and the coordinator of some. Its sessions end, the others' do not."""
    with KafkaCluster(3, {"min.insync.replicas": 2}) as kafka:
        cluster = LoadedCluster(kafka)
        plain, copied = (kafka.create_topic(partitions=PARTITIONS) for _ in range(2))
        with (
            ProduceLoad(cluster, plain, PARTITIONS) as load,
            TransactionLoad(cluster, copied, "clocks", PARTITIONS) as transactions,
        ):
            for node_id in (*kafka.nodes, 1):
                load.wait_for_more()
                transactions.wait_for_more(5)
                kafka.node(node_id).start_advance(JUMP_MS).result(30)
            load.wait_for_more()
            transactions.wait_for_more(5)
            load.finish()
            transactions.finish()
        load.check()
        transactions.check()
