"""Voters that change while a cluster of real processes runs, by `ottla quorum` and by Kafka's own tools (KIP-853)."""

import re
import shutil
from pathlib import Path

import pytest
from tests.interop.clusters import combined, run_cluster
from tests.interop.growing_cluster import GrowingCluster, run_growing_cluster
from tests.interop.kafka_tools import Tools
from tests.interop.topic_load import TopicLoad, check_topics

pytestmark = pytest.mark.slow

QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
DUMP = "org.apache.kafka.tools.DumpLogSegments"


def remove(cluster: GrowingCluster, node_id: int) -> None:
    bootstrap = ",".join(node.bootstrap for node in cluster.running_brokers)
    options = (str(node_id), "--bootstrap", bootstrap)
    cluster.remove_voter(node_id, lambda: cluster.ottla("quorum", "remove", *options))


def test_a_quorum_grows_to_three_and_replaces_a_dead_controller_under_load(tmp_path: Path) -> None:
    with run_growing_cluster(tmp_path, combined(3)) as cluster:
        with TopicLoad(cluster) as load:
            load.wait_for_more()
            cluster.add_voter_with_ottla(2)
            cluster.add_voter_with_ottla(3)
            cluster.wait_for_voters(1, 2, 3)
            load.wait_for_more()

            dead = cluster.nodes[1]
            dead.kill()
            load.wait_for_more()
            shutil.rmtree(dead.data_dir)
            cluster.format_node(dead, "--no-initial-controllers")
            remove(cluster, 1)
            cluster.wait_for_voters(2, 3)
            cluster.restart(1)
            cluster.add_voter_with_ottla(1)
            cluster.wait_for_voters(1, 2, 3)
            load.wait_for_more()
            check_topics(cluster, load.created)

            cluster.nodes[2].kill()
            load.wait_for_more()
            cluster.restart(2)
        check_topics(cluster, load.created)


@pytest.mark.parametrize("initial", [(), (1, 2)], ids=["standalone", "initial controllers"])
def test_controllers_join_by_themselves_under_load(tmp_path: Path, initial: tuple[int, ...]) -> None:
    auto_join = {"controller.quorum.auto.join.enable": "true"}
    with (
        run_growing_cluster(tmp_path, combined(3), auto_join, initial=initial) as cluster,
        TopicLoad(cluster) as load,
    ):
        load.wait_for_more()
        cluster.wait_for_voters(1, 2, 3)
        cluster.nodes[1].kill()
        load.wait_for_more()
        cluster.restart(1)
        check_topics(cluster, load.created)


@pytest.mark.java
def test_kafkas_tools_change_and_dump_the_voters(tmp_path: Path, kafka_libs: Path) -> None:
    with run_growing_cluster(tmp_path, combined(3)) as cluster:
        tools = Tools(kafka_libs, cluster.bootstrap)
        for node_id in (2, 3):
            config = str(cluster.nodes[node_id].config_path)
            arguments = ("--bootstrap-server", cluster.bootstrap, "--command-config", config)
            cluster.add_voter(node_id, lambda: tools.run(QUORUM, *arguments, "add-controller"))  # noqa: B023
        cluster.wait_for_voters(1, 2, 3)
        status = tools(QUORUM, "describe", "--status")
        assert re.search(r'CurrentVoters:.*"id": 1.*"directoryId".*"endpoints"', status), status
        assert "FinalizedVersionLevel: 1" in next(
            line for line in tools(FEATURES, "describe").splitlines() if "kraft.version" in line
        )
        leader = cluster.controller_id()
        directory_id = next(
            line.partition("=")[2]
            for line in (cluster.nodes[leader].data_dir / "meta.properties").read_text().splitlines()
            if line.startswith("directory.id")
        )
        removal = ("--controller-id", str(leader), "--controller-directory-id", directory_id)
        cluster.remove_voter(leader, lambda: tools(QUORUM, "remove-controller", *removal))
        others = {1, 2, 3} - {leader}
        cluster.wait_for_voters(*sorted(others))
        assert cluster.controller_id(other_than=leader) in others
        folder = cluster.nodes[1].metadata_log
        log = tools.run(DUMP, "--cluster-metadata-decoder", "--files", str(folder / f"{0:020d}.log"))
        for expected in ("LeaderChange", "KRaftVersion", "KRaftVoters"):
            assert expected in log, log
        bootstrap = folder / f"{0:020d}-{0:010d}.checkpoint"
        snapshot = tools.run(DUMP, "--cluster-metadata-decoder", "--files", str(bootstrap))
        for expected in ("SnapshotHeader", "KRaftVersion", "KRaftVoters", "SnapshotFooter"):
            assert expected in snapshot, snapshot


@pytest.mark.java
def test_static_voters_become_voters_in_the_log_of_a_live_cluster(tmp_path: Path, kafka_libs: Path) -> None:
    with run_cluster(tmp_path, combined(3)) as cluster, TopicLoad(cluster) as load:
        load.wait_for_more()
        cluster.wait_until(
            lambda: all("is registered" in node.log_text() for node in cluster.nodes.values()),
            "all controllers have registered: brokers serve before that",
        )
        tools = Tools(kafka_libs, cluster.bootstrap)
        tools(FEATURES, "upgrade", "--feature", "kraft.version=1")
        load.wait_for_more()
        quorum = cluster.quorum()
        assert all(voter.replica_directory_id is not None for voter in quorum.current_voters)
        follower = next(voter for voter in quorum.current_voters if voter.replica_id != quorum.leader_id)
        node = cluster.nodes[int(follower.replica_id)]
        node.kill()
        cluster.restart(node.node_id)
        load.wait_for_more()
        assert 'data_version":1' in (node.metadata_log / "quorum-state").read_text()
        check_topics(cluster, load.created)
