"""Kafka's own producer, which uses transaction version 2 (KIP-890), and Kafka's tools for transactions."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.interop.brokers import RunningBroker
from tests.interop.group_clients import EventProcess, committed, produce_to_each
from tests.interop.kafka_jars import java_command
from tests.interop.librdkafka import create_topic, wait_until
from tests.interop.transaction_clients import (
    TRANSACTION_BROKER,
    Transactional,
    all_values,
    committed_values,
    describe_transaction,
    numbers,
)

pytestmark = [pytest.mark.contract, pytest.mark.java]

TOOL = "org.apache.kafka.tools.TransactionsCommand"
COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
TOOL_TIMEOUT_S = 120
COPY_TIMEOUT_S = 120.0


def tool(libs: Path, name: str, *arguments: str) -> str:
    done = subprocess.run(
        java_command(libs, name, *arguments),
        capture_output=True,
        text=True,
        timeout=TOOL_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rows(printed: str) -> list[dict[str, str]]:
    header, *lines = [line.split() for line in printed.splitlines() if line.strip()]
    return [dict(zip(header, line, strict=False)) for line in lines]


class JavaCopier(EventProcess):
    """It ends when it has copied the records that its partition had at the start.

    It asks for its offset before it initializes its producer, and waits then for what a predecessor left open to be
    aborted by its timeout. That has to be longer than a restart of the broker takes.
    """

    def __init__(
        self, libs: Path, bootstrap: str, source: str, partition: int, group: str, *options: str
    ) -> None:
        arguments = {
            "--broker-list": bootstrap,
            "--input-topic": source,
            "--input-partition": str(partition),
            "--output-topic": f"{source}-copy",
            "--consumer-group": group,
            "--transactional-id": f"{group}-{partition}",
            "--transaction-size": "25",
        }
        flat = [word for pair in arguments.items() for word in pair]
        super().__init__(java_command(libs, COPIER, *flat, "--use-group-metadata", *options))

    def name_of(self, event: dict[str, Any]) -> str:
        return str(event["stage"])

    @property
    def copied(self) -> int:
        return max((event["totalProcessed"] for event in list(self.events)), default=0)

    def wait(self) -> None:
        code = self.process.wait(COPY_TIMEOUT_S)
        self._ended()
        assert code == 0, f"it ended with {code}: {self}"


def test_the_message_copier_copies_exactly_once_through_aborts_and_kills_of_itself_and_the_broker(
    kafka_libs: Path, own_broker: Callable[..., RunningBroker], topic_name: str, group_id: str
) -> None:
    broker = own_broker(set=TRANSACTION_BROKER)
    count = 1000
    for name in (topic_name, f"{topic_name}-copy"):
        create_topic(broker.bootstrap, name, partitions=2)
    produce_to_each(broker.bootstrap, topic_name, 2, count)

    timeout_ms = "30000" if broker.name == "kafka" else "8000"

    def start(partition: int, *options: str) -> JavaCopier:
        copier = JavaCopier(
            *(kafka_libs, broker.bootstrap, topic_name, partition, group_id),
            *("--transaction-timeout", timeout_ms, *options),
        )
        started.append(copier)
        return copier

    started: list[JavaCopier] = []
    try:
        victim, survivor = start(0), start(1, "--enable-random-aborts")
        wait_until(lambda: victim.copied >= 100, "the first copier is at work", COPY_TIMEOUT_S)
        victim.kill()
        again = start(0)
        wait_until(lambda: survivor.copied >= 100, "the second copier is at work", COPY_TIMEOUT_S)
        broker.kill()
        broker.start()
        wait_until(lambda: again.copied >= 100, "the successor is at work", COPY_TIMEOUT_S)
        broker.restart()
        again.wait()
        survivor.wait()
    finally:
        for copier in started:
            copier.kill()
    for partition in range(2):
        assert committed_values(broker.bootstrap, f"{topic_name}-copy", partition) == numbers(0, count)
        assert committed(broker.bootstrap, group_id, topic_name, partition) == count


def test_members_of_a_group_copy_exactly_once_while_partitions_move_between_them(
    kafka_libs: Path, transaction_broker: RunningBroker, topic_name: str, group_id: str
) -> None:
    bootstrap, count = transaction_broker.bootstrap, 500
    for name in (topic_name, f"{topic_name}-copy"):
        create_topic(bootstrap, name, partitions=2)
    produce_to_each(bootstrap, topic_name, 2, count)
    members = [
        JavaCopier(kafka_libs, bootstrap, topic_name, number, group_id, "--group-mode") for number in (0, 1)
    ]
    try:
        wait_until(
            lambda: [committed(bootstrap, group_id, topic_name, p) for p in (0, 1)] == [count] * 2,
            "all is copied",
            COPY_TIMEOUT_S,
        )
    finally:
        for member in members:
            member.kill()
    for partition in range(2):
        assert committed_values(bootstrap, f"{topic_name}-copy", partition) == numbers(0, count)


def test_each_transaction_of_version_2_has_its_own_epoch(
    kafka_libs: Path, transaction_broker: RunningBroker, topic_name: str, transactional_id: str
) -> None:
    bootstrap = transaction_broker.bootstrap
    create_topic(bootstrap, topic_name)
    printed = tool(
        kafka_libs,
        "org.apache.kafka.tools.ProducerPerformance",
        *("--bootstrap-server", bootstrap, "--topic", topic_name, "--num-records", "2000"),
        *("--record-size", "10", "--throughput", "-1", "--transactional-id", transactional_id),
        *("--transaction-duration-ms", "1"),
    )
    assert "2000 records sent" in printed
    described = describe_transaction(bootstrap, transactional_id)
    assert described.transaction_state == "CompleteCommit"
    assert described.producer_epoch > 1
    assert len(committed_values(bootstrap, topic_name)) == 2000


def test_kafkas_tool_lists_describes_and_force_terminates(
    kafka_libs: Path, transaction_broker: RunningBroker, topic_name: str, transactional_id: str
) -> None:
    bootstrap = transaction_broker.bootstrap
    create_topic(bootstrap, topic_name)
    producer = Transactional(bootstrap, transactional_id)
    producer.begin()
    producer.send(topic_name, ["open"])

    def run(*arguments: str) -> str:
        return tool(kafka_libs, TOOL, "--bootstrap-server", bootstrap, *arguments)

    (listed,) = rows(run("list", "--transactional-id-pattern", f"{transactional_id[:-1]}."))
    assert (listed["TransactionalId"], listed["TransactionState"]) == (transactional_id, "Ongoing")
    (described,) = rows(run("describe", "--transactional-id", transactional_id))
    assert (described["TransactionState"], described["TopicPartitions"]) == ("Ongoing", f"{topic_name}-0")
    where = ("--topic", topic_name, "--partition", "0")
    (shown,) = rows(run("describe-producers", *where))
    assert shown["ProducerId"] == listed["ProducerId"]
    assert (shown["LastSequence"], shown["CurrentTransactionStartOffset"]) == ("0", "0")
    assert rows(run("find-hanging", *where)) == []
    run("forceTerminateTransaction", "--transactionalId", transactional_id)
    assert describe_transaction(bootstrap, transactional_id).transaction_state in ("Empty", "CompleteAbort")
    assert committed_values(bootstrap, topic_name) == []
    assert all_values(bootstrap, topic_name) == ["open"]


def test_kafkas_decoder_reads_the_transaction_log_and_ours_reads_the_same(
    kafka_libs: Path, own_broker: Callable[..., RunningBroker], topic_name: str, transactional_id: str
) -> None:
    broker = own_broker(set=TRANSACTION_BROKER | {"transaction.state.log.num.partitions": "1"})
    create_topic(broker.bootstrap, topic_name)
    producer = Transactional(broker.bootstrap, transactional_id)
    producer.transaction(topic_name, ["committed"])
    producer.begin()
    producer.send(topic_name, ["aborted"])
    producer.abort()
    broker.stop()
    log = broker.data_dir / "__transaction_state-0" / f"{0:020}.log"
    decoded = tool(
        kafka_libs, "org.apache.kafka.tools.DumpLogSegments", "--transaction-log-decoder", "--files", str(log)
    )
    states = (
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "CompleteCommit",
        "Ongoing",
        "PrepareAbort",
        "CompleteAbort",
    )
    keys = [line for line in decoded.splitlines() if transactional_id in line]
    assert len(keys) == len(states)
    numbers_of = {
        "Empty": 0,
        "Ongoing": 1,
        "PrepareCommit": 2,
        "PrepareAbort": 3,
        "CompleteCommit": 4,
        "CompleteAbort": 5,
    }
    statuses = [int(line.partition('"transactionStatus":')[2].partition(",")[0]) for line in keys]
    assert statuses == [numbers_of[state] for state in states]
    ours = subprocess.run(
        [sys.executable, "-m", "ottla.cli.main", "dump-log", "--records", "--json", str(log)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert [json.loads(line) for line in ours.splitlines()]
    assert ours.count(transactional_id) == len(states)
