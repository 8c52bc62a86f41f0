"""The offsets topic is Kafka's: its dump tool reads what we write, and each broker goes on where the other stopped."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from tests.interop.brokers import RunningBroker, run_kafka, run_ottla
from tests.interop.conftest import BrokerStarter
from tests.interop.group_clients import (
    GROUP_BROKER,
    Members,
    committed_with_metadata,
    describe,
    partitions_of,
    produce_to_each,
    wait_for_owners,
    wait_for_records,
)
from tests.interop.kafka_jars import java_command
from tests.interop.librdkafka import consumer_at, create_topic

pytestmark = [pytest.mark.java, pytest.mark.slow]

DUMP = "org.apache.kafka.tools.DumpLogSegments"
TOPIC = "orders"
NOTE = "next file: März.csv"
GROUPS = {"of-eager": "eager", "of-consumer": "consumer"}
OFFSET_COMMIT = "1"
# Ids and times; the hash of the topics is made of their ids too.
VARYING = {
    "memberId",
    "leader",
    "topicId",
    "metadataHash",
    "currentStateTimestamp",
    "assignmentTimestamp",
    "commitTimestamp",
}
BROKERS: dict[str, BrokerStarter] = {"kafka": run_kafka, "ottla": run_ottla}


def live(broker: RunningBroker, members: Members) -> None:
    """A group of each protocol whose members commit all and leave, and a commit by hand with a note."""
    bootstrap = broker.bootstrap
    create_topic(bootstrap, TOPIC, partitions=2)
    produce_to_each(bootstrap, TOPIC, 2, 20)
    for group_id, protocol in GROUPS.items():
        member = members.start(bootstrap, group_id, TOPIC, protocol)
        wait_for_owners([member], partitions_of(TOPIC, 2))
        wait_for_records([member], 40)
        member.close()
    with consumer_at(bootstrap, [TopicPartition(TOPIC, 0)], group_id="by-hand") as consumer:
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, 7, metadata=NOTE)], asynchronous=False)


def go_on(broker: RunningBroker, members: Members) -> None:
    """Each group reads what is new, and nothing that is not."""
    bootstrap = broker.bootstrap
    assert committed_with_metadata(bootstrap, "by-hand", TOPIC) == (7, NOTE)
    produce_to_each(bootstrap, TOPIC, 2, 20)
    for group_id, protocol in GROUPS.items():
        assert describe(bootstrap, group_id).state.name == "EMPTY"
        member = members.start(bootstrap, group_id, TOPIC, protocol)
        wait_for_owners([member], partitions_of(TOPIC, 2))
        wait_for_records([member], 40)
        assert sorted(member.records) == [(TOPIC, p, n) for p in range(2) for n in range(20, 40)]
        member.close()


@pytest.mark.parametrize(("first", "second"), [("ottla", "kafka"), ("kafka", "ottla")])
def test_each_broker_goes_on_with_the_groups_that_the_other_left(
    tmp_path: Path, members: Members, first: str, second: str
) -> None:
    with BROKERS[first](tmp_path / "data", set=GROUP_BROKER) as broker:
        live(broker, members)
        assert broker.stop() in (0, 143)
    with BROKERS[second](tmp_path / "data", set=GROUP_BROKER) as broker:
        go_on(broker, members)


@pytest.mark.parametrize(("first", "second"), [("ottla", "kafka"), ("kafka", "ottla")])
def test_members_go_on_when_the_other_broker_takes_the_place_of_theirs(
    tmp_path: Path, members: Members, first: str, second: str
) -> None:
    settings = GROUP_BROKER | {"group.consumer.session.timeout.ms": "40000"}
    with BROKERS[first](tmp_path / "data", set=settings) as broker:
        bootstrap, port = broker.bootstrap, broker.port
        create_topic(bootstrap, TOPIC, partitions=2)
        alive = {
            "of-eager": members.start(bootstrap, "of-eager", TOPIC, "eager", session_timeout_ms=40_000),
            "of-consumer": members.start(bootstrap, "of-consumer", TOPIC, "consumer"),
        }
        for member in alive.values():
            wait_for_owners([member], partitions_of(TOPIC, 2))
        before = {group_id: describe(bootstrap, group_id) for group_id in alive}
        events = {group_id: len(member.events) for group_id, member in alive.items()}
        assert broker.stop() in (0, 143)
    with BROKERS[second](tmp_path / "data", set=settings, port=port):
        produce_to_each(bootstrap, TOPIC, 2, 20)
        for group_id, member in alive.items():
            wait_for_records([member], 40)
            assert {event["event"] for event in member.events[events[group_id] :]} <= {"record", "committed"}
            after = describe(bootstrap, group_id)
            assert (after.state, after.type) == (before[group_id].state, before[group_id].type)
            assert [m.member_id for m in after.members] == [m.member_id for m in before[group_id].members]


Story = dict[str, list[tuple[str, Any]]]


def dumped(libs: Path, data_dir: Path) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Keys and values of all that is in the offsets topic, as Kafka's decoder shows them."""
    files = [file for file in sorted(data_dir.glob("__consumer_offsets-*/*.log")) if file.stat().st_size]
    arguments = ("--offsets-decoder", "--files", ",".join(map(str, files)))
    done = subprocess.run(
        java_command(libs, DUMP, *arguments), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    records = []
    for line in done.stdout.splitlines():
        assert "isvalid: false" not in line, line
        if line.startswith("| offset:"):
            key, _, value = line.partition(" key: ")[2].partition(" payload: ")
            records.append((json.loads(key), None if value == "<DELETE>" else json.loads(value)))
    return records


def stories(records: list[tuple[dict[str, Any], dict[str, Any] | None]]) -> Story:
    """What was written of each group, one record after the other, without what is different each time."""
    found: Story = {}
    for key, value in records:
        fields = key["data"]
        group_id = fields.get("groupId") or fields["group"]
        what = " ".join(
            [key["type"], *(f"{name}={fields[name]}" for name in ("topic", "partition") if name in fields)]
        )
        story = found.setdefault(group_id, [])
        entry = (what, alike(value))
        # A member commits when it likes: the last commit counts.
        if key["type"] == OFFSET_COMMIT:
            story[:] = [other for other in story if other[0] != what]
        story.append(entry)
    for story in found.values():
        story.sort(key=lambda entry: entry[0] if entry[0].startswith(OFFSET_COMMIT) else "")
    return found


def alike(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: "any" if name in VARYING and item else alike(item) for name, item in value.items()}
    return [alike(item) for item in value] if isinstance(value, list) else value


def test_of_the_same_life_ottla_writes_the_records_that_kafka_writes(
    kafka_libs: Path, members: Members, tmp_path: Path
) -> None:
    written: dict[str, Story] = {}
    for name, run in BROKERS.items():
        with run(tmp_path / name, set=GROUP_BROKER) as broker:
            live(broker, members)
            assert broker.stop() in (0, 143)
        written[name] = stories(dumped(kafka_libs, tmp_path / name))
    assert set(written["ottla"]) == {*GROUPS, "by-hand"}
    for group_id, story in written["kafka"].items():
        assert written["ottla"][group_id] == story
