"""`ottla quorum` and `ottla brokers`: their output and exit codes, with a fake cluster."""

import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from ottla.admin import brokers, cluster, quorum
from ottla.admin.brokers import BrokerDetails, BrokerListing, LogDirectory, PartitionCounts
from ottla.admin.cluster import ClusterError, UnreachableError
from ottla.admin.quorum import QuorumDescription, QuorumReplica
from ottla.cli.main import main

LEADER = QuorumReplica(1, "leader", "8OHSw7SlRoeXiHlqW0w9Lg", ["CONTROLLER://h1:9093"], 100, 0, 0, 0)
FOLLOWER = QuorumReplica(2, "follower", None, ["CONTROLLER://h2:9093"], 90, 10, 250, 400)
OBSERVER = QuorumReplica(3, "observer", None, [], None, None, None, None)
QUORUM = QuorumDescription(1, 7, 95, [LEADER, FOLLOWER], [OBSERVER])
BROKERS = [
    BrokerListing(1, "h1", 9092, "r1", "active", "leader"),
    BrokerListing(2, "h2", 9092, None, "active", "voter"),
    BrokerListing(3, "h3", 9092, None, "fenced", None),
]
DETAILS = BrokerDetails(
    ["PLAINTEXT://h1:9092"],
    [
        LogDirectory("/a", None, 3, 300, 5000, 4000),
        LogDirectory("/b", "KAFKA_STORAGE_ERROR", 0, 0, None, None),
    ],
)


class Done(NamedTuple):
    code: object
    out: str
    err: str


Run = Callable[..., Done]


class NoCluster:
    def __init__(self, bootstrap: str) -> None:
        pass


def reject(error: ClusterError) -> Callable[..., Any]:
    def rejected(*_: Any) -> None:
        raise error

    return rejected


@pytest.fixture
def unregistered() -> list[int]:
    """The ids of the brokers that were unregistered."""
    return []


