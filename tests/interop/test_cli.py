"""The commands against a running broker, Ottla or Apache Kafka."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.interop.brokers import RunningBroker

pytestmark = pytest.mark.contract

COMMAND = (sys.executable, "-m", "ottla.cli.main")
TIMEOUT_S = 120
Cli = Callable[..., str]


@pytest.fixture
def ottla(broker: RunningBroker) -> Cli:
    """Runs a command on the broker and returns its output; `fails_with` is the expected exit code."""

    def run(*arguments: str, stdin: str | bytes = "", fails_with: int = 0) -> str:
        done = subprocess.run(
            [*COMMAND, *arguments, "--bootstrap", broker.bootstrap],
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == fails_with, done.stderr.decode()
        assert b"Traceback" not in done.stderr
        return (done.stderr if fails_with else done.stdout).decode()

    return run


def json_lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_topic_is_created_listed_described_changed_grown_and_deleted(ottla: Cli, topic_name: str) -> None:
    ottla("topics", "create", topic_name, "--partitions", "2", "--config", "retention.ms=12345")
    assert {"name": topic_name, "partitions": 2, "replication_factor": 1} in json_lines(
        ottla("topics", "list", "--json")
    )
    ottla(
        "topics", "alter", topic_name, "--config", "max.message.bytes=5000", "--delete-config", "retention.ms"
    )
    assert "3 partitions" in ottla("topics", "partitions", topic_name, "3")
    (described,) = json_lines(ottla("topics", "describe", topic_name, "--json"))
    assert [partition["partition"] for partition in described["partitions"]] == [0, 1, 2]
    assert {(p["leader"], p["earliest"], p["latest"]) for p in described["partitions"]} == {(1, 0, 0)}
    assert described["configs"]["max.message.bytes"] == "5000"
    assert "retention.ms" not in described["configs"]
    table = ottla("topics", "describe", topic_name)
    assert f"{topic_name}  (id {described['topic_id']})" in table
    assert "PARTITION  LEADER" in table
    ottla("topics", "delete", topic_name)
    assert topic_name not in ottla("topics", "list")


def test_existing_and_missing_topics_are_errors_unless_the_options_allow_them(
    ottla: Cli, topic_name: str
) -> None:
    ottla("topics", "create", topic_name)
    assert "already exists" in ottla("topics", "create", topic_name, fails_with=1)
    ottla("topics", "create", topic_name, "--if-not-exists")
    ottla("topics", "delete", topic_name, "--yes")
    assert topic_name in ottla("topics", "delete", topic_name, fails_with=1)
    ottla("topics", "delete", topic_name, "--if-exists")
    assert f"Topic {topic_name}: no such topic" in ottla("topics", "describe", topic_name, fails_with=1)


def test_configs_are_set_shown_with_their_source_and_unset(ottla: Cli, topic_name: str) -> None:
    ottla("topics", "create", topic_name)
    resource = ("--topic", topic_name)
    ottla("configs", "set", "segment.bytes=2000000", "cleanup.policy=compact", *resource)
    shown = {line["name"]: line for line in json_lines(ottla("configs", "describe", "--json", *resource))}
    assert shown["segment.bytes"]["value"] == "2000000"
    assert shown["cleanup.policy"]["source"] == "DYNAMIC_TOPIC_CONFIG"
    assert "flush.ms" not in shown
    ottla("configs", "unset", "segment.bytes", *resource)
    (line,) = json_lines(ottla("configs", "describe", "segment.bytes", "--json", *resource))
    assert (line["value"], line["source"]) == ("1073741824", "DEFAULT_CONFIG")
    assert "flush.ms" in ottla("configs", "describe", "--all", *resource)


def test_an_invalid_config_is_rejected_with_the_valid_values(ottla: Cli, topic_name: str) -> None:
    ottla("topics", "create", topic_name)
    refused = ottla("configs", "set", "segment.bytes=1", "--topic", topic_name, fails_with=1)
    assert "Invalid value 1 for configuration segment.bytes: Value must be at least 1048576" in refused
    unknown = ottla("configs", "describe", "bogus", "--topic", topic_name, fails_with=1)
    assert "has no config bogus" in unknown
    assert "Broker 77 is not in the cluster" in ottla("configs", "describe", "--broker", "77", fails_with=1)


def test_a_brokers_configs_are_shown(ottla: Cli) -> None:
    shown = {
        line["name"]: line
        for line in json_lines(ottla("configs", "describe", "--broker", "1", "--all", "--json"))
    }
    assert shown["node.id"]["read_only"]
    assert not shown["log.segment.bytes"]["read_only"]
    assert shown["ssl.keystore.password"]["sensitive"]


def test_produced_lines_are_consumed(ottla: Cli, topic_name: str) -> None:
    ottla("topics", "create", topic_name)
    ottla("produce", topic_name, "--key-separator", ":", stdin="a:1\nb:2\nb:3:4\n")
    assert ottla("consume", topic_name) == "1\n2\n3:4\n"
    assert ottla("consume", topic_name, "--keys", "--offsets") == "0:0\ta\t1\n0:1\tb\t2\n0:2\tb\t3:4\n"
    assert ottla("consume", topic_name, "--from", "1", "--count", "1") == "2\n"
    assert ottla("consume", topic_name, "--from", "latest") == ""
    assert ottla("consume", topic_name, "--from", "-1h", "--timestamps").count("Z\t") == 3
    assert "has no key" in ottla("produce", topic_name, "--key-separator", ":", stdin="nokey\n", fails_with=1)


def test_records_are_equal_after_consume_and_produce(ottla: Cli, topic_name: str) -> None:
    source, copy = f"{topic_name}-a", f"{topic_name}-b"
    records = [
        {"key": "k", "value": "ü", "partition": 1, "timestamp": 1_700_000_000_000},
        {"key": None, "value": None, "partition": 0, "timestamp": 1_700_000_000_001},
        {
            "key_base64": "/w==",
            "value": '{"id": 1}',
            "partition": 1,
            "timestamp": 1_700_000_000_002,
            "headers": [
                {"name": "h", "value": "1"},
                {"name": "h", "value_base64": "/g=="},
                {"name": "n", "value": None},
            ],
        },
    ]
    for topic in (source, copy):
        ottla("topics", "create", topic, "-p", "2", "--config", "retention.ms=-1")
    ottla(
        "produce",
        source,
        "--json",
        "--compression",
        "lz4",
        stdin="".join(json.dumps(r) + "\n" for r in records),
    )
    read = ottla("consume", source, "--json")
    ottla("produce", copy, "--json", stdin=read)

    def without_place(text: str) -> list[dict[str, Any]]:
        kept = [{k: v for k, v in r.items() if k not in ("topic", "offset")} for r in json_lines(text)]
        return sorted(kept, key=lambda record: record["timestamp"])

    assert without_place(read) == records
    assert without_place(ottla("consume", copy, "--json")) == records
    by_time = ottla("consume", copy, "--from", "2023-11-14T22:13:20.002Z", "--json")
    assert [record["timestamp"] for record in json_lines(by_time)] == [1_700_000_000_002]
    assert ottla("consume", copy, "--partition", "0", "--keys") == "null\tnull\n"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("not json", "Line 1 is not a record: not JSON"),
        ('{"value": "v", "partition": 9}', "no such topic or partition"),
        (json.dumps({"value": "x" * 20_000}), "too large"),
    ],
)
def test_a_record_that_cannot_be_sent_is_an_error(
    ottla: Cli, topic_name: str, line: str, problem: str
) -> None:
    ottla("topics", "create", topic_name, "--config", "max.message.bytes=10000")
    refused = ottla("produce", topic_name, "--json", stdin=line + "\n", fails_with=1)
    assert problem in refused


def test_consuming_an_unknown_topic_is_an_error(ottla: Cli, topic_name: str) -> None:
    assert "no such topic" in ottla("consume", topic_name, fails_with=1)
    ottla("topics", "create", topic_name)
    assert "has no partition 5: it has 1" in ottla("consume", topic_name, "--partition", "5", fails_with=1)


def test_follow_shows_new_records_until_ctrl_c(ottla: Cli, broker: RunningBroker, topic_name: str) -> None:
    ottla("topics", "create", topic_name)
    command = [*COMMAND, "consume", topic_name, "--follow", "--bootstrap", broker.bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            for line in (b"first\n", b"second\n"):
                ottla("produce", topic_name, stdin=line)
                assert process.stdout.readline() == line
            process.send_signal(signal.SIGINT)
            assert process.wait(TIMEOUT_S) == 130
            assert process.stderr.read() == b""
        finally:
            process.kill()


def test_a_pipe_that_is_closed_early_ends_quietly(ottla: Cli, broker: RunningBroker, topic_name: str) -> None:
    ottla("topics", "create", topic_name)
    ottla("perf", "produce", topic_name, "--records", "2000", "--size", "1000")
    command = [*COMMAND, "consume", topic_name, "--json", "--bootstrap", broker.bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"{")
        process.stdout.close()
        assert process.stderr.read() == b""
        process.wait(TIMEOUT_S)


def test_perf_reports_throughput_and_latency(ottla: Cli, topic_name: str) -> None:
    ottla("topics", "create", topic_name)
    (sent,) = json_lines(ottla("perf", "produce", topic_name, "-n", "5000", "-s", "200", "--json"))
    assert (sent["records"], sent["bytes"]) == (5000, 1_000_000)
    assert sent["latency_ms"]["p50"] <= sent["latency_ms"]["max"]
    (read,) = json_lines(ottla("perf", "consume", topic_name, "--json"))
    assert (read["records"], read["bytes"]) == (5000, 1_000_000)
    assert read["records_per_second"] > 0
    assert "P99.9" in ottla("perf", "latency", topic_name, "-n", "20")


def test_dump_log_shows_the_records_of_a_running_broker(
    ottla: Cli, broker: RunningBroker, topic_name: str
) -> None:
    ottla("topics", "create", topic_name)
    ottla("produce", topic_name, "--key-separator", ":", stdin="a:1\nb:2\n")
    segment = Path(broker.data_dir) / f"{topic_name}-0" / f"{0:020d}.log"
    command = [*COMMAND, "dump-log", str(segment), "--records", "--json"]
    shown = json_lines(
        subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT_S).stdout
    )
    records = [entry for entry in shown if entry["kind"] == "record"]
    assert [(record["offset"], record["key"], record["value"]) for record in records] == [
        (0, "a", "1"),
        (1, "b", "2"),
    ]
    assert all(entry["is_valid"] for entry in shown if entry["kind"] == "batch")
