"""`ottla transactions`: its output and exit codes, with a fake cluster."""

import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from ottla.admin import cluster, hanging_transactions, transactions
from ottla.admin.cluster import ClusterError
from ottla.admin.hanging_transactions import OpenTransaction
from ottla.admin.nodes import Node
from ottla.admin.transactions import TransactionDescription, TransactionListing
from ottla.cli.main import main
from ottla.model.ids import TopicPartition

NODE = Node(1, "10.0.0.9", 9092)
PARTITIONS = [TopicPartition("orders", 0), TopicPartition("orders", 2)]
ONGOING = TransactionDescription("billing", "Ongoing", NODE, 4000, 3, 60_000, 1_800_000_000_123, PARTITIONS)
EMPTY = TransactionDescription("idle", "Empty", NODE, 4001, 0, 60_000, None, [])
LINES = [TransactionListing("billing", "Ongoing", 4000, 1), TransactionListing("idle", "Empty", 4001, 1)]
HANGING = OpenTransaction("orders", 3, 1047, 77, 0, -1, 1_800_000_000_123)


class Done(NamedTuple):
    code: object
    out: str
    err: str


Run = Callable[..., Done]


class NoCluster:
    def __init__(self, bootstrap: str) -> None:
        pass


@pytest.fixture
def ottla(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs a command line in this process, with no cluster behind it."""
    monkeypatch.setattr(cluster, "Cluster", NoCluster)

    def run(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["ottla", "transactions", *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        return Done(left.value.code, *capfd.readouterr())

    return run


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The arguments of each call to the fake cluster, which returns the transactions above."""
    calls: list[Any] = []

    def fake(module: Any, name: str, result: Any) -> None:
        def call(_: NoCluster, *arguments: Any, **filters: Any) -> Any:
            calls.append((*arguments, filters))
            return result

        monkeypatch.setattr(module, name, call)

    fake(transactions, "list_transactions", LINES)
    fake(transactions, "describe_transactions", [ONGOING, EMPTY])
    fake(hanging_transactions, "find_hanging_transactions", [HANGING])
    fake(hanging_transactions, "max_timeout_ms", 900_000)
    fake(hanging_transactions, "abort_transaction", HANGING)
    return calls


def test_list_shows_a_table_or_json_lines(ottla: Run, calls: list[Any]) -> None:
    done = ottla("list")
    assert done.out.splitlines()[0].split() == [
        "TRANSACTIONAL",
        "ID",
        "STATE",
        "PRODUCER",
        "ID",
        "COORDINATOR",
    ]
    assert done.out.splitlines()[1].split() == ["billing", "Ongoing", "4000", "1"]
    lines = [json.loads(line) for line in ottla("list", "--json").out.splitlines()]
    assert lines == [line._asdict() for line in LINES]


def test_the_filters_of_list_reach_the_cluster(ottla: Run, calls: list[Any]) -> None:
    ottla("list", "--state", "ongoing", "--state", "EMPTY", "--longer-than", "PT1M", "--pattern", "b.*")
    assert calls == [
        ({"states": ["Ongoing", "Empty"], "longer_than_ms": 60_000, "pattern": "b.*"},),
    ]


def test_an_empty_list_is_reported_on_stderr(
    ottla: Run, calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "list_transactions", lambda *_, **__: [])
    assert ottla("list")[1:] == ("", "No transactions.\n")
    assert ottla("list", "--state", "Ongoing")[1:] == ("", "No such transactions.\n")


def test_describe_shows_the_newest_transaction_and_its_partitions(ottla: Run, calls: list[Any]) -> None:
    assert ottla("describe", "billing", "idle").out.splitlines() == [
        "billing  (Ongoing)",
        "coordinator 1 (10.0.0.9:9092), producer id 4000, epoch 3, timeout 60000 ms",
        "newest transaction began 2027-01-15T08:00:00.123Z",
        "",
        "TOPIC   PARTITION",
        "orders          0",
        "orders          2",
        "",
        "idle  (Empty)",
        "coordinator 1 (10.0.0.9:9092), producer id 4001, epoch 0, timeout 60000 ms",
    ]
    (first, _) = ottla("describe", "billing", "idle", "--json").out.splitlines()
    assert json.loads(first)["coordinator"] == {"id": 1, "host": "10.0.0.9", "port": 9092}
    assert json.loads(first)["partitions"][1] == {"topic": "orders", "partition": 2}


def test_hanging_takes_the_longest_timeout_of_the_cluster_by_default(ottla: Run, calls: list[Any]) -> None:
    done = ottla("hanging", "--topic", "orders:3")
    assert done.out.splitlines()[1].split() == [
        *("orders", "3", "1047", "77", "0", "-1", "2027-01-15T08:00:00.123Z")
    ]
    (_, (scopes, longer_than_ms, _, _)) = calls
    assert ([str(scope) for scope in scopes], longer_than_ms) == (["orders:3"], 900_000)
    calls.clear()
    assert json.loads(ottla("hanging", "--longer-than", "PT0S", "--json").out) == HANGING._asdict()
    ((scopes, longer_than_ms, _, _),) = calls
    assert (scopes, longer_than_ms) == ([], 0)


def test_abort_shows_the_transaction_or_the_error(
    ottla: Run, calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    where = ("abort", "--topic", "orders", "--partition", "3", "--start-offset", "1047")
    assert ottla(*where).out == "Aborted the transaction of producer 77 at offset 1047 of orders-3\n"
    assert calls == [(TopicPartition("orders", 3), 1047, {})]
    assert json.loads(ottla(*where, "--json").out)["producer_id"] == 77

    def reject(*_: Any) -> None:
        raise ClusterError("It is not hanging")

    monkeypatch.setattr(hanging_transactions, "abort_transaction", reject)
    done = ottla(*where)
    assert (done.code, done.out) == (1, "")
    assert "It is not hanging" in done.err


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["list", "--state", "asleep"], "is not one of Empty, Ongoing"),
        (["list", "--longer-than", "15"], "is not a duration"),
        (["hanging", "--topic", "orders:x"], "expected NAME"),
        (["abort", "--topic", "orders", "--partition", "0"], "Missing option '--start-offset'"),
        (["describe"], "Missing argument"),
    ],
)
def test_wrong_usage_ends_with_code_2(ottla: Run, arguments: list[str], error: str) -> None:
    done = ottla(*arguments)
    assert done.code == 2
    assert error in " ".join(done.err.replace("│", " ").split())
