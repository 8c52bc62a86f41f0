"""`ottla cluster up` with real nodes: one command runs a cluster, and no process outlives it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.interop.local_clusters import COMMAND, TIMEOUT_S, Up, is_running, ottla, up, wait_until

pytestmark = pytest.mark.slow
__all__ = ["up"]  # the fixture


def test_one_node_starts_serves_stops_and_continues_with_its_data(
    up: Callable[..., Up], tmp_path: Path
) -> None:
    first = up("--nodes", "1", "--set", "num.partitions=2")
    (node,) = first.ready["nodes"]
    assert (node["roles"], node["quorum"], node["address"]) == (
        "broker,controller",
        "leader",
        first.bootstrap,
    )
    ottla("topics", "create", "orders", "--bootstrap", first.bootstrap)
    ottla("produce", "orders", "--bootstrap", first.bootstrap, stdin="one\ntwo\n")
    assert first.end(signal.SIGINT) == 0, first.err.read_text()
    assert not is_running(node["pid"])
    assert "has stopped" in (tmp_path / "cluster" / "node-1" / "node.log").read_text()
    second = up("--nodes", "1")
    assert second.ready["cluster_id"] == first.ready["cluster_id"]
    consumed = ottla("consume", "orders", "--bootstrap", second.bootstrap)
    assert sorted(consumed.splitlines()) == ["one", "two"]
    assert second.end(signal.SIGTERM) == 0


def test_a_node_can_be_run_by_hand_with_its_properties(up: Callable[..., Up], tmp_path: Path) -> None:
    assert up("--nodes", "1").end(signal.SIGTERM) == 0
    properties = tmp_path / "cluster" / "node-1" / "server.properties"
    with subprocess.Popen(
        [*COMMAND, "serve", "--config", str(properties)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as node:
        assert node.stdout is not None
        assert node.stdout.readline().startswith(b"ready 127.0.0.1:")
        node.terminate()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux signals the death of a parent")
def test_no_node_outlives_a_killed_command(up: Callable[..., Up]) -> None:
    cluster = up("--nodes", "1")
    (pid,) = cluster.pids.values()
    cluster.end(signal.SIGKILL)
    wait_until(lambda: not is_running(pid), "the node has ended")


def test_the_death_of_the_only_node_is_reported_and_ends_the_command(up: Callable[..., Up]) -> None:
    cluster = up("--nodes", "1")
    os.kill(cluster.pids[1], signal.SIGKILL)
    assert cluster.process.wait(TIMEOUT_S) == 1
    assert json.loads(cluster.out.read_text().splitlines()[1])["exit_code"] == -signal.SIGKILL
    assert "was killed by SIGKILL" in cluster.err.read_text()


def test_a_config_that_a_node_refuses_is_shown(tmp_path: Path) -> None:
    options = ("--nodes", "1", "--listen", "127.0.0.1:0", "--set", "authorizer.class.name=a.Authorizer")
    done = subprocess.run(
        [*COMMAND, "cluster", "up", "--data", str(tmp_path / "cluster"), *options],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "ended with exit code 2 before the cluster was ready" in done.stderr
    assert "authorizer.class.name is set, but authorization is not supported" in done.stderr


@pytest.mark.parametrize("options", [("--nodes", "3"), ("--nodes", "2", "--controllers", "3")])
def test_several_nodes_serve_and_survive_the_death_of_the_active_controller(
    up: Callable[..., Up], options: tuple[str, ...]
) -> None:
    cluster = up(*options)
    brokers = [node["id"] for node in cluster.ready["nodes"] if "broker" in node["roles"]]
    (leader,) = [node["id"] for node in cluster.ready["nodes"] if node["quorum"] == "leader"]
    listed = [
        json.loads(line)
        for line in ottla("brokers", "list", "--json", "--bootstrap", cluster.bootstrap).splitlines()
    ]
    assert [(broker["id"], broker["state"]) for broker in listed] == [(id, "active") for id in brokers]
    ottla("topics", "create", "orders", "-p", "6", "-r", "1", "--bootstrap", cluster.bootstrap)
    lines = [str(number) for number in range(100)]
    ottla("produce", "orders", "--bootstrap", cluster.bootstrap, stdin="".join(f"{line}\n" for line in lines))
    consumed = ottla("consume", "orders", "--bootstrap", cluster.bootstrap)
    assert sorted(consumed.splitlines()) == sorted(lines)

    os.kill(cluster.pids[leader], signal.SIGKILL)
    left = [node["address"] for node in cluster.ready["nodes"] if node["address"] and node["id"] != leader]

    def has_new_leader() -> bool:
        done = subprocess.run(
            [*COMMAND, "quorum", "describe", "--json", "--bootstrap", ",".join(left)],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        return done.returncode == 0 and json.loads(done.stdout)["leader_id"] not in (None, leader)

    wait_until(has_new_leader, "another controller leads")
    wait_until(lambda: f"node {leader} " in cluster.err.read_text(), "the death is reported")
    assert cluster.end(signal.SIGTERM) == 0, cluster.err.read_text()
    assert not any(is_running(pid) for pid in cluster.pids.values())
