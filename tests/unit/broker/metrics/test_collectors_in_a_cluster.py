"""The metrics of replication, in a simulated cluster that loses a broker and gets it back."""

from tests.unit.broker.broker_bench import produce_request
from tests.unit.broker.metrics.metrics_bench import Samples, samples_in
from tests.unit.broker.test_cluster import Nodes, in_cluster

from ottla.broker.metrics.cluster import ControllerCollector
from ottla.broker.metrics.partitions import PartitionsCollector
from ottla.broker.metrics.scrape import scrape
from ottla.broker.metrics.topics import TopicsCollector
from ottla.metrics import PROMETHEUS
from ottla.records.records import Record, build_batch
from ottla.sim.cluster import ClusterNode

MANAGER = "kafka_server_replicamanager_"


async def samples_of(node: ClusterNode) -> Samples:
    assert node.broker is not None
    services = node.broker.services
    collectors = (
        TopicsCollector(services.partitions.counters),
        PartitionsCollector(services),
        ControllerCollector(services.quorum),
    )
    return samples_in(b"".join(await scrape(collectors, services.scheduler, PROMETHEUS)).decode())


def test_a_lost_broker_is_seen_in_the_metrics_of_the_leader() -> None:
    async def check(nodes: Nodes) -> None:
        cluster = nodes.cluster
        await nodes.create(nodes.controller(), "journal")
        await nodes.until(lambda: len(cluster.isr_of("journal", 0)) == 3)
        leader_id = cluster.leader_of("journal", 0)
        (leader,) = (node for node in cluster.brokers if node.node_id == leader_id)
        batch = build_batch([Record(0, nodes.world.clock.now_ms(), b"key", b"value")])
        await nodes.ask(leader, produce_request("journal", batch))
        samples = await samples_of(leader)
        assert samples['kafka_server_brokertopicmetrics_messagesin_total{topic="journal"}'] == 1
        assert samples["kafka_server_brokertopicmetrics_replicationbytesout_total"] >= 2 * len(batch)
        assert samples["kafka_server_brokertopicmetrics_bytesout_total"] == 0
        assert samples[f"{MANAGER}underreplicatedpartitions"] == 0

        victim = next(
            node for node in cluster.brokers if node is not leader and not node.is_active_controller
        )
        copied = await samples_of(victim)
        assert copied["kafka_server_brokertopicmetrics_replicationbytesin_total"] == len(batch)
        assert copied["kafka_server_brokertopicmetrics_messagesin_total"] == 0
        assert copied[f"{MANAGER}leadercount"] == 0
        assert copied[f"{MANAGER}partitioncount"] == 1
        assert not copied.of("kafka_topic_partition_current_offset")  # the leader has it
        assert not copied.of("kafka_topic_partitions")  # the active controller has it
        assert copied["kafka_controller_kafkacontroller_activecontrollercount"] == 0

        await victim.kill()
        await nodes.until(lambda: len(cluster.isr_of("journal", 0)) == 2, within_s=120)
        samples = await samples_of(leader)
        assert samples[f"{MANAGER}underreplicatedpartitions"] == 1
        assert samples['kafka_cluster_partition_insyncreplicascount{partition="0",topic="journal"}'] == 2
        active = await samples_of(nodes.controller())
        under_replicated = 'kafka_topic_partition_under_replicated_partition{partition="0",topic="journal"}'
        assert active[under_replicated] == 1
        assert active["kafka_brokers"] == 2

        victim.start()
        await nodes.until(lambda: len(cluster.isr_of("journal", 0)) == 3, within_s=120)
        samples = await samples_of(leader)
        assert samples[f"{MANAGER}underreplicatedpartitions"] == 0
        assert samples[f"{MANAGER}isrexpands_total"] >= 1

    in_cluster(check)
