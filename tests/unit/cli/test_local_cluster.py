"""The processes of a local cluster, with a fake node: start, failure, death, stop, and the death of the parent."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.admin.signal_flag import SignalFlag
from ottla.cli.local_cluster import LocalCluster, Node, NodeFailedError, NodeSpec

pytestmark = pytest.mark.slow

FAKE = Path(__file__).with_name("fake_broker.py")
TIMEOUT_S = 30.0
GRACE_S = 20.0
# A parent that starts one fake node, prints its pid and then does nothing.
PARENT = """
import sys, threading
from pathlib import Path
from ottla.admin.signal_flag import SignalFlag
from ottla.cli.local_cluster import LocalCluster, NodeSpec
cluster = LocalCluster([NodeSpec(1, sys.argv[2:], Path(sys.argv[1]), False)], SignalFlag(), print)
cluster.start()
cluster.wait_until_ready(30)
print(cluster.nodes[0].pid, flush=True)
threading.Event().wait()
"""


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


class Clusters:
    """Builds clusters, and kills what is left of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stop = SignalFlag()
        self.kill = SignalFlag()
        self.reports: list[str] = []
        self.lines: list[tuple[int, str]] = []
        self.built: list[LocalCluster] = []

    def build(self, *manners: str, controllers: tuple[int, ...] = ()) -> LocalCluster:
        specs = [
            NodeSpec(
                number,
                [sys.executable, str(FAKE), manner],
                self.folder / f"{number}.log",
                has_controller=number in controllers,
            )
            for number, manner in enumerate(manners, 1)
        ]
        cluster = LocalCluster(
            specs, self.stop, self.reports.append, lambda node, line: self.lines.append((node, line))
        )
        self.built.append(cluster)
        cluster.start()
        return cluster

    def close(self) -> None:
        for node in (node for cluster in self.built for node in cluster.nodes):
            node.process.kill()
            node.process.wait()


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[Clusters]:
    built = Clusters(tmp_path)
    yield built
    built.close()


def test_nodes_start_and_stop_cleanly(clusters: Clusters) -> None:
    cluster = clusters.build("", "")
    cluster.wait_until_ready(TIMEOUT_S)
    assert [node.address for node in cluster.nodes] == ["127.0.0.1:9092"] * 2
    assert cluster.stop(GRACE_S, clusters.kill)
    assert [node.exit_code for node in cluster.nodes] == [0, 0]
    assert (1, "stopped") in clusters.lines
    assert (2, "ready 127.0.0.1:9092") in clusters.lines
    assert clusters.reports == []


def test_a_node_that_fails_to_start_is_named_with_its_last_log_lines(clusters: Clusters) -> None:
    cluster = clusters.build("", "fail")
    with pytest.raises(
        NodeFailedError, match=r"node 2 \(pid \d+\) ended with exit code 3 .*(?s:.*)disk is on fire"
    ):
        cluster.wait_until_ready(TIMEOUT_S)
    # Before, SIGTERM would kill it.
    wait_until(lambda: "ready" in cluster.nodes[0].spec.log_path.read_text())
    assert cluster.stop(GRACE_S, clusters.kill)
    assert cluster.nodes[0].exit_code == 0


def test_a_command_that_does_not_exist_is_a_failed_node(clusters: Clusters, tmp_path: Path) -> None:
    cluster = LocalCluster(
        [NodeSpec(1, [str(tmp_path / "nothing")], tmp_path / "log", False)], clusters.stop, print
    )
    cluster.start()
    with pytest.raises(NodeFailedError, match="No such file or directory"):
        cluster.wait_until_ready(TIMEOUT_S)


def test_a_node_that_is_not_ready_in_time_is_named(clusters: Clusters) -> None:
    cluster = clusters.build("silent")
    wait_until(lambda: cluster.nodes[0].spec.log_path.read_text() == "starting\n")
    with pytest.raises(
        NodeFailedError, match=r"node 1 \(pid \d+\) was not ready within 0 s.*(?s:.*)starting"
    ):
        cluster.wait_until_ready(0)


def test_a_request_to_stop_ends_the_wait(clusters: Clusters) -> None:
    cluster = clusters.build("silent")
    clusters.stop.set()
    cluster.wait_until_ready(TIMEOUT_S)
    assert cluster.nodes[0].address is None


def test_a_node_that_dies_is_reported_once_and_the_others_go_on(clusters: Clusters) -> None:
    cluster = clusters.build("", "")
    cluster.wait_until_ready(TIMEOUT_S)
    cluster.nodes[1].process.kill()
    ended: list[Node] = []

    def on_end(node: Node) -> None:
        ended.append(node)
        clusters.stop.set()

    cluster.watch(on_end)
    assert [(node.id, node.ending()) for node in ended] == [(2, "was killed by SIGKILL")]
    assert cluster.nodes[0].exit_code is None


def test_the_watch_ends_when_no_node_is_left(clusters: Clusters) -> None:
    cluster = clusters.build("", "unclean")
    cluster.wait_until_ready(TIMEOUT_S)
    for node in cluster.nodes:
        node.process.terminate()
    ended: list[str] = []
    cluster.watch(lambda node: ended.append(node.ending()))
    assert sorted(ended) == ["ended with exit code 0", "ended with exit code 4"]