@pytest.fixture
def ottla(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], unregistered: list[int]) -> Run:
    """Runs a command line in this process, on the fake cluster above."""
    monkeypatch.setattr(cluster, "Cluster", NoCluster)
    monkeypatch.setattr(quorum, "describe_quorum", lambda _: QUORUM)
    monkeypatch.setattr(brokers, "cluster_id", lambda _: "4L6g3nShT-eMCtK--X86sw")
    monkeypatch.setattr(brokers, "list_brokers", lambda *_: BROKERS)
    monkeypatch.setattr(brokers, "count_partitions", lambda *_: PartitionCounts(2, 3, 1))
    monkeypatch.setattr(brokers, "describe_broker", lambda *_: DETAILS)
    monkeypatch.setattr(brokers, "unregister_broker", lambda _, broker_id: unregistered.append(broker_id))

    def run(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["ottla", *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        return Done(left.value.code, *capfd.readouterr())

    return run


def test_quorum_describe_shows_leader_voters_and_observers(ottla: Run) -> None:
    assert ottla("quorum", "describe").out.splitlines() == [
        "cluster 4L6g3nShT-eMCtK--X86sw",
        "leader 1, epoch 7, high watermark 95",
        "largest lag of a voter: 10 records, 400 ms",
        "",
        "NODE  ROLE      DIRECTORY ID            END POINTS",
        "   1  leader    8OHSw7SlRoeXiHlqW0w9Lg  CONTROLLER://h1:9093",
        "   2  follower  -                       CONTROLLER://h2:9093",
        "   3  observer  -                       -",
    ]
    shown = json.loads(ottla("quorum", "describe", "--json").out)
    assert (shown["cluster_id"], shown["leader_id"]) == ("4L6g3nShT-eMCtK--X86sw", 1)
    assert (shown["max_follower_lag"], shown["max_follower_lag_ms"]) == (10, 400)
    assert shown["voters"] == [LEADER._asdict(), FOLLOWER._asdict()]
    assert shown["observers"] == [OBSERVER._asdict()]


def test_quorum_describe_shows_the_replication(ottla: Run) -> None:
    assert ottla("quorum", "describe", "--replication").out.splitlines() == [
        "NODE  ROLE      DIRECTORY ID            LOG END  LAG  LAST FETCH  LAST CAUGHT UP",
        "   1  leader    8OHSw7SlRoeXiHlqW0w9Lg      100    0    0 ms ago        0 ms ago",
        "   2  follower  -                            90   10  250 ms ago      400 ms ago",
        "   3  observer  -                             -    -           -               -",
    ]
    lines = ottla("quorum", "describe", "--replication", "--json").out.splitlines()
    assert json.loads(lines[1]) == FOLLOWER._asdict()


def test_a_quorum_without_a_leader_is_shown(ottla: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        quorum, "describe_quorum", lambda _: QUORUM._replace(leader_id=None, voters=[OBSERVER])
    )
    lines = ottla("quorum", "describe").out.splitlines()
    assert lines[1:3] == ["no leader, epoch 7, high watermark 95", "follower lag unknown"]


def test_brokers_are_listed(ottla: Run) -> None:
    assert ottla("brokers", "list").out.splitlines() == [
        "ID  ADDRESS  RACK  STATE   CONTROLLER",
        " 1  h1:9092  r1    active  leader",
        " 2  h2:9092  -     active  voter",
        " 3  h3:9092  -     fenced  -",
    ]
    lines = [json.loads(line) for line in ottla("brokers", "list", "--json").out.splitlines()]
    assert lines == [broker._asdict() for broker in BROKERS]


def test_brokers_are_listed_while_the_quorum_has_no_leader(
    ottla: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quorum, "describe_quorum", reject(ClusterError("The quorum cannot be described")))
    done = ottla("brokers", "list")
    assert done.code == 0
    assert len(done.out.splitlines()) == 4
    assert "The controllers are unknown. The quorum cannot be described" in done.err


def test_an_empty_list_is_reported_on_stderr(ottla: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokers, "list_brokers", lambda *_: [])
    assert ottla("brokers", "list")[1:] == ("", "No broker is registered.\n")


def test_a_broker_is_described(ottla: Run) -> None:
    assert ottla("brokers", "describe", "1").out.splitlines() == [
        "broker 1 (h1:9092)  (active, leads the quorum)",
        "rack r1",
        "leads 2 of its 3 replicas, 1 are not in sync",
        "end points PLAINTEXT://h1:9092",
        "",
        "LOG DIRECTORY  STATE                PARTITIONS  BYTES  USABLE BYTES  VOLUME BYTES",
        "/a             online                        3    300          4000          5000",
        "/b             KAFKA_STORAGE_ERROR           0      0             -             -",
    ]
    shown = json.loads(ottla("brokers", "describe", "1", "--json").out)
    assert (shown["id"], shown["leaders"], shown["end_points"]) == (1, 2, ["PLAINTEXT://h1:9092"])
    assert shown["directories"][1]["error"] == "KAFKA_STORAGE_ERROR"


def test_a_broker_that_is_away_is_described_by_the_others(
    ottla: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    fenced = ottla("brokers", "describe", "3")
    assert fenced.out.splitlines()[0] == "broker 3 (h3:9092)  (fenced)"
    assert fenced.out.splitlines()[-1].endswith("the broker does not respond")
    monkeypatch.setattr(brokers, "describe_broker", reject(UnreachableError("broker 2 is gone")))
    away = ottla("brokers", "describe", "2", "--json")
    assert json.loads(away.out)["directories"] is None
    assert "broker 2 is gone" in away.err


def test_unregister_removes_a_fenced_broker(ottla: Run, unregistered: list[int]) -> None:
    done = ottla("brokers", "unregister", "3", "--yes")
    assert (done.code, done.out, done.err) == (0, "Unregistered broker 3 (h3:9092)\n", "")
    assert unregistered == [3]


def test_unregister_of_an_active_broker_says_what_it_means(ottla: Run, unregistered: list[int]) -> None:
    done = ottla("brokers", "unregister", "2", "--yes", "--json")
    assert json.loads(done.out) == {"broker": 2, "unregistered": True, "was_active": True}
    assert "broker 2 was active" in done.err
    assert "restarted" in done.err
    assert unregistered == [2]


def test_unregister_asks_at_a_terminal(
    ottla: Run, unregistered: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", lambda question, abort: asked.append(question))
    ottla("brokers", "unregister", "3")
    ottla("brokers", "unregister", "1")
    assert asked[0] == "Unregister broker 3 (h3:9092)?"
    assert asked[1].startswith("The broker is active: its partitions lose this replica")


@pytest.mark.parametrize("command", ["describe", "unregister"])
def test_an_unknown_broker_is_an_error(ottla: Run, unregistered: list[int], command: str) -> None:
    done = ottla("brokers", command, "9")
    assert (done.code, done.out) == (1, "")
    assert "Broker 9 is not registered. Registered brokers: 1, 2, 3" in done.err
    assert unregistered == []
