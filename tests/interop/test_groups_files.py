"""The offsets topic has Kafka's format: each broker continues the groups of the other."""

import contextlib
from functools import partial
from pathlib import Path

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
from tests.interop.kio_client import KioClient
from tests.interop.librdkafka import TIMEOUT_S, consumer_at, create_topic, wait_until

pytestmark = [pytest.mark.java, pytest.mark.slow]

OFFSET_FETCH = 9
TOPIC = "orders"
NOTE = "next file: März.csv"
GROUPS = {"of-eager": "eager", "of-consumer": "consumer"}
# Java's hashes of "billing" and "orders" are negative: a broker must find the same partition for them as Kafka.
WITHOUT_MEMBERS = ("by-hand", "billing", "orders")
BROKERS: dict[str, BrokerStarter] = {"kafka": run_kafka, "ottla": run_ottla}


def live(broker: RunningBroker, members: Members) -> None:
    """A group of each protocol whose members commit everything and leave, and manual commits with metadata."""
    bootstrap = broker.bootstrap
    create_topic(bootstrap, TOPIC, partitions=2)
    produce_to_each(bootstrap, TOPIC, 2, 20)
    for group_id, protocol in GROUPS.items():
        member = members.start(bootstrap, group_id, TOPIC, protocol)
        wait_for_owners([member], partitions_of(TOPIC, 2))
        wait_for_records([member], 40)
        member.close()
    for group_id in WITHOUT_MEMBERS:
        with consumer_at(bootstrap, [TopicPartition(TOPIC, 0)], group_id=group_id) as consumer:
            consumer.commit(offsets=[TopicPartition(TOPIC, 0, 7, metadata=NOTE)], asynchronous=False)


def go_on(broker: RunningBroker, members: Members) -> None:
    """Each group reads only the new records."""
    bootstrap = broker.bootstrap
    for group_id in WITHOUT_MEMBERS:
        wait_until(
            partial(is_loaded, bootstrap, group_id), f"the coordinator of {group_id} has loaded its groups"
        )
        assert committed_with_metadata(bootstrap, group_id, TOPIC) == (7, NOTE)
    produce_to_each(bootstrap, TOPIC, 2, 20)
    for group_id, protocol in GROUPS.items():
        assert describe(bootstrap, group_id).state.name == "EMPTY"
        member = members.start(bootstrap, group_id, TOPIC, protocol)
        wait_for_owners([member], partitions_of(TOPIC, 2))
        wait_for_records([member], 40)
        assert sorted(member.records) == [(TOPIC, p, n) for p in range(2) for n in range(20, 40)]
        member.close()


def is_loaded(bootstrap: str, group_id: str) -> bool:
    """librdkafka crashes now and then if a coordinator that loads its groups is asked for offsets."""
    group = {"group_id": group_id, "member_id": None, "member_epoch": -1, "topics": None}
    with contextlib.closing(KioClient(bootstrap, TIMEOUT_S)) as client:
        (answer,) = client.ask(OFFSET_FETCH, 9, groups=(group,), require_stable=False).groups
    return bool(answer.error_code == 0)


@pytest.mark.parametrize(("first", "second"), [("ottla", "kafka"), ("kafka", "ottla")])
def test_each_broker_continues_with_the_groups_of_the_other(
    tmp_path: Path, members: Members, first: str, second: str
) -> None:
    with BROKERS[first](tmp_path / "data", set=GROUP_BROKER) as broker:
        live(broker, members)
        assert broker.stop() in (0, 143)
    with BROKERS[second](tmp_path / "data", set=GROUP_BROKER) as broker:
        go_on(broker, members)


@pytest.mark.parametrize(("first", "second"), [("ottla", "kafka"), ("kafka", "ottla")])
def test_members_continue_when_the_other_broker_replaces_theirs(
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
