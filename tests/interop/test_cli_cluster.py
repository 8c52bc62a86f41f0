"""`ottla quorum` and `ottla brokers` against a running broker, Ottla or Apache Kafka."""

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from tests.interop.brokers import RunningBroker

pytestmark = pytest.mark.contract

COMMAND = (sys.executable, "-m", "ottla.cli.main")
TIMEOUT_S = 60
Cli = Callable[..., str]


@pytest.fixture
def ottla(broker: RunningBroker) -> Cli:
    """Runs a command on the broker and returns its output; `fails_with` is the expected exit code."""

    def run(*arguments: str, fails_with: int = 0) -> str:
        done = subprocess.run(
            [*COMMAND, *arguments, "--bootstrap", broker.bootstrap],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == fails_with, done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr if fails_with else done.stdout

    return run


def json_line(text: str) -> Any:
    (line,) = text.splitlines()
    return json.loads(line)


def test_the_quorum_of_one_node_is_described(ottla: Cli) -> None:
    quorum = json_line(ottla("quorum", "describe", "--json"))
    assert quorum["leader_id"] == 1
    assert quorum["leader_epoch"] > 0
    assert quorum["high_watermark"] > 0
    assert len(quorum["cluster_id"]) == 22
    (voter,) = quorum["voters"]
    assert (voter["node_id"], voter["role"], voter["lag"]) == (1, "leader", 0)
    assert quorum["observers"] == []
    replication = json_line(ottla("quorum", "describe", "--replication", "--json"))
    assert replication["log_end_offset"] >= voter["log_end_offset"]
    assert "leader 1, epoch" in ottla("quorum", "describe")


def test_the_broker_is_listed_and_described(ottla: Cli, broker: RunningBroker, topic_name: str) -> None:
    ottla("topics", "create", topic_name, "--partitions", "3")
    host, _, port = broker.bootstrap.rpartition(":")
    listed = json_line(ottla("brokers", "list", "--json"))
    assert listed == {
        "id": 1,
        "host": host,
        "port": int(port),
        "rack": None,
        "state": "active",
        "controller": "leader",
    }
    described = json_line(ottla("brokers", "describe", "1", "--json"))
    assert described["replicas"] >= described["leaders"] >= 3
    assert described["out_of_sync"] == 0
    assert any("PLAINTEXT://" in end_point for end_point in described["end_points"])
    (directory,) = described["directories"]
    assert directory["path"] == str(broker.data_dir)
    assert directory["partitions"] >= 3
    assert directory["total_bytes"] > directory["usable_bytes"] > 0
    assert str(broker.data_dir) in ottla("brokers", "describe", "1")


def test_a_broker_that_is_not_registered_is_an_error(ottla: Cli) -> None:
    assert "Broker 9 is not registered. Registered brokers: 1" in ottla(
        "brokers", "describe", "9", fails_with=1
    )
    assert "Broker 9 is not registered" in ottla("brokers", "unregister", "9", "--yes", fails_with=1)
