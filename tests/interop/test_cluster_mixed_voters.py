"""Voters of both kinds in one quorum (KIP-853): Apache Kafka joins Ottla, Ottla joins Apache Kafka, and each leads."""

import re
from pathlib import Path

import pytest
from tests.interop.cluster_nodes import BROKER, CONTROLLER, KAFKA, OTTLA, ClusterNode
from tests.interop.clusters import NodeSpec
from tests.interop.growing_cluster import GrowingCluster, run_growing_cluster
from tests.interop.kafka_tools import Tools
from tests.interop.topic_load import TopicLoad, check_topics

pytestmark = [pytest.mark.java, pytest.mark.slow]

QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
DUMP = "org.apache.kafka.tools.DumpLogSegments"
BROKER_ID = 9
# So that the voters are in snapshots too, and a new voter fetches one.
SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "2000"}
# Of two voters, each needs the other. A stall of one must not be an election: the test says who leads.
PATIENCE = {"controller.quorum.fetch.timeout.ms": "20000"}


def directory_id(node: ClusterNode) -> str:
    lines = (node.data_dir / "meta.properties").read_text().splitlines()
    return next(line.partition("=")[2] for line in lines if line.startswith("directory.id"))


class Voters:
    def __init__(self, cluster: GrowingCluster, libs: Path) -> None:
        self.cluster = cluster
        self.tools = Tools(libs, cluster.bootstrap)

    def add(self, node_id: int) -> None:
        config = str(self.cluster.nodes[node_id].config_path)
        arguments = ("--bootstrap-server", self.cluster.bootstrap, "--command-config", config)
        self.cluster.add_voter(node_id, lambda: self.tools.run(QUORUM, *arguments, "add-controller"))

    def remove(self, node_id: int) -> None:
        key = ("--controller-id", str(node_id), "--controller-directory-id")
        directory = directory_id(self.cluster.nodes[node_id])
        self.cluster.remove_voter(node_id, lambda: self.tools(QUORUM, "remove-controller", *key, directory))


@pytest.mark.parametrize(
    ("first", "second"), [(OTTLA, KAFKA), (KAFKA, OTTLA)], ids=["kafka joins", "ottla joins"]
)
def test_each_kind_joins_the_other_and_leads_it(
    first: str, second: str, tmp_path: Path, kafka_libs: Path
) -> None:
    specs = [
        NodeSpec(1, CONTROLLER, first),
        NodeSpec(2, CONTROLLER, second),
        NodeSpec(BROKER_ID, BROKER, OTTLA),
    ]
    with run_growing_cluster(tmp_path, specs, SNAPSHOTS | PATIENCE) as cluster, TopicLoad(cluster) as load:
        voters = Voters(cluster, kafka_libs)
        load.wait_for_more()
        voters.add(2)
        cluster.wait_for_voters(1, 2)
        assert cluster.controller_id() == 1
        load.wait_for_more()

        voters.remove(1)
        cluster.wait_for_voters(2)
        cluster.wait_until(lambda: cluster.controller_id() == 2, "node 2 leads")
        load.wait_for_more()

        voters.add(1)
        cluster.wait_for_voters(1, 2)
        assert cluster.controller_id() == 2
        load.wait_for_more()
        status = voters.tools(QUORUM, "describe", "--status")
        for node_id in (1, 2):
            key = f'"id": {node_id}, "directoryId": "{directory_id(cluster.nodes[node_id])}"'
            assert key in status, status
        check_topics(cluster, load.created)
        for node in (cluster.nodes[1], cluster.nodes[2]):
            snapshots = sorted(node.metadata_log.glob("*.checkpoint"))
            dumped = voters.tools.run(DUMP, "--cluster-metadata-decoder", "--files", str(snapshots[-1]))
            assert re.search(r'KRaftVoters .*"voterId":2', dumped), dumped
