"""Feature levels of a live cluster under load: `ottla features`, and Kafka's own tool for metadata.version."""

import contextlib
import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.interop.cluster_clients import ProduceLoad, create_topic
from tests.interop.cluster_nodes import ClusterNode
from tests.interop.clusters import Cluster, ask, combined
from tests.interop.kafka_jars import java_command
from tests.interop.local_clusters import COMMAND, TIMEOUT_S

pytestmark = pytest.mark.slow
API_VERSIONS = 18
FEATURE_TOOL = "org.apache.kafka.tools.FeatureCommand"
BEFORE = {"metadata.version": 25, "transaction.version": 1}


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Formatted with the levels of an older release."""
    cluster = Cluster(tmp_path_factory.mktemp("features"), combined(3))
    try:
        cluster.format(*(f"{name}={level}" for name, level in BEFORE.items()))
        cluster.start()
        yield cluster
    finally:
        cluster.kill()


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Cluster:
    """The shared cluster with its first levels, which another test may have changed."""
    found = levels(shared_cluster)
    for name, level in BEFORE.items():
        if found[name] != level:
            verb = "upgrade" if found[name] < level else "downgrade"
            done = features(shared_cluster, verb, f"{name}={level}")
            assert done.returncode == 0, done.stderr
    wait_for_levels(shared_cluster, BEFORE)
    return shared_cluster


def features(cluster: Cluster, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [*COMMAND, "features", *arguments, "--bootstrap", cluster.bootstrap]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def levels(cluster: Cluster) -> dict[str, int]:
    done = features(cluster, "describe", "--json")
    assert done.returncode == 0, done.stderr
    return {found["name"]: found["level"] for found in map(json.loads, done.stdout.splitlines())}


def wait_for_levels(cluster: Cluster, wanted: Mapping[str, int]) -> None:
    """Waits until every broker has them: a command may ask any."""

    def all_have() -> bool:
        with contextlib.suppress(OSError):
            return all(wanted.items() <= levels_at(node).items() for node in cluster.running_brokers)
        return False

    cluster.wait_until(all_have, f"all brokers have the levels {wanted}")


def levels_at(node: ClusterNode) -> dict[str, int]:
    client = {"client_software_name": "tests", "client_software_version": "1"}
    answer = ask(node.bootstrap, API_VERSIONS, 4, **client)
    return {str(found.name): int(found.max_version_level) for found in answer.finalized_features}


def test_levels_are_raised_and_lowered_under_load(cluster: Cluster, topic_name: str) -> None:
    create_topic(cluster, topic_name)
    with ProduceLoad(cluster, topic_name) as load:
        load.wait_for_more()
        for verb, arguments, expected in (
            (
                "upgrade",
                ("metadata.version=4.2", "transaction.version=2"),
                {"metadata.version": 29, "transaction.version": 2},
            ),
            (
                "downgrade",
                ("metadata.version=4.0-IV1", "transaction.version=0"),
                {"metadata.version": 23, "transaction.version": 0},
            ),
            ("upgrade", ("metadata.version=25", "transaction.version=1"), BEFORE),
        ):
            done = features(cluster, verb, *arguments)
            assert done.returncode == 0, done.stderr
            on = {name: level for name, level in expected.items() if level}  # level 0 is none
            wait_for_levels(cluster, on)
            found = levels(cluster)
            assert {name: found[name] for name in expected} == expected
            load.wait_for_more()
        load.finish()
    load.check()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("downgrade", "metadata.version=4.0-IV0"), "it might delete metadata information"),
        (("upgrade", "transaction.version=9"), "only supports versions 0-2"),
        (("upgrade", "nope=1"), "does not support this feature"),
        (("upgrade", "metadata.version=17"), "has level 25. Use: ottla features downgrade"),
        (("downgrade", "transaction.version=2"), "has level 1. Use: ottla features upgrade"),
    ],
)
def test_a_level_that_cannot_be_is_refused_with_its_reason_and_nothing_changes(
    cluster: Cluster, arguments: tuple[str, ...], reason: str
) -> None:
    before = levels(cluster)
    other = "group.version=0" if arguments[0] == "downgrade" else "metadata.version=26"
    done = features(cluster, *arguments, *([] if "Use" in reason else [other]))
    assert (done.returncode, reason in done.stderr) == (1, True), done.stderr
    assert levels(cluster) == before


def test_a_dry_run_changes_nothing(cluster: Cluster) -> None:
    done = features(cluster, "upgrade", "metadata.version=4.2", "--dry-run")
    assert done.stdout == "metadata.version would go from level 25 (4.0-IV3) to 29 (4.2-IV1)\n"
    assert levels(cluster)["metadata.version"] == 25


def test_a_level_that_is_no_number_is_wrong_usage(cluster: Cluster) -> None:
    done = features(cluster, "upgrade", "group.version=new")
    assert (done.returncode, "group.version=new: expected a level" in done.stderr) == (2, True)


def test_kafkas_tool_raises_and_lowers_metadata_version(cluster: Cluster, kafka_libs: Path) -> None:
    def run(*arguments: str) -> str:
        tool = ("--bootstrap-server", cluster.bootstrap, *arguments)
        command = java_command(kafka_libs, FEATURE_TOOL, *tool)
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        return done.stdout + done.stderr

    assert "metadata.version was upgraded to 29." in run("upgrade", "--metadata", "4.2-IV1")
    assert "metadata.version was downgraded to 25." in run("downgrade", "--metadata", "4.0-IV3")
    wait_for_levels(cluster, {"metadata.version": 25})
    refused = run("downgrade", "--metadata", "3.9-IV0")
    assert "Refusing to perform the requested downgrade" in refused
    assert levels(cluster)["metadata.version"] == 25
