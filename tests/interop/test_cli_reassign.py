"""`ottla reassign` on clusters of real processes, of Ottla and of Apache Kafka."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.interop.cluster_clients import ProduceLoad, create_on
from tests.interop.cluster_nodes import BROKER, KAFKA
from tests.interop.clusters import WAIT_TIMEOUT_S, Cluster, NodeSpec, combined, run_cluster, separate

pytestmark = pytest.mark.slow

COMMAND = (sys.executable, "-m", "ottla.cli.main")
TIMEOUT_S = 120
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
REPLICAS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


@pytest.fixture(scope="module")
def four_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with run_cluster(tmp_path_factory.mktemp("r"), [*combined(3), NodeSpec(4, BROKER)]) as cluster:
        yield cluster


@pytest.fixture
def cluster(four_brokers: Cluster) -> Cluster:
    four_brokers.restore()
    return four_brokers


def ottla(cluster: Cluster, *arguments: str, stdin: str = "", fails_with: int = 0) -> str:
    """Returns stdout, or stderr if it fails as expected."""
    done = subprocess.run(
        [*COMMAND, *arguments, "--bootstrap", cluster.bootstrap],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == fails_with, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr if fails_with and done.stderr else done.stdout


def plan_of(*moves: tuple[str, int, list[int]]) -> str:
    partitions = [
        {"topic": topic, "partition": index, "replicas": replicas} for topic, index, replicas in moves
    ]
    return json.dumps({"version": 1, "partitions": partitions})


def configs(cluster: Cluster, kind: str, name: str) -> dict[str, str]:
    lines = ottla(cluster, "configs", "describe", f"--{kind}", name, "--json").splitlines()
    return {line["name"]: line["value"] for line in map(json.loads, lines)}


def replicas_of(cluster: Cluster, topic: str) -> list[tuple[int, ...]]:
    return [partition.replicas for _, partition in sorted(cluster.partitions(topic).items())]


def wait_for_replicas(cluster: Cluster, topic: str, *expected: tuple[int, ...]) -> None:
    """A broker knows a change a moment after the controller, which the commands ask."""
    cluster.wait_until(lambda: replicas_of(cluster, topic) == list(expected), f"{topic} is on {expected}")


def wait_until_not_throttled(cluster: Cluster, topic: str) -> None:
    def is_not_throttled() -> bool:
        throttles = configs(cluster, "topic", topic)
        return [throttles.get(name) or "" for name in REPLICAS] == ["", ""]

    cluster.wait_until(is_not_throttled, f"the throttles of {topic} are removed")


def fill(cluster: Cluster, topic: str, megabytes: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for _ in range(megabytes * 10):
        producer.produce(topic, bytes(100_000))
        producer.poll(0)
    assert producer.flush(WAIT_TIMEOUT_S) == 0


def json_lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_broker_is_drained_with_a_throttle_that_ends_with_it(cluster: Cluster, topic_name: str) -> None:
    create_on(cluster, topic_name, [[1, 2], [2, 3], [3, 4]])
    fill(cluster, topic_name, megabytes=3)
    generated = json.loads(ottla(cluster, "reassign", "generate", "-t", topic_name, "--drain", "2", "--json"))
    assert generated["partitions"] == generated["moved_replicas"] == 2
    assert generated["copied_bytes"] > 0
    plan = ottla(cluster, "reassign", "generate", "-t", topic_name, "--drain", "2")
    assert json.loads(plan) == generated["plan"]
    *progress, end = json_lines(
        ottla(cluster, "reassign", "execute", "-", "--throttle", "500000", "--json", stdin=plan)
    )
    assert end == {"partitions": 2, "is_complete": True}
    assert progress[-1]["moving"] == 0
    assert progress[-1]["copied_bytes"] == progress[-1]["total_bytes"] > 0
    cluster.wait_until(
        lambda: all(2 not in each for each in replicas_of(cluster, topic_name)), "nothing is on broker 2"
    )
    assert replicas_of(cluster, topic_name)[2] == (3, 4)
    assert json_lines(ottla(cluster, "reassign", "verify", "-", "--json", stdin=plan)) == [
        {"topic": topic_name, "partition": index, "state": "complete"} for index in (0, 1)
    ]
    wait_until_not_throttled(cluster, topic_name)
    assert ottla(cluster, "reassign", "generate", "-t", topic_name, "--drain", "2") == ""


def test_brokers_are_drained_and_filled_and_replicas_added_and_removed_under_load(
    cluster: Cluster, topic_name: str
) -> None:
    current: list[tuple[int, ...]] = [(1, 2), (2, 3), (3, 1)]
    create_on(cluster, topic_name, [list(each) for each in current])

    def change(*options: str) -> None:
        plan = ottla(cluster, "reassign", "generate", "-t", topic_name, *options)
        *_, end = json_lines(ottla(cluster, "reassign", "execute", "-", "--json", stdin=plan))
        assert end["is_complete"]
        planned = {each["partition"]: tuple(each["replicas"]) for each in json.loads(plan)["partitions"]}
        expected = [planned.get(index, old) for index, old in enumerate(current)]
        wait_for_replicas(cluster, topic_name, *expected)
        current[:] = expected
        load.wait_for_more()

    def count_of(broker: int) -> int:
        return sum(broker in replicas for replicas in current)

    def factors() -> set[int]:
        return {len(replicas) for replicas in current}

    with ProduceLoad(cluster, topic_name) as load:
        load.wait_for_more()
        change("--drain", "2")
        assert count_of(2) == 0
        change("--add", "2")
        # The topics of other tests count too, so there may be more than one of the six replicas.
        assert count_of(2) >= 1
        change("-r", "3")
        assert factors() == {3}
        change("-r", "2")
        assert factors() == {2}
        load.finish()
    load.check()
    for partition in range(3):
        cluster.wait_until_copied(topic_name, partition)


def test_a_move_is_followed_and_cancelled(cluster: Cluster, topic_name: str, tmp_path: Path) -> None:
    create_on(cluster, topic_name, [[1]])
    fill(cluster, topic_name, megabytes=4)
    path = tmp_path / "plan.json"
    path.write_text(plan_of((topic_name, 0, [3])))
    said = ottla(cluster, "reassign", "execute", str(path), "--no-wait", "--throttle", "1000")
    assert '"replicas": [1]' in said
    throttled = {REPLICAS[0]: "0:1", REPLICAS[1]: "0:3"}
    cluster.wait_until(
        lambda: throttled.items() <= configs(cluster, "topic", topic_name).items(),
        "the replicas are throttled",
    )
    cluster.wait_until(
        lambda: configs(cluster, "broker", "3").get(RATES[1]) == "1000", "broker 3 is throttled"
    )
    assert "moving" in ottla(cluster, "reassign", "verify", str(path), fails_with=1)
    other = plan_of((topic_name, 0, [2]))
    refused = ottla(cluster, "reassign", "execute", "-", stdin=other, fails_with=1)
    assert "it is being moved to 3" in refused
    said = ottla(cluster, "reassign", "cancel", str(path))
    assert f"Cancelled the move of {topic_name}-0" in said
    assert "The throttles were removed" in said
    wait_for_replicas(cluster, topic_name, (1,))
    cluster.wait_until(lambda: RATES[1] not in configs(cluster, "broker", "3"), "the rate is removed")
    assert "No partition" in ottla(cluster, "reassign", "cancel", str(path))


def test_wrong_plans_are_refused_and_change_nothing(cluster: Cluster, topic_name: str) -> None:
    create_on(cluster, topic_name, [[1, 2]], min_insync_replicas=2)
    for plan, reason in (
        (plan_of((topic_name, 0, [1, 9])), "there is no broker 9"),
        (plan_of((topic_name, 0, [1, 1])), "a broker is twice"),
        (plan_of((topic_name, 5, [1])), "has no partition 5"),
        (plan_of(("nobody", 0, [1])), "there is no topic nobody"),
        (plan_of((topic_name, 0, [1])), "fewer than min.insync.replicas=2"),
        (plan_of((topic_name, 0, [3, 4]), ("nobody", 0, [1])), "nothing was changed"),
        ("{}", "cannot be used"),
    ):
        assert reason in ottla(cluster, "reassign", "execute", "-", stdin=plan, fails_with=1)
    assert replicas_of(cluster, topic_name) == [(1, 2)]
    forced = plan_of((topic_name, 0, [1]))
    ottla(cluster, "reassign", "execute", "-", "--force", stdin=forced)
    wait_for_replicas(cluster, topic_name, (1,))


@pytest.mark.java
def test_apache_kafka_is_balanced_and_throttled(kafka_libs: Path, tmp_path: Path, topic_name: str) -> None:
    specs = separate(2, 1, broker_kind=KAFKA, controller_kind=KAFKA)
    with run_cluster(tmp_path, specs) as cluster:
        create_on(cluster, topic_name, [[1], [1]])
        fill(cluster, topic_name, megabytes=2)
        plan = ottla(cluster, "reassign", "generate", "-t", topic_name)
        assert len(json.loads(plan)["partitions"]) == 1
        ottla(cluster, "reassign", "execute", "-", "--throttle", "10000000", stdin=plan)
        cluster.wait_until(
            lambda: sorted(replicas_of(cluster, topic_name)) == [(1,), (2,)], "each broker has a partition"
        )
        assert "complete" in ottla(cluster, "reassign", "verify", "-", stdin=plan)
        wait_until_not_throttled(cluster, topic_name)
