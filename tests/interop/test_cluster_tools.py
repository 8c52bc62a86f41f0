"""Apache Kafka's own tools on a cluster of three Ottla nodes: its view of the quorum, the brokers and the replicas.

Kafka's ReplicaVerificationTool was removed in 4.0. `Cluster.wait_until_copied` compares the files of the replicas.
"""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.interop.cluster_clients import ProduceLoad, create_on, create_topic
from tests.interop.cluster_nodes import BROKER
from tests.interop.clusters import Cluster, NodeSpec, combined, run_cluster
from tests.interop.kafka_jars import java_command
from tests.interop.kafka_tools import TIMEOUT_S, Tools
from tests.interop.librdkafka import produce_values

pytestmark = [pytest.mark.java, pytest.mark.slow]

TOOLS = "org.apache.kafka.tools"
QUORUM, CLUSTER, FEATURES = (
    f"{TOOLS}.MetadataQuorumCommand",
    f"{TOOLS}.ClusterTool",
    f"{TOOLS}.FeatureCommand",
)
TOPICS, DUMP = f"{TOOLS}.TopicCommand", f"{TOOLS}.DumpLogSegments"
ELECTION, LOG_DIRS = f"{TOOLS}.LeaderElectionCommand", f"{TOOLS}.LogDirsCommand"


