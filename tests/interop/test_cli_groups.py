"""`ottla groups` against a running broker, Ottla or Apache Kafka, with groups of both protocols."""

import functools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.interop.brokers import RunningBroker
from tests.interop.group_clients import Members, committed, partitions_of, wait_for_owners, wait_for_state
from tests.interop.kafka_jars import java_command
from tests.interop.librdkafka import admin_of, create_topic, produce_values

pytestmark = pytest.mark.contract

COMMAND = (sys.executable, "-m", "ottla.cli.main")
TIMEOUT_S = 120
# The type of a group, and what its members are started with.
PROTOCOLS = {"classic": "eager", "consumer": "consumer"}
Cli = Callable[..., str]


@pytest.fixture
def groups(group_broker: RunningBroker) -> Cli:
    """Runs `ottla groups ...` and returns its output; `fails_with` is the expected exit code."""

    def run(*arguments: str, fails_with: int = 0) -> str:
        done = subprocess.run(
            [*COMMAND, "groups", *arguments, "--bootstrap", group_broker.bootstrap],
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


def json_lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def commit(broker: RunningBroker, group: str, offsets: list[TopicPartition]) -> None:
    """Commits as a consumer without a group does: the group then has offsets and no members."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()


def topic_with_records(broker: RunningBroker, name: str, partitions: int = 2, count: int = 10) -> None:
    """`count` records in partition 0, none in the others."""
    create_topic(broker.bootstrap, name, partitions)
    produce_values(broker.bootstrap, name, [str(n).encode() for n in range(count)])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_with_members_is_listed_described_and_cannot_be_reset_or_deleted(
    group_broker: RunningBroker,
    groups: Cli,
    members: Members,
    group_id: str,
    topic_name: str,
    protocol: str,
) -> None:
    bootstrap, wanted = group_broker.bootstrap, partitions_of(topic_name, 2)
    topic_with_records(group_broker, topic_name)
    commit(group_broker, group_id, [TopicPartition(topic_name, 0, 4)])
    start = functools.partial(
        members.start, bootstrap, group_id, topic_name, PROTOCOLS[protocol], commits=False
    )
    wait_for_owners([start(client_id="one", group_instance_id="i1"), start(client_id="two")], wanted, each=1)
    wait_for_state(bootstrap, group_id, "STABLE")

    (listed,) = [
        g for g in json_lines(groups("list", "--type", protocol, "--json")) if g["group"] == group_id
    ]
    assert listed == {"group": group_id, "type": protocol, "state": "Stable", "members": 2}
    assert group_id not in groups("list", "--state", "Empty")

    (described,) = json_lines(groups("describe", group_id, "--json"))
    assert described["coordinator"]["port"] == group_broker.port
    assert described["assignor"] == ("range" if protocol == "classic" else "uniform")
    offsets = {(p["partition"], p["committed"], p["log_end"], p["lag"]) for p in described["partitions"]}
    assert offsets == {(0, 4, 10, 6), (1, None, 0, None)}
    owners = {line["client_id"]: line for line in described["partitions"]}
    assert set(owners) == {"one", "two"}

    lines = {line["client_id"]: line for line in json_lines(groups("members", group_id, "-v", "--json"))}
    assert {line["instance_id"] for line in lines.values()} == {"i1", None}
    for client_id, line in lines.items():
        assert line["member_id"] == owners[client_id]["owner"]
        assert line["assignment"] == [{"topic": topic_name, "partition": owners[client_id]["partition"]}]
        assert line["target"] == (None if protocol == "classic" else line["assignment"])
        assert line["host"] == "127.0.0.1"
    assert f"{topic_name}:1" in groups("members", group_id, "--verbose")

    reset = ("reset-offsets", group_id, "--topic", topic_name, "--to-earliest")
    for arguments in (reset, (*reset, "--execute")):
        assert f"Group {group_id} has members (2, Stable)" in groups(*arguments, fails_with=1)
    assert f"Group {group_id} was not deleted: it has members" in groups("delete", group_id, fails_with=1)
    refused = groups("delete", group_id, "--topic", topic_name, fails_with=1)
    assert f"the offset of group {group_id} for {topic_name}-0: a member" in refused
    assert committed(bootstrap, group_id, topic_name) == 4


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_empty_group_is_reset_and_deleted(
    group_broker: RunningBroker,
    groups: Cli,
    members: Members,
    group_id: str,
    topic_name: str,
    protocol: str,
) -> None:
    bootstrap = group_broker.bootstrap
    topic_with_records(group_broker, topic_name)
    member = members.start(bootstrap, group_id, topic_name, PROTOCOLS[protocol], commits=False)
    wait_for_owners([member], partitions_of(topic_name, 2))
    member.close()
    wait_for_state(bootstrap, group_id, "EMPTY")
    groups("reset-offsets", group_id, "--topic", topic_name, "--to-offset", "5", "--execute")
    assert [committed(bootstrap, group_id, topic_name, partition) for partition in (0, 1)] == [5, 0]
    assert f"Deleted group {group_id}" in groups("delete", group_id)
    assert "there is no such group" in groups("describe", group_id, fails_with=1)


def test_offsets_of_a_group_that_never_had_members_are_shown(
    group_broker: RunningBroker, groups: Cli, group_id: str, topic_name: str
) -> None:
    topic_with_records(group_broker, topic_name)
    commit(group_broker, group_id, [TopicPartition(topic_name, 0, 3)])
    (line,) = json_lines(groups("offsets", group_id, "--json"))
    assert (line["committed"], line["log_end"], line["lag"], line["owner"]) == (3, 10, 7, None)
    (described,) = json_lines(groups("describe", group_id, "--json"))
    assert (described["state"], described["members"]) == ("Empty", [])


@pytest.mark.parametrize(
    ("option", "offset"),
    [
        (["--to-earliest"], 2),
        (["--to-latest"], 10),
        (["--to-current"], 6),
        (["--to-offset", "7"], 7),
        (["--to-offset", "1"], 2),
        (["--to-offset", "11"], 10),
        (["--shift-by", "-3"], 3),
        (["--shift-by", "-5"], 2),
        (["--shift-by", "100"], 10),
        (["--by-duration", "PT1H"], 2),
        (["--to-datetime", "2001-01-01T00:00:00.000"], 2),
        (["--to-datetime", "2300-01-01T00:00:00.000Z"], 10),
    ],
)
def test_each_kind_of_reset_commits_its_offset_only_with_execute(
    group_broker: RunningBroker, groups: Cli, group_id: str, topic_name: str, option: list[str], offset: int
) -> None:
    topic_with_records(group_broker, topic_name)
    delete_records(group_broker, topic_name, before=2)
    commit(group_broker, group_id, [TopicPartition(topic_name, 0, 6)])
    reset = ("reset-offsets", group_id, "--topic", f"{topic_name}:0", *option, "--json")
    (planned,) = json_lines(groups(*reset))
    assert (planned["committed"], planned["new_offset"], planned["executed"]) == (6, offset, False)
    assert committed(group_broker.bootstrap, group_id, topic_name) == 6
    (done,) = json_lines(groups(*reset, "--execute"))
    assert (done["new_offset"], done["executed"]) == (offset, True)
    assert committed(group_broker.bootstrap, group_id, topic_name) == offset


def delete_records(broker: RunningBroker, topic: str, before: int) -> None:
    admin = admin_of(broker.bootstrap)
    (future,) = admin.delete_records([TopicPartition(topic, 0, before)]).values()
    future.result(TIMEOUT_S)


def test_offsets_are_exported_to_a_file_and_imported(
    group_broker: RunningBroker, groups: Cli, group_id: str, topic_name: str, tmp_path: Path
) -> None:
    topic_with_records(group_broker, topic_name)
    commit(group_broker, group_id, [TopicPartition(topic_name, 0, 6)])
    exported = groups("reset-offsets", group_id, "--all-topics", "--to-current", "--export")
    assert exported == f"{topic_name},0,6\n"
    file = tmp_path / "offsets.csv"
    file.write_text(exported)
    groups("reset-offsets", group_id, "--all-topics", "--to-earliest", "--execute")
    assert committed(group_broker.bootstrap, group_id, topic_name) == 0
    groups("reset-offsets", group_id, "--from-file", str(file), "--execute")
    assert committed(group_broker.bootstrap, group_id, topic_name) == 6


@pytest.mark.java
def test_kafkas_tool_reads_our_file_and_we_read_its(
    group_broker: RunningBroker,
    groups: Cli,
    group_id: str,
    topic_name: str,
    tmp_path: Path,
    kafka_libs: Path,
) -> None:
    topic_with_records(group_broker, topic_name)
    file = tmp_path / "offsets.csv"

    def tool(*arguments: str) -> str:
        name = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
        where = ("--bootstrap-server", group_broker.bootstrap, "--group", group_id)
        command = java_command(kafka_libs, name, *where, "--reset-offsets", *arguments)
        return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True).stdout

    file.write_text(groups("reset-offsets", group_id, "--topic", topic_name, "--to-offset", "6", "--export"))
    tool("--from-file", str(file), "--execute")
    assert [committed(group_broker.bootstrap, group_id, topic_name, p) for p in (0, 1)] == [6, 0]
    exported = tool("--topic", topic_name, "--shift-by", "-2", "--dry-run", "--export")
    file.write_text(exported)
    groups("reset-offsets", group_id, "--from-file", str(file), "--execute")
    assert [committed(group_broker.bootstrap, group_id, topic_name, p) for p in (0, 1)] == [4, 0]


def test_offsets_of_a_new_group_can_be_set_before_it_has_members(
    group_broker: RunningBroker, groups: Cli, group_id: str, topic_name: str
) -> None:
    topic_with_records(group_broker, topic_name)
    groups("reset-offsets", group_id, "--topic", topic_name, "--to-latest", "--execute")
    assert [committed(group_broker.bootstrap, group_id, topic_name, p) for p in (0, 1)] == [10, 0]


def test_unknown_groups_and_topics_are_named_in_the_error(
    group_broker: RunningBroker, groups: Cli, group_id: str, topic_name: str
) -> None:
    for command in ("describe", "members", "offsets", "delete"):
        assert f"Group {group_id}" in groups(command, group_id, fails_with=1)
    assert "has no committed offsets" in groups(
        "reset-offsets", group_id, "--all-topics", "--to-latest", fails_with=1
    )
    missing = groups("reset-offsets", group_id, "--topic", topic_name, "--to-latest", fails_with=1)
    assert f"Topic {topic_name}: no such topic" in missing
    create_topic(group_broker.bootstrap, topic_name)
    missing = groups("reset-offsets", group_id, "--topic", f"{topic_name}:7", "--to-latest", fails_with=1)
    assert f"Topic {topic_name} has no partition 7" in missing
    nowhere = groups("reset-offsets", group_id, "--topic", topic_name, "--shift-by", "1", fails_with=1)
    assert f"{topic_name}-0 cannot be shifted" in nowhere


def test_offsets_of_one_topic_are_deleted_and_the_others_stay(
    group_broker: RunningBroker, groups: Cli, group_id: str, topic_name: str
) -> None:
    other = f"{topic_name}-other"
    for name in (topic_name, other):
        create_topic(group_broker.bootstrap, name, 2)
    commit(
        group_broker, group_id, [TopicPartition(name, p, 0) for name in (topic_name, other) for p in (0, 1)]
    )
    deleted = groups("delete", group_id, "--topic", topic_name, "--topic", f"{other}:1")
    assert deleted.count("Deleted the offset") == 3
    (left,) = json_lines(groups("offsets", group_id, "--json"))
    assert (left["topic"], left["partition"]) == (other, 0)
    again = groups("delete", group_id, "--topic", topic_name, fails_with=1)
    assert f"Group {group_id} has no committed offset of {topic_name}" in again


def test_several_groups_are_deleted_and_a_missing_one_is_reported(
    group_broker: RunningBroker, groups: Cli, group_id: str, topic_name: str
) -> None:
    create_topic(group_broker.bootstrap, topic_name)
    names = [f"{group_id}-{n}" for n in (1, 2)]
    for name in names:
        commit(group_broker, name, [TopicPartition(topic_name, 0, 0)])
    refused = groups("delete", names[0], f"{group_id}-none", names[1], fails_with=1)
    assert f"Group {group_id}-none was not deleted: there is no such group" in refused
    assert group_id not in groups("list")


def test_a_deleted_topic_leaves_a_group_that_can_be_shown(
    group_broker: RunningBroker, groups: Cli, group_id: str, topic_name: str
) -> None:
    other = f"{topic_name}-other"
    for name in (topic_name, other):
        create_topic(group_broker.bootstrap, name)
    commit(group_broker, group_id, [TopicPartition(name, 0, 0) for name in (topic_name, other)])
    admin = admin_of(group_broker.bootstrap)
    admin.delete_topics([topic_name])[topic_name].result(TIMEOUT_S)
    (described,) = json_lines(groups("describe", group_id, "--json"))
    assert [line["log_end"] for line in described["partitions"] if line["topic"] == other] == [0]
    assert all(line["lag"] is None for line in described["partitions"] if line["topic"] == topic_name)
