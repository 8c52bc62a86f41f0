"""Kafka's own Java consumer in both protocols, and Kafka's tools for groups, from its jars."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.interop.brokers import RunningBroker
from tests.interop.group_clients import (
    JavaMember,
    Members,
    all_records,
    committed,
    partitions_of,
    produce_to_each,
    set_group_config,
    wait_for_owners,
    wait_for_records,
    wait_for_state,
)
from tests.interop.kafka_jars import java_command
from tests.interop.librdkafka import create_topic, wait_until

pytestmark = [pytest.mark.contract, pytest.mark.java]

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
STRATEGY = "org.apache.kafka.clients.consumer."
JAVA = Path(__file__).parent / "java"
CLASSIC = ("--command-config", str(JAVA / "member.properties"))
JAVA_PROTOCOLS = {
    "eager": (*CLASSIC, "--assignment-strategy", f"{STRATEGY}RangeAssignor"),
    "cooperative": (*CLASSIC, "--assignment-strategy", f"{STRATEGY}CooperativeStickyAssignor"),
    "consumer": ("--group-protocol", "CONSUMER"),
}
SESSION = {
    "eager": ("--session-timeout", "3000"),
    "cooperative": ("--session-timeout", "3000"),
    "consumer": (),
}
Tools = Callable[..., str]


@pytest.fixture(scope="session")
def tool_server(
    kafka_libs: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[subprocess.Popen[str]]:
    command = java_command(kafka_libs, str(JAVA / "ToolServer.java"))
    log = tmp_path_factory.mktemp("tools") / "stderr"
    with log.open("w") as errors:
        server = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        )
    with server:
        yield server
        server.kill()


@pytest.fixture
def tools(tool_server: subprocess.Popen[str], group_broker: RunningBroker) -> Tools:
    """Runs one of Kafka's tools against the broker and returns what it printed."""

    def run(tool: str, *arguments: str) -> str:
        assert tool_server.stdin is not None
        assert tool_server.stdout is not None
        tool_server.stdin.write(
            "\t".join((tool, "--bootstrap-server", group_broker.bootstrap, *arguments)) + "\n"
        )
        tool_server.stdin.flush()
        printed: list[str] = []
        for line in tool_server.stdout:
            if line.startswith("\0"):
                assert line == "\x000\n", f"{tool} {arguments} ended with {line[1:]}: {printed}"
                return "".join(printed)
            printed.append(line)
        raise AssertionError(f"the tools' JVM has ended with {tool_server.wait()}: {printed}")

    return run


def table(printed: str) -> list[dict[str, str]]:
    """The rows under the last header of a tool's table."""
    lines = [line.split() for line in printed.splitlines() if line.strip()]
    heads = [number for number, line in enumerate(lines) if line[0] == "GROUP"]
    header = lines[heads[-1]]
    return [dict(zip(header, line, strict=False)) for line in lines[heads[-1] + 1 :]]


@pytest.mark.parametrize("protocol", JAVA_PROTOCOLS)
def test_java_members_share_the_partitions_and_the_one_left_takes_over_from_one_that_is_killed(
    kafka_libs: Path,
    group_broker: RunningBroker,
    members: Members,
    topic_name: str,
    group_id: str,
    protocol: str,
) -> None:
    bootstrap, wanted = group_broker.bootstrap, partitions_of(topic_name, 4)
    create_topic(bootstrap, topic_name, partitions=4)
    produce_to_each(bootstrap, topic_name, 4, 25)
    first, second = (
        members.start_java(
            kafka_libs, bootstrap, group_id, topic_name, *JAVA_PROTOCOLS[protocol], *SESSION[protocol]
        )
        for _ in range(2)
    )
    wait_for_owners([first, second], wanted, each=2)
    wait_for_records([first, second], 100)
    second.kill()
    wait_for_owners([first], wanted)
    produce_to_each(bootstrap, topic_name, 4, 25)
    wait_for_records([first, second], 200)
    assert set(all_records([first, second])) == {(topic_name, p, n) for p in range(4) for n in range(50)}
    assert first.wait_for("offsets_committed")["success"]
    first.close()
    assert first.named("shutdown_complete")
    assert wait_for_state(bootstrap, group_id, "EMPTY").members == []
    assert [committed(bootstrap, group_id, topic_name, p) for p in range(4)] == [50] * 4


