"""`ottla reassign`: its output and exit codes, with a fake cluster."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from ottla.admin import cluster, reassignment_runs
from ottla.admin.cluster import ClusterError
from ottla.admin.nodes import Node
from ottla.admin.reassignment_plan import ClusterState, OngoingMove, PartitionState
from ottla.admin.reassignments import Progress
from ottla.cli import reassign_progress
from ottla.cli.main import main
from ottla.model.ids import TopicPartition

FIRST = TopicPartition("journal", 0)
MOVE = OngoingMove((2, 1), (2,), (1,))
PLAN = '{"version": 1, "partitions": [{"topic": "journal", "partition": 0, "replicas": [2]}]}'


class Done(NamedTuple):
    code: object
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


class FakeCluster:
    """One partition on broker 1. `moves` are the ongoing moves at each poll; `after` are the replicas at the end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.said: list[str] = []
        self.refuses = False
        self.failures = 0  # of the next polls
        self.replicas, self.after = (1,), (2,)
        self.moves: list[Any] = [{FIRST: MOVE}, {}]
        monkeypatch.setattr(cluster, "Cluster", lambda bootstrap: self)
        for name in ("read_state", "list_ongoing", "read_progress", "reassign", "end_throttles"):
            monkeypatch.setattr(reassignment_runs, name, getattr(self, name))
        monkeypatch.setattr(reassignment_runs, "active_nodes", lambda cluster: [Node(1, "h", 1)])
        monkeypatch.setattr(reassignment_runs, "min_insync_replicas", lambda cluster, topics: {})
        monkeypatch.setattr(reassignment_runs, "set_throttles", lambda *args: self.said.append("throttle"))
        monkeypatch.setattr(reassign_progress, "_POLL_S", 0.01)
        monkeypatch.setattr(reassign_progress, "_SETTLE_S", 0.05)
        monkeypatch.setattr(reassign_progress, "_RETRY_S", 0.2)

    def metadata(self) -> Any:
        partition = SimpleNamespace(replicas=list(self.replicas))
        return SimpleNamespace(topics={"journal": SimpleNamespace(partitions={0: partition})})

    def read_state(self, cluster: Any) -> ClusterState:
        found = {FIRST: PartitionState(self.replicas, self.replicas, 1, 1000)}
        return ClusterState({1: None, 2: None}, frozenset(), found, {})

    def list_ongoing(self, cluster: Any) -> dict[TopicPartition, OngoingMove]:
        return self.moves[0]

    def read_progress(self, *args: Any) -> Progress:
        if self.failures:
            self.failures -= 1
            raise ClusterError("node 1 does not respond")
        found = self.moves[0] if len(self.moves) == 1 else self.moves.pop(0)
        if not found:
            self.replicas = self.after
        return Progress(len(found), 0, 1000)

    def reassign(self, cluster: Any, changes: Any) -> None:
        self.said.append("reassign")
        if self.refuses:
            raise ClusterError("refused")

    def end_throttles(self, cluster: Any, plan: Any) -> bool:
        self.said.append("end throttles")
        return True


Run = Callable[..., Done]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    return FakeCluster(monkeypatch)


@pytest.fixture
def execute(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], fake: FakeCluster, tmp_path: Path
) -> Run:
    path = tmp_path / "plan.json"
    path.write_text(PLAN)

    def run(*options: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["ottla", "reassign", "execute", str(path), *options])
        with pytest.raises(SystemExit) as left:
            main()
        return Done(left.value.code, *capfd.readouterr())

    return run


def test_a_plan_is_complete_when_the_replicas_are_those_of_the_plan(fake: FakeCluster, execute: Run) -> None:
    done = execute()
    assert done.code == 0, done.err
    assert done.out.endswith("Complete.\n")


def test_a_move_that_somebody_cancels_is_not_complete(fake: FakeCluster, execute: Run) -> None:
    fake.after = (1,)
    done = execute()
    assert done.code == 1
    assert "Complete." not in done.out
    assert "journal-0 (different)" in done.err


def test_programs_learn_which_partitions_are_not_complete(fake: FakeCluster, execute: Run) -> None:
    fake.after = (1,)
    done = execute("--json")
    assert done.code == 1
    assert done.lines[-1] == {
        "partitions": 1,
        "is_complete": False,
        "not_complete": {"journal-0": "different"},
    }


def test_throttles_end_also_if_the_move_has_ended_before(fake: FakeCluster, execute: Run) -> None:
    fake.replicas = (2,)
    done = execute("--throttle", "500")
    assert done.code == 0
    assert "nothing to do" in done.out
    assert fake.said == ["end throttles"]
    execute("--throttle", "500", "--no-wait")
    assert fake.said == ["end throttles"]


def test_an_error_during_the_wait_is_retried(fake: FakeCluster, execute: Run) -> None:
    fake.failures = 3
    done = execute("--throttle", "500")
    assert done.code == 0, done.err
    assert fake.said == ["throttle", "reassign", "end throttles"]


def test_a_wait_that_fails_says_that_the_move_goes_on(fake: FakeCluster, execute: Run) -> None:
    fake.failures = 1_000_000
    done = execute()
    assert done.code == 1
    assert "node 1 does not respond" in done.err
    assert "The partitions move on. Run: ottla reassign verify PLAN" in done.err


class FlushedOutput(io.StringIO):
    """Keeps what a pipe's reader has seen when the process is killed."""

    flushed = ""

    def flush(self) -> None:
        self.flushed = self.getvalue()


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_the_plan_to_go_back_is_seen_before_the_start(
    monkeypatch: pytest.MonkeyPatch, fake: FakeCluster, execute: Run, options: tuple[str, ...]
) -> None:
    output, seen = FlushedOutput(), []
    monkeypatch.setattr(sys, "stdout", output)
    monkeypatch.setattr(reassignment_runs, "reassign", lambda *args: seen.append(output.flushed))
    execute(*options)
    assert '"replicas": [1]' in seen[0]


def test_the_plan_to_go_back_is_the_first_object(fake: FakeCluster, execute: Run) -> None:
    fake.refuses = True
    done = execute("--json")
    assert done.code == 1
    partition = {"topic": "journal", "partition": 0, "replicas": [1], "log_dirs": ["any"]}
    assert done.lines == [{"previous": {"version": 1, "partitions": [partition]}}]
