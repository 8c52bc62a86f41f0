"""`ottla cluster up` with real nodes: one command runs a cluster, and no process outlives it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

COMMAND = (sys.executable, "-m", "ottla.cli.main")
TIMEOUT_S = 120.0
# What `ottla serve` says while it supports only a quorum of one node.
NOT_SUPPORTED = ("quorum of several nodes is not supported", "a node with one role is not supported")


def ottla(*arguments: str, stdin: str = "") -> str:
    done = subprocess.run(
        [*COMMAND, *arguments], input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {TIMEOUT_S:.0f} s in vain until {what}"
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


class Up:
    """A running `ottla cluster up`."""

    def __init__(self, folder: Path, number: int, options: Sequence[str]) -> None:
        self.out, self.err = folder / f"{number}.out", folder / f"{number}.err"
        with self.out.open("wb") as out, self.err.open("wb") as err:
            command = [*COMMAND, "cluster", "up", "--data", str(folder / "cluster"), "--json", *options]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        wait_until(lambda: "\n" in self.out.read_text() or self.process.poll() is not None, "it is ready")
        if self.process.poll() is not None:
            reason = self.err.read_text()
            if any(text in reason for text in NOT_SUPPORTED):
                pytest.skip(f"this version runs clusters of one node only: {reason.splitlines()[-1].strip()}")
            pytest.fail(f"it ended with code {self.process.returncode}: {reason}")
        self.ready: dict[str, Any] = json.loads(self.out.read_text().splitlines()[0])

    @property
    def bootstrap(self) -> str:
        return str(self.ready["ready"])

    @property
    def pids(self) -> dict[int, int]:
        return {node["id"]: node["pid"] for node in self.ready["nodes"]}

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(TIMEOUT_S)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for pid in self.pids.values() if hasattr(self, "ready") else ():
            wait_until(lambda pid=pid: not is_running(pid), "every node has ended")  # type: ignore[misc]


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Callable[..., Up]]:
    """Starts `ottla cluster up` with these options; all that it starts in one test have the same folder."""
    started: list[Up] = []

    def start(*options: str) -> Up:
        started.append(Up(tmp_path, len(started), ("--listen", "127.0.0.1:0", *options)))
        return started[-1]

    yield start
    for cluster in started:
        cluster.close()


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
