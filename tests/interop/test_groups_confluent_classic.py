"""librdkafka in groups of the classic protocol: the commit race, static members, manual offsets."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from tests.interop.brokers import RunningBroker
from tests.interop.group_clients import (
    GROUP_BROKER,
    PROTOCOLS,
    Members,
    committed,
    committed_with_metadata,
    describe,
    partitions_of,
    produce_to_each,
    wait_for_owners,
    wait_for_records,
    wait_for_state,
)
from tests.interop.librdkafka import create_topic, flush, take, wait_until

pytestmark = pytest.mark.contract


def consumer_of(bootstrap: str, group_id: str, protocol: str = "eager", **config: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group_id,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **PROTOCOLS[protocol],
            **{name.replace("_", "."): value for name, value in config.items()},
        }
    )


def commit_error(consumer: Consumer, offset: TopicPartition) -> int | None:
    try:
        (done,) = consumer.commit(offsets=[offset], asynchronous=False)
        return None if done.error is None else done.error.code()
    except KafkaException as refused:
        code: int = refused.args[0].code()
        return code


def test_a_commit_of_the_previous_generation_is_rejected_and_changes_nothing(
    group_broker: RunningBroker, members: Members, topic_name: str, group_id: str
) -> None:
    """The commit race: a slow member commits after another one has got its partition."""
    bootstrap = group_broker.bootstrap
    create_topic(bootstrap, topic_name)
    produce_to_each(bootstrap, topic_name, 1, 200)
    # It does not rejoin in time (max.poll.interval.ms is its rebalance timeout), but it is alive.
    slow = members.start(bootstrap, group_id, topic_name, "eager", max_poll_interval_ms=3500, commits=False)
    wait_for_records([slow], 200)
    assert slow.commit(topic_name, 0, 50) is None
    slow.tell("stop polling")
    slow.wait_for("stopped polling")
    new = members.start(bootstrap, group_id, topic_name, "eager", commits=False)
    wait_for_owners([new], partitions_of(topic_name, 1))
    assert slow.commit(topic_name, 0, 200) in ("ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID")
    assert committed(bootstrap, group_id, topic_name) == 50
    wait_for_records([new], 150)
    assert new.records == [(topic_name, 0, offset) for offset in range(50, 200)]
    assert new.commit(topic_name, 0, 200) is None
    assert committed(bootstrap, group_id, topic_name) == 200


def test_cooperative_members_keep_partitions_that_do_not_move(
    group_broker: RunningBroker, members: Members, topic_name: str, group_id: str
) -> None:
    bootstrap, wanted = group_broker.bootstrap, partitions_of(topic_name, 6)
    create_topic(bootstrap, topic_name, partitions=6)
    first = members.start(bootstrap, group_id, topic_name, "cooperative")
    wait_for_owners([first], wanted)
    second = members.start(bootstrap, group_id, topic_name, "cooperative")
    wait_for_owners([first, second], wanted, each=3)
    assert sum(len(event["partitions"]) for event in first.named("revoked")) == 3
    assert second.named("revoked") == []
    third = members.start(bootstrap, group_id, topic_name, "cooperative")
    wait_for_owners([first, second, third], wanted, each=2)
    moved = [len(event["partitions"]) for member in (first, second) for event in member.named("revoked")]
    assert sum(moved) == 3 + 2


def test_eager_members_revoke_everything_when_one_joins(
    group_broker: RunningBroker, members: Members, topic_name: str, group_id: str
) -> None:
    bootstrap, wanted = group_broker.bootstrap, partitions_of(topic_name, 6)
    create_topic(bootstrap, topic_name, partitions=6)
    first = members.start(bootstrap, group_id, topic_name, "eager")
    wait_for_owners([first], wanted)
    second = members.start(bootstrap, group_id, topic_name, "eager")
    wait_for_owners([first, second], wanted, each=3)
    assert [len(event["partitions"]) for event in first.named("revoked")] == [6]


def test_a_new_group_waits_for_more_members_before_its_first_rebalance(
    own_broker: Callable[..., RunningBroker], members: Members, topic_name: str, group_id: str
) -> None:
    """group.initial.rebalance.delay.ms: members that join together get their share in one rebalance."""
    broker = own_broker(set=GROUP_BROKER | {"group.initial.rebalance.delay.ms": "3000"})
    bootstrap = broker.bootstrap
    create_topic(bootstrap, topic_name, partitions=4)
    together = [members.start(bootstrap, group_id, topic_name, "eager") for _ in range(4)]
    wait_for_owners(together, partitions_of(topic_name, 4), each=1)
    assert [len(member.named("assigned")) for member in together] == [1] * 4
    assert [member.named("revoked") for member in together] == [[]] * 4


def test_a_static_member_that_rejoins_within_its_session_keeps_its_partitions_without_a_rebalance(
    group_broker: RunningBroker, members: Members, topic_name: str, group_id: str
) -> None:
    bootstrap, wanted = group_broker.bootstrap, partitions_of(topic_name, 4)
    create_topic(bootstrap, topic_name, partitions=4)
    long: dict[str, Any] = {"session_timeout_ms": 20_000}
    stays = members.start(bootstrap, group_id, topic_name, "eager", group_instance_id="stays", **long)
    wait_for_owners([stays], wanted)
    leaves = members.start(bootstrap, group_id, topic_name, "eager", group_instance_id="leaves", **long)
    wait_for_owners([stays, leaves], wanted, each=2)
    seen, share = len(stays.events), leaves.owned
    leaves.close()
    # Closing a static member does not leave the group (KIP-345).
    assert len(describe(bootstrap, group_id).members) == 2
    back = members.start(bootstrap, group_id, topic_name, "eager", group_instance_id="leaves", **long)
    wait_for_owners([back], share)
    produce_to_each(bootstrap, topic_name, 4, 5)
    wait_for_records([stays, back], 20)
    assert {event["event"] for event in stays.events[seen:]} <= {"record", "committed"}
    described = wait_for_state(bootstrap, group_id, "STABLE")
    assert sorted(member.group_instance_id or "" for member in described.members) == ["leaves", "stays"]


def test_of_two_members_with_one_instance_id_the_older_is_fenced(
    group_broker: RunningBroker, members: Members, topic_name: str, group_id: str
) -> None:
    bootstrap = group_broker.bootstrap
    create_topic(bootstrap, topic_name, partitions=2)
    older = members.start(bootstrap, group_id, topic_name, "eager", group_instance_id="one")
    wait_for_owners([older], partitions_of(topic_name, 2))
    newer = members.start(bootstrap, group_id, topic_name, "eager", group_instance_id="one")
    wait_for_owners([newer], partitions_of(topic_name, 2))
    wait_until(
        lambda: any(event["code"] in ("_FATAL", "FENCED_INSTANCE_ID") for event in older.named("error")),
        "the older member is fenced",
    )
    assert older.commit(topic_name, 0, 7) is not None
    assert committed(bootstrap, group_id, topic_name) is None
    assert newer.commit(topic_name, 0, 1) is None
    assert len(describe(bootstrap, group_id).members) == 1


def test_a_consumer_with_partitions_assigned_by_hand_commits_without_being_a_member(
    group_broker: RunningBroker, topic_name: str, group_id: str
) -> None:
    bootstrap = group_broker.bootstrap
    create_topic(bootstrap, topic_name)
    produce_to_each(bootstrap, topic_name, 1, 20)
    consumer = consumer_of(bootstrap, group_id)
    consumer.assign([TopicPartition(topic_name, 0)])
    assert len(take(consumer, 10)) == 10
    assert commit_error(consumer, TopicPartition(topic_name, 0, 10)) is None
    consumer.close()
    described = describe(bootstrap, group_id)
    assert (described.state.name, described.members) == ("EMPTY", [])
    # The next consumer continues where that one stopped.
    consumer = consumer_of(bootstrap, group_id)
    consumer.assign([TopicPartition(topic_name, 0)])
    assert [record.offset() for record in take(consumer, 10)] == list(range(10, 20))
    consumer.close()


def test_a_commit_without_membership_in_a_group_with_members_is_rejected(
    group_broker: RunningBroker, members: Members, topic_name: str, group_id: str
) -> None:
    bootstrap = group_broker.bootstrap
    create_topic(bootstrap, topic_name)
    member = members.start(bootstrap, group_id, topic_name, "eager")
    wait_for_owners([member], partitions_of(topic_name, 1))
    intruder = consumer_of(bootstrap, group_id)
    intruder.assign([TopicPartition(topic_name, 0)])
    error = commit_error(intruder, TopicPartition(topic_name, 0, 10))
    intruder.close()
    assert error in (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION)
    assert committed(bootstrap, group_id, topic_name) is None


def test_the_metadata_of_a_commit_is_kept(
    group_broker: RunningBroker, topic_name: str, group_id: str
) -> None:
    bootstrap = group_broker.bootstrap
    create_topic(bootstrap, topic_name)
    consumer = consumer_of(bootstrap, group_id)
    note = '{"file": "orders.csv", "line": 12, "näme": "ümlaut"}'
    assert commit_error(consumer, TopicPartition(topic_name, 0, 3, metadata=note)) is None
    assert committed_with_metadata(bootstrap, group_id, topic_name) == (3, note)
    assert commit_error(consumer, TopicPartition(topic_name, 0, 4)) is None
    consumer.close()
    assert committed_with_metadata(bootstrap, group_id, topic_name)[0] == 4


def test_metadata_that_is_too_long_is_rejected_and_the_previous_commit_stays(
    group_broker: RunningBroker, topic_name: str, group_id: str
) -> None:
    bootstrap = group_broker.bootstrap
    create_topic(bootstrap, topic_name)
    consumer = consumer_of(bootstrap, group_id)
    # One less than the limit, because the client also sends the terminating zero.
    assert commit_error(consumer, TopicPartition(topic_name, 0, 3, metadata="m" * 4095)) is None
    too_long = TopicPartition(topic_name, 0, 4, metadata="m" * 4096)
    assert commit_error(consumer, too_long) == KafkaError.OFFSET_METADATA_TOO_LARGE
    consumer.close()
    assert committed_with_metadata(bootstrap, group_id, topic_name) == (3, "m" * 4095)


def test_a_member_seeks_to_a_timestamp_and_the_group_continues_from_there(
    group_broker: RunningBroker, topic_name: str, group_id: str
) -> None:
    bootstrap, now_ms = group_broker.bootstrap, int(time.time() * 1000)
    create_topic(bootstrap, topic_name)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(100):
        producer.produce(topic_name, str(number), partition=0, timestamp=now_ms - 100_000 + number * 1000)
    flush(producer)
    consumer = consumer_of(bootstrap, group_id)
    consumer.subscribe([topic_name])
    # librdkafka can only seek in a partition that it fetches already.
    assert [record.offset() for record in take(consumer, 1)] == [0]
    (found,) = consumer.offsets_for_times([TopicPartition(topic_name, 0, now_ms - 60_000)], timeout=10)
    assert found.offset == 40
    consumer.seek(found)
    assert [record.offset() for record in take(consumer, 60)] == list(range(40, 100))
    consumer.commit(asynchronous=False)
    consumer.close()
    assert committed(bootstrap, group_id, topic_name) == 100
    # A new group reads everything again: it has no offsets of the other group.
    again = consumer_of(bootstrap, f"{group_id}-again")
    again.subscribe([topic_name])
    assert [record.offset() for record in take(again, 100)] == list(range(100))
    again.close()


def test_auto_commit_commits_what_was_processed_when_the_member_leaves(
    group_broker: RunningBroker, topic_name: str, group_id: str
) -> None:
    bootstrap = group_broker.bootstrap
    create_topic(bootstrap, topic_name)
    produce_to_each(bootstrap, topic_name, 1, 30)
    consumer = consumer_of(bootstrap, group_id, enable_auto_commit=True)
    consumer.subscribe([topic_name])
    take(consumer, 30)
    consumer.close()
    assert committed(bootstrap, group_id, topic_name) == 30


def test_members_without_a_common_assignment_strategy_cannot_form_a_group(
    group_broker: RunningBroker, members: Members, topic_name: str, group_id: str
) -> None:
    bootstrap = group_broker.bootstrap
    create_topic(bootstrap, topic_name, partitions=2)
    first = members.start(bootstrap, group_id, topic_name, "eager")
    wait_for_owners([first], partitions_of(topic_name, 2))
    events = len(first.events)
    other = members.start(
        bootstrap, group_id, topic_name, "eager", partition_assignment_strategy="roundrobin"
    )
    wait_until(
        lambda: any(event["code"] == "INCONSISTENT_GROUP_PROTOCOL" for event in other.named("error")),
        "the member with another strategy is refused",
    )
    assert other.owned == set()
    assert len(first.events) == events
    assert len(describe(bootstrap, group_id).members) == 1
