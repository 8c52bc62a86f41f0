"""`ottla transactions` against a running broker, Ottla or Apache Kafka, and Kafka's tool beside it."""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.interop.brokers import RunningBroker
from tests.interop.kio_client import KioClient
from tests.interop.librdkafka import create_topic, produce_values
from tests.interop.transaction_clients import (
    TRANSACTION_BROKER,
    Transactional,
    committed_values,
    last_stable_offset,
)
from tests.interop.transaction_wire import BEFORE_890, Stage, produce

pytestmark = pytest.mark.contract

COMMAND = (sys.executable, "-m", "ottla.cli.main", "transactions")
TIMEOUT_S = 120
HOUR_MS = 3_600_000
Cli = Callable[..., str]


def cli_of(broker: RunningBroker) -> Cli:
    """Runs `ottla transactions ...` and returns its output; `fails_with` is the expected exit code."""

    def run(*arguments: str, fails_with: int = 0) -> str:
        done = subprocess.run(
            [*COMMAND, *arguments, "--bootstrap", broker.bootstrap],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == fails_with, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr if fails_with else done.stdout

    return run


@pytest.fixture
def transactions(transaction_broker: RunningBroker) -> Cli:
    return cli_of(transaction_broker)


def json_lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_transaction_is_listed_and_described_while_it_is_open_and_when_it_is_complete(
    transaction_broker: RunningBroker, transactions: Cli, topic_name: str, transactional_id: str
) -> None:
    create_topic(transaction_broker.bootstrap, topic_name, partitions=2)
    producer = Transactional(transaction_broker.bootstrap, transactional_id, transaction_timeout_ms=50_000)

    def listed(*options: str) -> list[Any]:
        lines = json_lines(transactions("list", "--json", *options))
        return [line for line in lines if line["transactional_id"] == transactional_id]

    (empty,) = json_lines(transactions("describe", transactional_id, "--json"))
    assert (empty["state"], empty["start_ms"], empty["partitions"]) == ("Empty", None, [])
    assert listed("--longer-than", "PT0S") == []

    producer.begin()
    producer.send(topic_name, ["open"], 0)
    producer.send(topic_name, ["open"], 1)
    (line,) = listed()
    assert (line["state"], line["coordinator"]) == ("Ongoing", 1)
    for options in (
        ["--state", "ongoing"],
        ["--longer-than", "PT0S"],
        ["--pattern", f"{transactional_id[:-1]}.", "--state", "Ongoing"],
    ):
        assert listed(*options) == [line]
    for options in (["--state", "Empty"], ["--longer-than", "PT1H"], ["--pattern", "nobody"]):
        assert listed(*options) == []
    (described,) = json_lines(transactions("describe", transactional_id, "--json"))
    assert abs(described["start_ms"] - time.time() * 1000) < TIMEOUT_S * 1000
    assert (described["producer_id"], described["timeout_ms"]) == (line["producer_id"], 50_000)
    assert described["coordinator"]["port"] == transaction_broker.port
    assert described["partitions"] == [{"topic": topic_name, "partition": p} for p in (0, 1)]
    shown = transactions("describe", transactional_id)
    assert shown.startswith(f"{transactional_id}  (Ongoing)\ncoordinator 1 (127.0.0.1:")

    producer.commit()
    (described,) = json_lines(transactions("describe", transactional_id, "--json"))
    assert (described["state"], described["partitions"]) == ("CompleteCommit", [])
    assert transactional_id in transactions("list")


def test_unknown_ids_and_invalid_filters_are_errors(transactions: Cli, transactional_id: str) -> None:
    missing = transactions("describe", transactional_id, fails_with=1)
    assert f"Transactional id {transactional_id}: its coordinator does not know it" in missing
    assert "is not a regular expression" in transactions("list", "--pattern", "(a", fails_with=1)
    assert "is not one of Empty, Ongoing" in transactions("list", "--state", "asleep", fails_with=2)
    assert "is not a duration" in transactions("list", "--longer-than", "soon", fails_with=2)
    assert "no such topic" in transactions("hanging", "--topic", "never-made", fails_with=1)


def test_a_transaction_that_its_coordinator_knows_is_neither_hanging_nor_aborted(
    transaction_broker: RunningBroker, transactions: Cli, topic_name: str, transactional_id: str
) -> None:
    create_topic(transaction_broker.bootstrap, topic_name)
    producer = Transactional(transaction_broker.bootstrap, transactional_id)
    producer.begin()
    producer.send(topic_name, ["kept"])
    assert transactions("hanging", "--topic", topic_name, "--longer-than", "PT0S", "--json") == ""
    where = ("abort", "--topic", topic_name, "--partition", "0", "--start-offset")
    refused = transactions(*where, "0", fails_with=1)
    assert f"is not hanging: it is Ongoing for the transactional id {transactional_id}" in refused
    nothing = transactions(*where, "7", fails_with=1)
    assert f"{topic_name}-0 has no open transaction that begins at offset 7" in nothing
    producer.commit()
    assert committed_values(transaction_broker.bootstrap, topic_name) == ["kept"]


@pytest.fixture
def hung(own_broker: Callable[..., RunningBroker], topic_name: str) -> Iterator[tuple[RunningBroker, Stage]]:
    """Writes a record, two hours old, of a transaction that no coordinator knows. KIP-890 prevents this, unless
    verification is disabled."""
    broker = own_broker(set=TRANSACTION_BROKER | {"transaction.partition.verification.enable": "false"})
    create_topic(broker.bootstrap, topic_name, partitions=2)
    produce_values(broker.bootstrap, topic_name, [b"before"])
    with contextlib.closing(KioClient(broker.bootstrap)) as client:
        stage = Stage(client, topic_name, BEFORE_890)
        stage.producer[stage.ongoing] = (987_654, 3)
        long_ago = int(time.time() * 1000) - 2 * HOUR_MS
        stage.accept_in_time(produce(stage, value=b"hanging", timestamp_ms=long_ago))
        produce_values(broker.bootstrap, topic_name, [b"after"])
        yield broker, stage


def test_a_hanging_transaction_is_found_and_aborted(
    hung: tuple[RunningBroker, Stage], topic_name: str
) -> None:
    broker, _ = hung
    transactions = cli_of(broker)
    assert last_stable_offset(broker.bootstrap, topic_name) == 1
    (found,) = json_lines(transactions("hanging", "--json"))
    assert {name: found[name] for name in ("topic", "partition", "start_offset", "producer_id")} == {
        "topic": topic_name,
        "partition": 0,
        "start_offset": 1,
        "producer_id": 987_654,
    }
    assert (found["producer_epoch"], found["coordinator_epoch"]) == (3, -1)
    assert topic_name in transactions("hanging", "--topic", f"{topic_name}:0", "--longer-than", "PT1H")
    assert transactions("hanging", "--longer-than", "PT3H", "--json") == ""
    assert transactions("hanging", "--topic", f"{topic_name}:1", "--json") == ""
    done = transactions("abort", "--topic", topic_name, "--partition", "0", "--start-offset", "1")
    assert done == f"Aborted the transaction of producer 987654 at offset 1 of {topic_name}-0\n"
    assert last_stable_offset(broker.bootstrap, topic_name) == 4
    assert committed_values(broker.bootstrap, topic_name) == ["before", "after"]
    assert transactions("hanging", "--json") == ""