@pytest.mark.parametrize("protocol", JAVA_PROTOCOLS)
def test_java_and_librdkafka_share_one_group(
    kafka_libs: Path,
    group_broker: RunningBroker,
    members: Members,
    topic_name: str,
    group_id: str,
    protocol: str,
) -> None:
    bootstrap, wanted = group_broker.bootstrap, partitions_of(topic_name, 4)
    create_topic(bootstrap, topic_name, partitions=4)
    produce_to_each(bootstrap, topic_name, 4, 25)
    java = members.start_java(
        kafka_libs, bootstrap, group_id, topic_name, *JAVA_PROTOCOLS[protocol], *SESSION[protocol]
    )
    wait_for_owners([java], wanted)
    other = members.start(bootstrap, group_id, topic_name, protocol)
    wait_for_owners([java, other], wanted, each=2)
    produce_to_each(bootstrap, topic_name, 4, 25)
    wait_for_records([java, other], 200)
    java.close()
    wait_for_owners([other], wanted)
    produce_to_each(bootstrap, topic_name, 4, 25)
    wait_for_records([java, other], 300)
    assert all_records([java, other]) == [(topic_name, p, n) for p in range(4) for n in range(75)]


@pytest.mark.slow
@pytest.mark.parametrize("classic", ["eager", "cooperative"])
def test_a_group_of_java_members_moves_to_the_consumer_protocol_and_back_and_loses_no_record(
    kafka_libs: Path,
    group_broker: RunningBroker,
    members: Members,
    topic_name: str,
    group_id: str,
    classic: str,
) -> None:
    bootstrap, wanted = group_broker.bootstrap, partitions_of(topic_name, 4)
    create_topic(bootstrap, topic_name, partitions=4)

    def start(protocol: str) -> JavaMember:
        arguments = (*JAVA_PROTOCOLS[protocol], *SESSION[protocol])
        return members.start_java(kafka_libs, bootstrap, group_id, topic_name, *arguments)

    everybody = [start(classic)]
    wait_for_owners(everybody, wanted)
    for protocol, kind in (("consumer", "CONSUMER"), (classic, "CLASSIC")):
        old, new = everybody[-1], start(protocol)
        everybody.append(new)
        wait_for_owners([old, new], wanted, each=2)
        assert wait_for_state(bootstrap, group_id, "STABLE").type.name == "CONSUMER"
        produce_to_each(bootstrap, topic_name, 4, 10)
        wait_for_records(everybody, 40 * (len(everybody) - 1))
        old.close()
        wait_for_owners([new], wanted)
        assert wait_for_state(bootstrap, group_id, "STABLE").type.name == kind
    produce_to_each(bootstrap, topic_name, 4, 10)
    wait_for_records(everybody, 120)
    assert all_records(everybody) == [(topic_name, p, n) for p in range(4) for n in range(30)]


@pytest.mark.parametrize("protocol", ["eager", "consumer"])
def test_a_static_java_member_that_rejoins_gets_its_partitions_without_a_rebalance(
    kafka_libs: Path,
    group_broker: RunningBroker,
    members: Members,
    topic_name: str,
    group_id: str,
    protocol: str,
) -> None:
    bootstrap, wanted = group_broker.bootstrap, partitions_of(topic_name, 4)
    create_topic(bootstrap, topic_name, partitions=4)
    # A JVM takes some time to start again.
    session: dict[str, Any] = {} if protocol == "consumer" else {"session_timeout_ms": 20_000}
    if protocol == "consumer":
        set_group_config(bootstrap, group_id, "consumer.session.timeout.ms", "20000")

    def start_static() -> JavaMember:
        arguments = JAVA_PROTOCOLS[protocol] + (("--session-timeout", "20000") if session else ())
        return members.start_java(
            kafka_libs, bootstrap, group_id, topic_name, *arguments, "--group-instance-id", "java"
        )

    stays = members.start(bootstrap, group_id, topic_name, protocol, **session)
    leaves = start_static()
    wait_for_owners([stays, leaves], wanted, each=2)
    seen, share = len(stays.events), leaves.owned
    leaves.close()
    back = start_static()
    wait_for_owners([back], share)
    produce_to_each(bootstrap, topic_name, 4, 5)
    wait_for_records([stays, back], 20)
    assert {event["event"] for event in stays.events[seen:]} <= {"record", "committed"}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_console_consumer_and_consumer_performance_read_as_a_group(
    tools: Tools, group_broker: RunningBroker, topic_name: str, group_id: str, protocol: str
) -> None:
    bootstrap = group_broker.bootstrap
    create_topic(bootstrap, topic_name, partitions=2)
    produce_to_each(bootstrap, topic_name, 2, 1000)
    as_group = (
        "--group",
        group_id,
        "--topic",
        topic_name,
        "--command-property",
        f"group.protocol={protocol}",
    )
    console = ("org.apache.kafka.tools.consumer.ConsoleConsumer", *as_group, "--from-beginning")
    assert len(tools(*console, "--max-messages", "500").splitlines()) == 500
    done = [committed(bootstrap, group_id, topic_name, partition) or 0 for partition in range(2)]
    assert sum(done) == 500
    # The same group continues where it stopped.
    result = tools("org.apache.kafka.tools.ConsumerPerformance", *as_group, "--num-records", "1500")
    header, numbers = (line.split(", ") for line in result.splitlines()[-2:])
    assert dict(zip(header, numbers, strict=True))["data.consumed.in.nMsg"] == "1500"