@pytest.fixture(scope="module")
def three_nodes(kafka_libs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    often = {"metadata.log.max.record.bytes.between.snapshots": "3000"}
    with run_cluster(tmp_path_factory.mktemp("t"), combined(3), often) as cluster:
        yield cluster


@pytest.fixture
def cluster(three_nodes: Cluster) -> Cluster:
    three_nodes.restore()
    return three_nodes


@pytest.fixture
def tools(kafka_libs: Path, cluster: Cluster) -> Tools:
    return Tools(kafka_libs, cluster.bootstrap)


def rows(printed: str) -> list[list[str]]:
    return [line.split() for line in printed.splitlines() if line.strip()]


def under_one_leader(cluster: Cluster, describe: Callable[[], str]) -> tuple[int, str]:
    """The leader of the quorum, and what a tool says; again, if another controller was elected meanwhile."""

    def find() -> tuple[int, str] | None:
        before = cluster.quorum()
        if before is None or before.leader_id != cluster.controller_id():
            return None
        said = describe()
        after = cluster.quorum()
        same = after is not None and after.leader_epoch == before.leader_epoch
        return (int(before.leader_id), said) if same else None

    return cluster.wait_for(find, "one controller leads while a tool runs")


def test_the_quorum_tool_describes_the_quorum(cluster: Cluster, tools: Tools) -> None:
    leader, said = under_one_leader(cluster, lambda: tools(QUORUM, "describe", "--status"))
    status = dict(line.split(":", 1) for line in said.splitlines())
    assert status["ClusterId"].strip() == cluster.cluster_id
    assert int(status["LeaderId"]) == leader
    assert int(status["LeaderEpoch"]) >= 1
    assert int(status["HighWatermark"]) > 0
    assert int(status["MaxFollowerLag"]) >= 0
    voters = json.loads(status["CurrentVoters"])
    assert {voter["id"] for voter in voters} == {1, 2, 3}
    assert all(voter["endpoints"] for voter in voters)
    assert {1, 2, 3}.isdisjoint(observer["id"] for observer in json.loads(status["CurrentObservers"]))
    controllers = ",".join(node.controller_address for node in cluster.nodes.values())
    server = ("--bootstrap-controller", controllers)
    leader, direct = under_one_leader(cluster, lambda: tools.run(QUORUM, *server, "describe", "--status"))
    assert f"LeaderId:               {leader}" in direct


def test_the_quorum_tool_shows_the_progress_of_each_voter(cluster: Cluster, tools: Tools) -> None:
    leader, said = under_one_leader(cluster, lambda: tools(QUORUM, "describe", "--replication"))
    header, *voters = rows(said)
    assert header[0] == "NodeId"
    # A broker of another test may still be listed as an observer.
    assert {int(row[0]): row[-1] for row in voters if row[-1] != "Observer"} == {
        node_id: "Leader" if node_id == leader else "Follower" for node_id in (1, 2, 3)
    }
    lag = header.index("Lag")
    assert all(int(row[lag]) >= 0 for row in voters)


def test_the_cluster_tool_shows_the_id_and_the_end_points(cluster: Cluster, tools: Tools) -> None:
    brokers = ("--bootstrap-server", cluster.bootstrap)
    assert cluster.cluster_id in tools.run(CLUSTER, "cluster-id", *brokers)
    listed = tools.run(CLUSTER, "list-endpoints", *brokers)
    assert {row[0]: row[2] for row in rows(listed)[1:]} == {
        str(node.node_id): str(node.port) for node in cluster.brokers
    }
    controllers = cluster.nodes[1].controller_address
    by_controller = tools.run(CLUSTER, "list-endpoints", "--bootstrap-controller", controllers)
    assert {row[2] for row in rows(by_controller)[1:]} == {
        str(node.controller_port) for node in cluster.nodes.values()
    }


def test_the_cluster_tool_unregisters_a_dead_broker(cluster: Cluster, tools: Tools) -> None:
    node = cluster.add(NodeSpec(4, BROKER), "n4")
    node.start()
    try:
        cluster.wait_until(lambda: 4 in broker_ids(cluster), "broker 4 has joined")
    finally:
        node.kill()
    cluster.wait_until(lambda: 4 not in broker_ids(cluster), "broker 4 is fenced")
    brokers = ("--bootstrap-server", cluster.bootstrap)
    listed = tools.run(CLUSTER, "list-endpoints", *brokers, "--include-fenced-brokers")
    assert "fenced" in next(line for line in listed.splitlines() if line.startswith("4"))
    assert "Broker 4 is no longer registered" in tools.run(CLUSTER, "unregister", *brokers, "--id", "4")
    listed = tools.run(CLUSTER, "list-endpoints", *brokers, "--include-fenced-brokers")
    assert [row[0] for row in rows(listed)[1:]] == ["1", "2", "3"]


def broker_ids(cluster: Cluster) -> set[int]:
    answer = cluster.metadata()
    return set() if answer is None else {int(broker.node_id) for broker in answer.brokers}


def test_the_feature_tool_shows_kafkas_features(tools: Tools) -> None:
    lines = tools(FEATURES, "describe").splitlines()
    described = {line.split()[1]: line for line in lines if line.startswith("Feature:")}
    assert "FinalizedVersionLevel: 4.3-IV0" in described["metadata.version"]
    assert "FinalizedVersionLevel: 2" in described["transaction.version"]
    assert "FinalizedVersionLevel: 1" in described["group.version"]
    assert "FinalizedVersionLevel: 0" in described["kraft.version"]
    assert "eligible.leader.replicas.version" in described


def test_the_feature_tool_lowers_and_raises_a_feature_under_load(
    cluster: Cluster, tools: Tools, topic_name: str
) -> None:
    create_topic(cluster, topic_name)
    with ProduceLoad(cluster, topic_name) as load:
        load.wait_for_more()
        said = tools(FEATURES, "downgrade", "--feature", "transaction.version=1")
        assert "transaction.version was downgraded to 1." in said
        assert "FinalizedVersionLevel: 1" in described_feature(tools, "transaction.version")
        load.wait_for_more()
        said = tools(FEATURES, "upgrade", "--feature", "transaction.version=2")
        assert "transaction.version was upgraded to 2." in said
        assert "FinalizedVersionLevel: 2" in described_feature(tools, "transaction.version")
        load.wait_for_more()
        load.finish()
    load.check()


def described_feature(tools: Tools, name: str) -> str:
    lines = tools(FEATURES, "describe").splitlines()
    return next(line for line in lines if line.split()[:2] == ["Feature:", name])


def dump(tools: Tools, path: Path, *options: str) -> str:
    said = tools.run(DUMP, "--deep-iteration", *options, "--files", str(path))
    for complaint in ("isvalid: false", "Error", "Exception", "Could not", "Found"):
        assert complaint not in said, said
    return said


def test_the_dump_tool_reads_the_metadata_log_and_snapshots_of_every_node(
    cluster: Cluster, tools: Tools, topic_name: str
) -> None:
    create_topic(cluster, topic_name, 60)  # more bytes than a snapshot waits for
    for node in cluster.nodes.values():
        cluster.wait_until(
            lambda node=node: (
                b"".join(node.log_files("__cluster_metadata", 0).values()).count(topic_name.encode()) > 0
                and any(node.metadata_log.glob("*.checkpoint"))
            ),  # type: ignore[misc]
            f"{node} has the topic and a snapshot",
        )
        logs = sorted(node.metadata_log.glob("*.log"))
        dumped = "".join(dump(tools, log, "--cluster-metadata-decoder") for log in logs)
        types = set(re.findall(r'"type":"(\w+)"', dumped))
        assert {"TOPIC_RECORD", "PARTITION_RECORD", "REGISTER_BROKER_RECORD"} <= types
        newest = max(node.metadata_log.glob("*.checkpoint"))
        assert '"type":"FEATURE_LEVEL_RECORD"' in dump(tools, newest, "--cluster-metadata-decoder")


def test_the_dump_tool_reads_the_log_of_a_follower(cluster: Cluster, tools: Tools, topic_name: str) -> None:
    create_on(cluster, topic_name, [[1, 2, 3]], min_insync_replicas=3)
    produce_values(cluster.bootstrap, topic_name, [b"a", b"b"], acks="all", compression_type="lz4")
    cluster.wait_until_copied(topic_name)
    folder = cluster.nodes[3].data_dir / f"{topic_name}-0"
    said = dump(tools, folder / f"{0:020d}.log", "--print-data-log")
    assert re.findall(r"payload: (\w)", said) == ["a", "b"]
    for index in (f"{0:020d}.index", f"{0:020d}.timeindex"):
        dump(tools, folder / index)


def test_the_topic_tool_creates_replicas_and_finds_those_that_are_missing(
    cluster: Cluster, tools: Tools, topic_name: str
) -> None:
    single = f"{topic_name}-single"
    replicated = ("--partitions", "3", "--replication-factor", "3", "--config", "min.insync.replicas=2")
    tools(TOPICS, "--create", "--topic", topic_name, *replicated)
    lost = next(n for n in (1, 2, 3) if n != cluster.controller_id())
    create_on(cluster, single, [[lost]])
    cluster.wait_until_in_sync(topic_name)
    described = tools(TOPICS, "--describe", "--topic", topic_name)
    assert "PartitionCount: 3\tReplicationFactor: 3\tConfigs: min.insync.replicas=2" in described
    assert tools(TOPICS, "--describe", "--topic", topic_name, "--under-replicated-partitions") == ""
    assert tools(TOPICS, "--describe", "--topic", single, "--unavailable-partitions") == ""
    cluster.nodes[lost].kill()
    cluster.wait_until(lambda: lost not in broker_ids(cluster), "the broker is fenced")
    under = tools(TOPICS, "--describe", "--topic", topic_name, "--under-replicated-partitions")
    assert sorted(re.findall(r"Partition: (\d)", under)) == ["0", "1", "2"]
    # Kafka 4 keeps the last leader of a partition that is not available as its only in-sync replica.
    unavailable = tools(TOPICS, "--describe", "--topic", single, "--unavailable-partitions")
    assert "Leader: none" in unavailable
    cluster.restart(lost)
    cluster.wait_until_in_sync(topic_name, single)
    assert tools(TOPICS, "--describe", "--topic", topic_name, "--under-replicated-partitions") == ""


def test_the_verifiable_clients_agree_over_the_loss_of_a_broker(
    cluster: Cluster, tools: Tools, kafka_libs: Path, topic_name: str, group_id: str
) -> None:
    create_topic(cluster, topic_name, 3, min_insync_replicas=2)
    options = ("--bootstrap-server", cluster.bootstrap, "--topic", topic_name, "--max-messages", "3000")
    slowly = ("--throughput", "600", "--acks", "-1")
    command = java_command(kafka_libs, f"{TOOLS}.VerifiableProducer", *options, *slowly)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as producer:
        assert producer.stdout is not None
        printed = []
        for line in producer.stdout:
            printed.append(json.loads(line))
            if len(printed) == 300:
                lost = cluster.leader_of(topic_name)
                cluster.nodes[lost].kill()
        assert producer.wait(TIMEOUT_S) == 0
    sent = [(e["partition"], e["offset"]) for e in printed if e["name"] == "producer_send_success"]
    # It never retries, so the loss of the leader may cost some records: those are reported as errors.
    assert len(sent) == len(set(sent)) > 2_000
    cluster.restore()
    consumed = tools(
        f"{TOOLS}.VerifiableConsumer",
        *(
            "--topic",
            topic_name,
            "--group-id",
            group_id,
            "--max-messages",
            str(len(sent)),
            "--reset-policy",
            "earliest",
        ),
    )
    events = [json.loads(line) for line in consumed.splitlines()]
    # It stops after the poll in which it has enough, and may see records whose acknowledgement was lost.
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") >= len(sent)


def test_the_election_tool_elects_the_preferred_leader(
    cluster: Cluster, tools: Tools, topic_name: str
) -> None:
    create_on(cluster, topic_name, [[2, 3, 1]], min_insync_replicas=1)
    with ProduceLoad(cluster, topic_name, 1) as load:
        load.wait_for_more()
        cluster.nodes[2].stop()
        cluster.leader_of(topic_name, other_than=2)
        cluster.restart(2)
        cluster.wait_until_in_sync(topic_name)
        one = ("--topic", topic_name, "--partition", "0")
        if cluster.leader_of(topic_name) != 2:  # the controller balances leaders by itself, now and then
            said = tools(ELECTION, "--election-type", "preferred", *one)
            assert f"Successfully completed leader election (PREFERRED) for partitions {topic_name}-0" in said
        cluster.wait_until(lambda: cluster.leader_of(topic_name) == 2, "broker 2 leads")
        assert "Valid replica already elected" in tools(ELECTION, "--election-type", "preferred", *one)
        load.wait_for_more()
        load.finish()
    load.check()


def test_the_election_tool_elects_a_replica_that_is_not_in_sync(
    cluster: Cluster, tools: Tools, topic_name: str
) -> None:
    first, second = [node_id for node_id in (1, 2, 3) if node_id != cluster.controller_id()]
    create_on(cluster, topic_name, [[first, second]], min_insync_replicas=1)
    cluster.nodes[second].kill()
    cluster.wait_until(lambda: cluster.partition(topic_name).isr == (first,), "the ISR has shrunk")
    produce_values(cluster.bootstrap, topic_name, [b"only on the first"], acks="all")
    cluster.nodes[first].kill()
    cluster.nodes[second].start()
    others = ",".join(node.bootstrap for node in cluster.running_brokers)
    cluster.wait_until(lambda: cluster.partition(topic_name).leader == -1, "nobody leads")
    cluster.wait_until(lambda: second in broker_ids(cluster), "the second is back")
    one = ("--topic", topic_name, "--partition", "0", "--bootstrap-server", others)
    said = tools.run(ELECTION, "--election-type", "unclean", *one)
    assert f"Successfully completed leader election (UNCLEAN) for partitions {topic_name}-0" in said
    assert cluster.leader_of(topic_name) == second
    produce_values(cluster.bootstrap, topic_name, [b"new"], acks="all")
    cluster.restart(first)
    cluster.wait_until_in_sync(topic_name)
    assert b"only on the first" not in cluster.wait_until_copied(topic_name)


def test_the_log_dirs_tool_shows_every_replica(cluster: Cluster, tools: Tools, topic_name: str) -> None:
    create_topic(cluster, topic_name, 1, min_insync_replicas=3)
    produce_values(cluster.bootstrap, topic_name, [b"x" * 1_000], acks="all")
    cluster.wait_until_copied(topic_name)
    shown = tools(LOG_DIRS, "--describe", "--topic-list", topic_name)
    described = json.loads(shown.splitlines()[-1])
    sizes = {
        broker["broker"]: [p["size"] for d in broker["logDirs"] for p in d["partitions"]]
        for broker in described["brokers"]
    }
    assert sizes.keys() == {1, 2, 3}
    assert sizes[1] == sizes[2] == sizes[3]
    assert 1_000 < sizes[1][0] < 1_200
