"""`ottla format`: its output, its files and its refusals."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from ottla.cli.main import main
from ottla.model.ids import uuid_from_string

CLUSTER = "4L6g3nShT-eMCtK--X86sw"


class Done(NamedTuple):
    code: object
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def ottla(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs `ottla format` in this process."""

    def run(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["ottla", "format", *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        return Done(left.value.code, *capfd.readouterr())

    return run


def test_a_random_cluster_id_is_printed_each_time_another(ottla: Run) -> None:
    first, second = (ottla("--random-cluster-id").out.strip() for _ in range(2))
    assert first != second
    assert uuid_from_string(first).version == 4
    assert len(json.loads(ottla("--random-cluster-id", "--json").out)["cluster_id"]) == 22


def test_the_directories_of_a_file_are_formatted_for_its_node(ottla: Run, tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text(
        f"process.roles=broker,controller\nnode.id=2\nlog.dirs={tmp_path}/a,{tmp_path}/b\n"
        "controller.quorum.voters=1@h1:9093,2@h2:9093,3@h3:9093\n"
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\ncontroller.listener.names=CONTROLLER\n"
    )
    done = ottla("--config", str(config), "--cluster-id", CLUSTER, "--feature", "transaction.version=1")
    assert done.code == 0, done.err
    first, second, features = done.out.splitlines()
    assert first == f"Formatted metadata directory {tmp_path}/a for node 2 of cluster {CLUSTER}"
    assert second == f"Formatted data directory {tmp_path}/b for node 2 of cluster {CLUSTER}"
    assert "transaction.version=1" in features
    lines = (tmp_path / "a" / "meta.properties").read_text().splitlines()
    assert {f"cluster.id={CLUSTER}", "node.id=2", "version=1"} <= set(lines)
    again = ottla("--config", str(config), "--cluster-id", CLUSTER)
    assert (again.code, again.out) == (1, "")
    assert f"nothing was formatted: the directory {tmp_path}/a is formatted already" in again.err
    shutil.rmtree(tmp_path / "b")
    skipped = ottla("--config", str(config), "--ignore-formatted")
    assert f"Formatted data directory {tmp_path}/b for node 2 of cluster {CLUSTER}" in skipped.out
    assert skipped.out.splitlines()[0].startswith(f"Already formatted: metadata directory {tmp_path}/a")


def test_json_has_a_line_for_each_directory(ottla: Run, tmp_path: Path) -> None:
    (line,) = ottla("--data", f"{tmp_path}/data", "--node-id", "7", "--json").out.splitlines()
    shown = json.loads(line)
    assert (shown["directory"], shown["node_id"], shown["formatted"]) == (f"{tmp_path}/data", 7, True)
    assert f"directory.id={shown['directory_id']}\n" in (tmp_path / "data" / "meta.properties").read_text()
    assert shown["features"]["group.version"] == 1


def test_a_node_of_several_needs_the_cluster_id_of_the_others(ottla: Run, tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text(
        f"node.id=1\nlog.dirs={tmp_path}/a\ncontroller.quorum.voters=1@h1:9093,2@h2:9093\n"
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\n"
    )
    done = ottla("--config", str(config))
    assert done.code == 1
    assert "ottla format --random-cluster-id" in done.err
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("flags", "servers", "error"),
    [
        ([], "h1:9093", "--standalone"),
        (["--standalone", "--no-initial-controllers"], "h1:9093", "only one of"),
        (["--no-initial-controllers"], "", "controller.quorum.bootstrap.servers"),
        (["--initial-controllers", "1@h1"], "h1:9093", "is not a controller"),
        (["--initial-controllers", f"1@h1:9093:{CLUSTER}"], "h1:9093", "does not have this node (2)"),
    ],
)
def test_a_controller_without_a_list_of_voters_is_told_who_votes_first(
    ottla: Run, tmp_path: Path, flags: list[str], servers: str, error: str
) -> None:
    """KIP-853, as kafka-storage: a replaced disk must not become the only voter of an empty cluster by accident."""
    config = tmp_path / "server.properties"
    config.write_text(
        f"process.roles=controller\nnode.id=2\nlog.dirs={tmp_path}/a\nlisteners=CONTROLLER://h1:9093\n"
        f"controller.listener.names=CONTROLLER\ncontroller.quorum.bootstrap.servers={servers}\n"
    )
    done = ottla("--config", str(config), "--cluster-id", CLUSTER, *flags)
    assert done.code == 2
    assert error in " ".join(done.err.replace("│", " ").split())
    assert not (tmp_path / "a").exists()


def test_a_directory_that_cannot_be_written_is_named(ottla: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = ottla("--data", f"{tmp_path}/file")
    assert done.code == 1
    assert f"{tmp_path}/file" in done.err
    assert "cannot be formatted" in done.err


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([], "set --data DIR or --config FILE"),
        (["--data", "d", "--cluster-id", "a b"], "is not a cluster id"),
        (["--data", "d", "--cluster-id", "-x"], "is not a cluster id"),
        (["--data", "d", "--feature", "group.version"], "expected NAME=VALUE"),
        (["--data", "d", "--feature", "group.version=new"], "a level is a number"),
        (["--data", "d", "--feature", "nonsense=1"], "not a feature that this release supports"),
        (["--data", "d", "--node-id", "-1"], "--node-id"),
        (["--config", "no-such-file"], "--config no-such-file cannot be read"),
    ],
)
def test_wrong_usage_ends_with_code_2(ottla: Run, arguments: list[str], error: str) -> None:
    done = ottla(*arguments)
    assert done.code == 2
    assert error in " ".join(done.err.replace("│", " ").split())