@pytest.mark.parametrize("protocol", ["cooperative", "consumer"])
def test_consumer_group_command_shows_an_active_group(
    tools: Tools, group_broker: RunningBroker, members: Members, topic_name: str, group_id: str, protocol: str
) -> None:
    bootstrap = group_broker.bootstrap
    create_topic(bootstrap, topic_name, partitions=4)
    produce_to_each(bootstrap, topic_name, 4, 25)
    both = [
        members.start(bootstrap, group_id, topic_name, protocol, client_id=name) for name in ("anna", "bert")
    ]
    wait_for_owners(both, partitions_of(topic_name, 4), each=2)
    wait_for_records(both, 100)
    wait_for_state(bootstrap, group_id, "STABLE")
    wait_until(
        lambda: all(committed(bootstrap, group_id, topic_name, p) == 25 for p in range(4)), "all is committed"
    )
    assert group_id in tools(GROUPS, "--list").splitlines()
    kind = "Consumer" if protocol == "consumer" else "Classic"
    listed = table(tools(GROUPS, "--list", "--state", "stable", "--type", kind.lower()))
    assert {"GROUP": group_id, "TYPE": kind, "STATE": "Stable"} in listed
    groups = table(tools("org.apache.kafka.tools.GroupsCommand", "--list"))
    assert {"GROUP": group_id, "TYPE": kind, "PROTOCOL": "consumer"} in groups

    of_group = ("--describe", "--group", group_id)
    offsets = table(tools(GROUPS, *of_group))
    assert sorted(row["PARTITION"] for row in offsets) == ["0", "1", "2", "3"]
    for row in offsets:
        shown = (row["TOPIC"], row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"], row["HOST"])
        assert shown == (topic_name, "25", "25", "0", "/127.0.0.1")
    assert {row["CLIENT-ID"] for row in offsets} == {"anna", "bert"}
    shown_members = table(tools(GROUPS, *of_group, "--members", "--verbose"))
    assert {row["CLIENT-ID"]: row["#PARTITIONS"] for row in shown_members} == {"anna": "2", "bert": "2"}
    (state,) = table(tools(GROUPS, *of_group, "--state"))
    assert (state["STATE"], state["#MEMBERS"]) == ("Stable", "2")
    strategy = "uniform" if protocol == "consumer" else "cooperative-sticky"
    assert state["ASSIGNMENT-STRATEGY"] == strategy
    # Changes that would affect active members are rejected.
    refused = tools(GROUPS, "--reset-offsets", "--group", group_id, "--topic", topic_name, "--to-earliest")
    assert "can only be reset if the group" in refused
    assert "is not empty" in tools(GROUPS, "--delete", "--group", group_id)
    assert len(table(tools(GROUPS, *of_group))) == 4


def test_consumer_group_command_resets_and_deletes_the_offsets_of_an_empty_group(
    tools: Tools,
    group_broker: RunningBroker,
    members: Members,
    tmp_path: Path,
    topic_name: str,
    group_id: str,
) -> None:
    bootstrap = group_broker.bootstrap
    create_topic(bootstrap, topic_name, partitions=2)
    produce_to_each(bootstrap, topic_name, 2, 25)
    member = members.start(bootstrap, group_id, topic_name, "eager")
    wait_for_records([member], 50)
    member.close()
    wait_for_state(bootstrap, group_id, "EMPTY")

    def now() -> list[int | None]:
        return [committed(bootstrap, group_id, topic_name, partition) for partition in range(2)]

    reset = (GROUPS, "--reset-offsets", "--group", group_id, "--topic")
    planned = table(tools(*reset, topic_name, "--to-earliest", "--dry-run"))
    assert [row["NEW-OFFSET"] for row in planned] == ["0", "0"]
    assert now() == [25, 25]
    for arguments, offsets in (
        (("--to-offset", "7"), [7, 7]),
        (("--shift-by", "-3"), [4, 4]),
        (("--to-datetime", "2020-01-01T00:00:00.000"), [0, 0]),
        (("--by-duration", "PT0S"), [25, 25]),
    ):
        tools(*reset, topic_name, *arguments, "--execute")
        assert now() == offsets
    plan = tmp_path / "plan.csv"
    plan.write_text(f'"{topic_name}",0,11\n"{topic_name}",1,12\n')
    tools(GROUPS, "--reset-offsets", "--group", group_id, "--from-file", str(plan), "--execute")
    assert now() == [11, 12]
    tools(GROUPS, "--delete-offsets", "--group", group_id, "--topic", f"{topic_name}:0")
    assert now() == [None, 12]
    assert "was successful" in tools(GROUPS, "--delete", "--group", group_id)
    assert group_id not in tools(GROUPS, "--list").splitlines()
    assert now() == [None, None]
