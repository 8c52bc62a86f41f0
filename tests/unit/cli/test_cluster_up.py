"""`ottla cluster up`: its options, what it prepares, and its messages when nodes fail or are not there."""

import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ottla.cli import cluster
from ottla.cli.main import main
from ottla.env.real import real_env

FAKE = Path(__file__).with_name("fake_broker.py")
ANY_PORT = ("--listen", "127.0.0.1:0")


class Done(NamedTuple):
    code: object
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def ottla(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Runs `ottla cluster up` in this process, with fake nodes. `manner` is that of the fake nodes."""

    def run(*arguments: str, manner: str = "") -> Done:
        monkeypatch.setattr(cluster, "node_command", lambda path: [sys.executable, str(FAKE), manner])
        monkeypatch.setattr(sys, "argv", ["ottla", "cluster", "up", "--data", f"{tmp_path}/c", *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        return Done(left.value.code, *capfd.readouterr())

    return run


@pytest.fixture
def serving(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster serves as soon as its nodes are ready, and is stopped by a signal at once."""

    def wait(local: Any, layout: Any, stop: Any) -> int:
        return 2

    def print_and_stop(*arguments: Any) -> None:
        print_ready(*arguments)
        signal.raise_signal(signal.SIGTERM)

    print_ready = cluster._print_ready
    monkeypatch.setattr(cluster, "_wait_until_it_serves", wait)
    monkeypatch.setattr(cluster, "_print_ready", print_and_stop)


@pytest.mark.slow
@pytest.mark.usefixtures("serving")
def test_a_cluster_starts_says_so_and_stops_on_a_signal(ottla: Run, tmp_path: Path) -> None:
    done = ottla("--nodes", "3", *ANY_PORT, "--verbose")
    assert done.code == 0, done.err
    ready, columns, *lines = done.out.splitlines()
    addresses = [line.split()[3] for line in lines]
    assert ready == f"ready {','.join(addresses)}"
    assert columns.split()[:3] == ["NODE", "PID", "ROLES"]
    assert [line.split()[5] for line in lines] == ["voter", "leader", "voter"]
    assert "node 2 | ready 127.0.0.1:9092" in done.err
    assert "node 3 | stopped" in done.err
    assert "stopped\n" in (tmp_path / "c" / "node-1" / "node.log").read_text()


@pytest.mark.slow
@pytest.mark.usefixtures("serving")
def test_the_folder_of_a_running_cluster_is_left_alone(ottla: Run, tmp_path: Path) -> None:
    assert ottla("--nodes", "2", *ANY_PORT).code == 0
    files = sorted((tmp_path / "c").glob("node-*/server.properties"))
    before = [path.read_text() for path in files]
    lock = real_env().disk.lock(str(tmp_path / "c" / "node-2" / ".lock"))
    try:
        done = ottla("--nodes", "2", *ANY_PORT)
    finally:
        lock.release()
    assert done.code == 1
    assert f"the cluster in {tmp_path}/c is running: stop it, or choose another --data" in done.err
    assert [path.read_text() for path in files] == before
    assert ottla("--nodes", "2", *ANY_PORT).code == 0


def test_files_that_cannot_be_read_are_no_traceback(ottla: Run, tmp_path: Path) -> None:
    (tmp_path / "c" / "node-1" / "server.properties").mkdir(parents=True)
    done = ottla(*ANY_PORT)
    assert done.code == 1
    assert "the cluster is not started: " in done.err
    assert "Check the folder of --data" in done.err


@pytest.mark.slow
@pytest.mark.usefixtures("serving")
def test_the_second_start_uses_the_same_directories(ottla: Run, tmp_path: Path) -> None:
    first = json.loads(ottla("--nodes", "2", "--controllers", "1", *ANY_PORT, "--json").out)
    assert [(node["id"], node["roles"]) for node in first["nodes"]] == [
        (1, "broker"),
        (2, "broker"),
        (101, "controller"),
    ]
    files = [tmp_path / "c" / f"node-{node}" / "meta.properties" for node in (1, 2, 101)]
    before = [path.read_text() for path in files]
    assert all(f"cluster.id={first['cluster_id']}\n" in text for text in before)
    # A broker may be added: it does not vote.
    second = json.loads(ottla("--nodes", "3", "--controllers", "1", *ANY_PORT, "--json").out)
    assert second["cluster_id"] == first["cluster_id"]
    assert [path.read_text() for path in files] == before
    refused = ottla("--nodes", "3", *ANY_PORT)
    assert refused.code == 1
    assert "has the voters 101, and these options ask for 1, 2, 3" in refused.err


@pytest.mark.slow
def test_a_node_that_fails_ends_all_with_its_last_lines(ottla: Run) -> None:
    done = ottla("--nodes", "2", *ANY_PORT, manner="fail")
    assert (done.code, done.out) == (1, "")
    assert "ended with exit code 3 before the cluster was ready" in done.err
    assert "  the disk is on fire" in done.err


@pytest.mark.slow
def test_the_death_of_a_node_is_reported_and_that_of_the_last_ends_the_command(
    ottla: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def kill_all(local: Any, *_: Any) -> None:
        for node in local.nodes:
            node.process.kill()

    monkeypatch.setattr(cluster, "_wait_until_it_serves", lambda *_: 1)
    monkeypatch.setattr(cluster, "_print_ready", kill_all)
    done = ottla("--nodes", "2", *ANY_PORT, "--json")
    assert done.code == 1
    assert {(line["node"], line["exit_code"]) for line in map(json.loads, done.out.splitlines())} == {
        (1, -9),
        (2, -9),
    }
    assert "was killed by SIGKILL" in done.err
    assert f"Start it again with: ottla serve --config {tmp_path}/c/node-1/server.properties" in done.err
    assert "no node is left" in done.err


@pytest.mark.slow
def test_the_reason_is_shown_if_the_cluster_does_not_serve(
    ottla: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_SERVE_S", 0.0)
    monkeypatch.setattr(cluster, "_view_of_all", lambda _: (None, "broker 2 is not active"))
    done = ottla("--nodes", "2", *ANY_PORT)
    assert (done.code, done.out) == (1, "")
    assert "the cluster does not serve within 0 s: broker 2 is not active" in done.err


def test_directories_of_different_clusters_are_refused(ottla: Run, tmp_path: Path) -> None:
    for node, cluster_id in ((1, "a"), (2, "b")):
        folder = tmp_path / "c" / f"node-{node}"
        folder.mkdir(parents=True)
        (folder / "meta.properties").write_text(
            f"version=1\ncluster.id={cluster_id}\nnode.id={node}\ndirectory.id=8OHSw7SlRoeXiHlqW0w9Lg\n"
        )
    done = ottla("--nodes", "2", *ANY_PORT)
    assert done.code == 1
    assert "belong to different clusters: a, b" in done.err


def test_a_directory_of_another_node_is_refused(ottla: Run, tmp_path: Path) -> None:
    folder = tmp_path / "c" / "node-1"
    folder.mkdir(parents=True)
    (folder / "meta.properties").write_text(
        "version=1\ncluster.id=a\nnode.id=7\ndirectory.id=8OHSw7SlRoeXiHlqW0w9Lg\n"
    )
    done = ottla("--nodes", "1", *ANY_PORT)
    assert done.code == 1
    assert "belongs to node 7, and this is node 1" in done.err


def test_a_folder_that_cannot_be_written_is_refused(ottla: Run, tmp_path: Path) -> None:
    (tmp_path / "c").write_text("")
    done = ottla("--nodes", "1", *ANY_PORT)
    assert done.code == 1
    assert "Check the folder of --data" in done.err


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (["--listen", "nonsense"], 2, "expected HOST:PORT"),
        (["--listen", "127.0.0.1:70000"], 2, "expected HOST:PORT"),
        (["--listen", "0.0.0.0:9092"], 2, "needs a host"),
        (["--listen", ":9092"], 2, "needs a host"),
        (["--nodes", "0"], 2, "--nodes"),
        (["--set", "novalue"], 2, "expected NAME=VALUE"),
        ([*ANY_PORT, "--set", "num.partitionz=1"], 2, "did you mean num.partitions?"),
        ([*ANY_PORT, "--set", "node.id=4"], 1, "--set node.id: `ottla cluster up` sets it itself"),
    ],
)
def test_wrong_usage_starts_nothing(
    ottla: Run, tmp_path: Path, arguments: list[str], code: int, error: str
) -> None:
    done = ottla(*arguments)
    assert done.code == code
    assert error in " ".join(done.err.replace("│", " ").split())
    assert not (tmp_path / "c").exists()


def test_a_comma_in_the_folder_is_refused(ottla: Run, tmp_path: Path) -> None:
    done = ottla("--data", "a,b", *ANY_PORT)
    assert done.code == 2
    assert "a comma separates folders" in " ".join(done.err.replace("│", " ").split())
