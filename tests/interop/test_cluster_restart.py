"""`ottla cluster restart --rolling` with real nodes, under the load of a real producer."""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.interop.librdkafka import read_records
from tests.interop.local_clusters import COMMAND, TIMEOUT_S, Up, is_running, ottla, up
from tests.interop.produce_load import Load

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
__all__ = ["up"]  # the fixture
PARTITIONS = 6
# The leader of the quorum is restarted last. A stall of the machine must not be an election in between.
PATIENCE = ("--set", "controller.quorum.fetch.timeout.ms=20000")
# Restarts a node of `ottla cluster up` as a program of the user would: arguments are the folder and the node, and
# `wait` to return when the old process has ended; without, it returns at once, and the node is asked seconds later. It
# notes the processes of all nodes.
RESTART = """
import json, os, sys, time
from pathlib import Path
from ottla.cli.cluster_state import read_state, request_restart
data, node_id = Path(sys.argv[1]), int(sys.argv[2])
pids = {node.id: node.pid for node in read_state(data).nodes}
before = pids[node_id]
with (data / "commands").open("a") as commands:
    print(json.dumps(pids), file=commands)
if "wait" not in sys.argv:
    if os.fork():
        sys.exit()
    time.sleep(3)
request_restart(data, node_id)
while "wait" in sys.argv and read_state(data).node(node_id).pid == before:
    time.sleep(0.05)
"""


def restart(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [*COMMAND, "cluster", "restart", "--rolling", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=3 * TIMEOUT_S, check=False)


def quorum_leader(cluster: Up) -> int:
    """The leader now: another than in the ready line, if there was an election since."""
    found: int = json.loads(ottla("quorum", "describe", "--json", "--bootstrap", cluster.bootstrap))[
        "leader_id"
    ]
    return found


def state(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "cluster.json").read_text())
    return found


@pytest.mark.parametrize("way", ["--data", "--command", "--command that does not wait"])
def test_a_rolling_restart_under_load_loses_nothing_and_shows_the_application_no_error(
    up: Callable[..., Up], tmp_path: Path, way: str
) -> None:
    cluster, folder = up("--nodes", "3", *PATIENCE), tmp_path / "cluster"
    ottla("topics", "create", "orders", "-p", str(PARTITIONS), "--bootstrap", cluster.bootstrap)
    command = shlex.join([sys.executable, "-c", RESTART, str(folder), "{id}"])
    by_command = ("--bootstrap", cluster.bootstrap, "--command")
    arguments = {
        "--data": ("--data", str(folder)),
        "--command": (*by_command, f"{command} wait"),
        "--command that does not wait": (*by_command, command),
    }
    with Load(cluster.bootstrap, "orders", PARTITIONS) as load:
        load.wait_for_more()
        leader = quorum_leader(cluster)
        done = restart(*arguments[way], "--json")
        assert done.returncode == 0, done.stderr + cluster.err.read_text()
        load.wait_for_more()
    restarted = [json.loads(line)["node"] for line in done.stdout.splitlines()]
    assert sorted(restarted) == [1, 2, 3]
    assert restarted[-1] == leader
    assert (load.errors, load.acknowledged) == ([], load.sent)
    records = read_records(cluster.bootstrap, "orders", load.sent, tuple(range(PARTITIONS)))
    assert sorted(int(record.value() or -1) for record in records) == list(range(load.sent))
    if way != "--data":  # at each command, only the nodes before have been restarted
        at_commands = [json.loads(line) for line in (folder / "commands").read_text().splitlines()]
        changed = [[id for id, pid in cluster.pids.items() if pids[str(id)] != pid] for pids in at_commands]
        assert changed == [sorted(restarted[:count]) for count in range(3)]
    now = {node["id"]: node["pid"] for node in state(folder)["nodes"]}
    assert all(now[node_id] != pid and not is_running(pid) for node_id, pid in cluster.pids.items())
    assert cluster.end(signal.SIGTERM) == 0, cluster.err.read_text()
    assert not any(is_running(pid) for pid in now.values())
    assert not (folder / "cluster.json").exists()


def test_controllers_of_their_own_are_restarted_after_the_brokers(
    up: Callable[..., Up], tmp_path: Path
) -> None:
    cluster = up("--nodes", "2", "--controllers", "3", *PATIENCE)
    leader = quorum_leader(cluster)
    done = restart("--data", str(tmp_path / "cluster"), "--json")
    assert done.returncode == 0, done.stderr
    restarted = [json.loads(line)["node"] for line in done.stdout.splitlines()]
    assert restarted == [1, 2, *sorted({101, 102, 103} - {leader}), leader]
    assert cluster.end(signal.SIGTERM) == 0, cluster.err.read_text()


def test_a_node_that_does_not_come_back_stops_the_restart(up: Callable[..., Up], tmp_path: Path) -> None:
    cluster, folder = up("--nodes", "3", *PATIENCE), tmp_path / "cluster"
    leader = quorum_leader(cluster)
    first, second = sorted({1, 2, 3} - {leader})
    with (folder / f"node-{first}" / "server.properties").open("a") as properties:
        properties.write("authorizer.class.name=a.Authorizer\n")
    done = restart("--data", str(folder))
    assert done.returncode == 1
    assert f"node {first} is not back: its process ended with exit code 2. See " in done.stderr
    others = ", ".join(map(str, sorted([second, leader])))
    assert f"nodes that were not restarted: {others}" in done.stderr
    now = {node["id"]: node["pid"] for node in state(folder)["nodes"]}
    assert [now[node_id] for node_id in (second, leader)] == [cluster.pids[n] for n in (second, leader)]
    # Nor does another attempt take a second node down.
    again = restart("--data", str(folder))
    assert again.returncode == 1
    assert f"no node was restarted: broker {first} is not active" in again.stderr


def test_partitions_without_a_replica_to_spare_are_not_taken_down_unless_forced(
    up: Callable[..., Up], tmp_path: Path
) -> None:
    cluster, folder = up("--nodes", "2", "--controllers", "1"), tmp_path / "cluster"
    ottla("topics", "create", "alone", "-p", "1", "-r", "1", "--bootstrap", cluster.bootstrap)
    refused = restart("--data", str(folder))
    assert refused.returncode == 1, refused.stderr
    assert "1 partitions have no replica to spare (alone-0)" in refused.stderr
    assert {node["id"]: node["pid"] for node in state(folder)["nodes"]} == cluster.pids
    assert restart("--data", str(folder), "--force").returncode == 0


def test_a_folder_without_a_running_cluster_is_refused(up: Callable[..., Up], tmp_path: Path) -> None:
    done = restart("--data", str(tmp_path))
    assert (done.returncode, f"no cluster runs in {tmp_path}" in done.stderr) == (1, True)
    cluster = up("--nodes", "1")
    os.kill(cluster.process.pid, signal.SIGKILL)
    cluster.process.wait()
    done = restart("--data", str(tmp_path / "cluster"))
    assert (done.returncode, "no longer runs. Start it again" in done.stderr) == (1, True)