def test_brokers_stop_before_controllers(clusters: Clusters) -> None:
    cluster = clusters.build("", "", "", controllers=(1,))
    cluster.wait_until_ready(TIMEOUT_S)
    assert cluster.stop(GRACE_S, clusters.kill)
    stopped = [node for node, line in clusters.lines if line == "stopped"]
    assert (sorted(stopped[:2]), stopped[2]) == ([2, 3], 1)


def test_a_node_that_does_not_stop_is_killed_with_a_message(clusters: Clusters) -> None:
    cluster = clusters.build("stubborn", "")
    cluster.wait_until_ready(TIMEOUT_S)
    assert not cluster.stop(0.2, clusters.kill)
    assert cluster.nodes[0].exit_code == -signal.SIGKILL
    assert any("did not stop within 0.2 s and is killed (SIGKILL)" in report for report in clusters.reports)


def test_a_second_request_kills_at_once(clusters: Clusters) -> None:
    cluster = clusters.build("stubborn")
    cluster.wait_until_ready(TIMEOUT_S)
    clusters.kill.set()
    assert not cluster.stop(GRACE_S, clusters.kill)
    assert clusters.reports == [f"{cluster.nodes[0]} is killed (SIGKILL)"]


def test_a_node_that_stops_with_an_error_is_reported(clusters: Clusters) -> None:
    cluster = clusters.build("unclean")
    cluster.wait_until_ready(TIMEOUT_S)
    assert not cluster.stop(GRACE_S, clusters.kill)
    (report,) = clusters.reports
    assert "did not stop cleanly: it ended with exit code 4" in report


def test_the_log_of_an_earlier_run_does_not_count(clusters: Clusters, tmp_path: Path) -> None:
    (tmp_path / "1.log").write_text("ready 127.0.0.1:1\n")
    cluster = clusters.build("fail")
    with pytest.raises(NodeFailedError):
        cluster.wait_until_ready(TIMEOUT_S)
    assert "ready" not in cluster.nodes[0].log_tail()
    assert (tmp_path / "1.log").read_text().startswith("ready 127.0.0.1:1\nstarting\n")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux signals the death of a parent")
def test_nodes_die_when_their_parent_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PARENT, str(tmp_path / "log"), sys.executable, str(FAKE)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_running(pid)
        parent.kill()
        wait_until(lambda: not is_running(pid))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux signals the death of a parent")
def test_a_node_whose_parent_is_gone_does_not_start(tmp_path: Path) -> None:
    wrapper = [sys.executable, "-m", "ottla.cli.die_with_parent", str(os.getpid() + 1)]
    done = subprocess.run([*wrapper, "touch", str(tmp_path / "x")], timeout=TIMEOUT_S, check=False)
    assert done.returncode == 1
    assert not (tmp_path / "x").exists()


def test_a_log_that_is_removed_is_read_as_empty(tmp_path: Path) -> None:
    node = Node(NodeSpec(1, [sys.executable, str(FAKE), ""], tmp_path / "node.log", False))
    try:
        (tmp_path / "node.log").unlink()
        assert node.read_log() == []
    finally:
        node.process.kill()
        node.process.wait()


def restart_one(clusters: Clusters, cluster: LocalCluster, node_id: int, grace_s: float) -> Node:
    """Returns the new process, once it is ready."""
    cluster.restart(node_id, grace_s)
    restarted: list[Node] = []

    def on_turn() -> None:
        if restarted and restarted[0].address is not None:
            clusters.stop.set()

    cluster.watch(lambda node: pytest.fail(f"{node} {node.ending()}"), restarted.append, on_turn)
    return restarted[0]


def test_a_restarted_node_stops_cleanly_and_is_started_again(clusters: Clusters) -> None:
    cluster = clusters.build("", "")
    cluster.wait_until_ready(TIMEOUT_S)
    other, before = cluster.nodes
    new = restart_one(clusters, cluster, 2, GRACE_S)
    assert (before.exit_code, new.exit_code, new.pid != before.pid) == (0, None, True)
    assert cluster.nodes == [other, new]
    assert clusters.reports == []


def test_a_node_that_does_not_stop_for_its_restart_is_killed(clusters: Clusters) -> None:
    cluster = clusters.build("stubborn")
    cluster.wait_until_ready(TIMEOUT_S)
    (before,) = cluster.nodes
    new = restart_one(clusters, cluster, 1, 0.2)
    assert (before.exit_code, new.exit_code) == (-signal.SIGKILL, None)
    assert any(f"{before} did not stop in time and is killed" in report for report in clusters.reports)


def test_a_node_that_has_died_is_started_again(clusters: Clusters) -> None:
    cluster = clusters.build("", "")
    cluster.wait_until_ready(TIMEOUT_S)
    cluster.nodes[1].process.kill()
    cluster.watch(lambda node: clusters.stop.set())
    clusters.stop = SignalFlag()
    cluster._stop_requested = clusters.stop
    assert restart_one(clusters, cluster, 2, GRACE_S).exit_code is None
