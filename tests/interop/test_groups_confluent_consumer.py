"""librdkafka in groups of the consumer protocol (KIP-848), and the migration from the classic protocol and back."""

import threading
import time
from collections import Counter

import pytest
from confluent_kafka import Producer
from tests.interop.brokers import RunningBroker
from tests.interop.group_clients import (
    MemberProcess,
    Members,
    committed,
    describe,
    partitions_of,
    produce_to_each,
    wait_for_owners,
    wait_for_records,
    wait_for_state,
)
from tests.interop.librdkafka import create_topic, flush, wait_until

pytestmark = pytest.mark.contract

PARTITIONS = 4


class Stream:
    """A producer thread that writes all the time, and counts the records of each partition."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 2})
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.sent = 0

    def __enter__(self) -> "Stream":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        flush(self._producer)

    def _run(self) -> None:
        while not self._stop.is_set():
            for partition in range(PARTITIONS):
                self._producer.produce(self._topic, b"value", partition=partition)
            self.sent += PARTITIONS
            self._producer.poll(0)
            time.sleep(0.02)


def wait_for_error(member: MemberProcess, text: str) -> None:
    """librdkafka reports the broker's fatal error as text."""
    wait_until(
        lambda: any(text in event["text"] for event in member.named("error")), f"{member} says {text!r}"
    )


def test_members_keep_partitions_that_do_not_move(
    group_broker: RunningBroker, members: Members, topic_name: str, group_id: str
) -> None:
    bootstrap, wanted = group_broker.bootstrap, partitions_of(topic_name, 6)
    create_topic(bootstrap, topic_name, partitions=6)
    first = members.start(bootstrap, group_id, topic_name, "consumer")
    wait_for_owners([first], wanted)
    second = members.start(bootstrap, group_id, topic_name, "consumer")
    wait_for_owners([first, second], wanted, each=3)
    assert sum(len(event["partitions"]) for event in first.named("revoked")) == 3
    third = members.start(bootstrap, group_id, topic_name, "consumer")
    wait_for_owners([first, second, third], wanted, each=2)
    moved = [len(event["partitions"]) for member in (first, second) for event in member.named("revoked")]
    assert sum(moved) == 3 + 2
    assert third.named("revoked") == []


def test_a_commit_of_a_member_that_was_removed_is_rejected_and_changes_nothing(
    group_broker: RunningBroker, members: Members, topic_name: str, group_id: str
) -> None:
    """The commit race in the consumer protocol: a slow member does not revoke its partition in time."""
    bootstrap = group_broker.bootstrap
    create_topic(bootstrap, topic_name)
    produce_to_each(bootstrap, topic_name, 1, 200)
    slow = members.start(
        bootstrap, group_id, topic_name, "consumer", max_poll_interval_ms=3500, commits=False
    )
    wait_for_records([slow], 200)
    assert slow.commit(topic_name, 0, 50) is None
    slow.tell("stop polling")
    slow.wait_for("stopped polling")
    new = members.start(bootstrap, group_id, topic_name, "consumer", commits=False)
    wait_for_owners([new], partitions_of(topic_name, 1))
    assert slow.commit(topic_name, 0, 200) is not None
    assert committed(bootstrap, group_id, topic_name) == 50
    wait_for_records([new], 150)
    assert new.records == [(topic_name, 0, offset) for offset in range(50, 200)]
    assert new.commit(topic_name, 0, 200) is None
    assert committed(bootstrap, group_id, topic_name) == 200


@pytest.mark.parametrize(
    ("assignor", "shares"), [("range", [{0, 1}, {2}]), ("uniform", None)], ids=["range", "uniform"]
)
def test_the_coordinator_uses_the_assignor_that_the_member_requests(
    group_broker: RunningBroker,
    members: Members,
    topic_name: str,
    group_id: str,
    assignor: str,
    shares: list[set[int]] | None,
) -> None:
    bootstrap, other = group_broker.bootstrap, f"{topic_name}-other"
    for name in (topic_name, other):
        create_topic(bootstrap, name, partitions=3)
    both = [
        members.start(bootstrap, group_id, [topic_name, other], "consumer", group_remote_assignor=assignor)
        for _ in range(2)
    ]
    wanted = partitions_of(topic_name, 3) | partitions_of(other, 3)
    wait_for_owners(both, wanted, each=3 if shares is None else None, at_least=1)
    if shares is not None:
        owned = [
            sorted(sorted(p for t, p in m.owned if t == name) for m in both) for name in (topic_name, other)
        ]
        assert owned == [sorted(map(sorted, shares))] * 2
    assert describe(bootstrap, group_id).partition_assignor == assignor


def test_an_assignor_that_the_coordinator_does_not_have_is_rejected(
    group_broker: RunningBroker, members: Members, topic_name: str, group_id: str
) -> None:
    create_topic(group_broker.bootstrap, topic_name)
    member = members.start(
        group_broker.bootstrap, group_id, topic_name, "consumer", group_remote_assignor="random"
    )
    wait_for_error(member, "The assignor or its version range is not supported")
    assert member.owned == set()


def test_an_invalid_regular_expression_is_rejected(
    group_broker: RunningBroker, members: Members, topic_name: str, group_id: str
) -> None:
    bootstrap = group_broker.bootstrap
    create_topic(bootstrap, topic_name)
    good = members.start(bootstrap, group_id, f"^{topic_name}", "consumer")
    wait_for_owners([good], partitions_of(topic_name, 1))
    # The client parses it as a POSIX expression, the broker as RE2, which has no back references.
    bad = members.start(bootstrap, group_id, r"^(a)\1", "consumer")
    wait_for_error(bad, "regular expression")
    assert bad.owned == set()
    assert len(describe(bootstrap, group_id).members) == 1
    assert good.named("revoked") == []


def test_a_static_member_that_rejoins_within_its_session_gets_the_same_partitions(
    group_broker: RunningBroker, members: Members, topic_name: str, group_id: str
) -> None:
    bootstrap, wanted = group_broker.bootstrap, partitions_of(topic_name, 4)
    create_topic(bootstrap, topic_name, partitions=4)
    stays = members.start(bootstrap, group_id, topic_name, "consumer", group_instance_id="stays")
    wait_for_owners([stays], wanted)
    leaves = members.start(bootstrap, group_id, topic_name, "consumer", group_instance_id="leaves")
    wait_for_owners([stays, leaves], wanted, each=2)
    seen, share = len(stays.events), leaves.owned
    leaves.close()
    back = members.start(bootstrap, group_id, topic_name, "consumer", group_instance_id="leaves")
    wait_for_owners([back], share)
    produce_to_each(bootstrap, topic_name, 4, 5)
    wait_for_records([stays, back], 20)
    assert {event["event"] for event in stays.events[seen:]} <= {"record", "committed"}


def test_a_second_member_with_the_same_instance_id_is_rejected_while_the_first_lives(
    group_broker: RunningBroker, members: Members, topic_name: str, group_id: str
) -> None:
    bootstrap = group_broker.bootstrap
    create_topic(bootstrap, topic_name, partitions=2)
    first = members.start(bootstrap, group_id, topic_name, "consumer", group_instance_id="one")
    wait_for_owners([first], partitions_of(topic_name, 2))
    second = members.start(bootstrap, group_id, topic_name, "consumer", group_instance_id="one")
    wait_for_error(second, "The instance ID is still used by another member")
    assert second.owned == set()
    assert first.commit(topic_name, 0, 1) is None
    assert len(describe(bootstrap, group_id).members) == 1


@pytest.mark.slow
@pytest.mark.parametrize("classic", ["eager", "cooperative"])
def test_a_group_moves_member_by_member_to_the_consumer_protocol_and_back_and_loses_no_record(
    group_broker: RunningBroker, members: Members, topic_name: str, group_id: str, classic: str
) -> None:
    if (group_broker.name, classic) == ("kafka", "cooperative"):
        pytest.skip(
            "Kafka refuses where librdkafka's sticky assignor has left data of its own in the assignment"
        )
    bootstrap, wanted = group_broker.bootstrap, partitions_of(topic_name, PARTITIONS)
    create_topic(bootstrap, topic_name, partitions=PARTITIONS)
    everybody: list[MemberProcess] = []

    def start(protocol: str) -> MemberProcess:
        everybody.append(members.start(bootstrap, group_id, topic_name, protocol))
        return everybody[-1]

    def group_type() -> str:
        return wait_for_state(bootstrap, group_id, "STABLE").type.name

    with Stream(bootstrap, topic_name) as stream:
        now = [start(classic), start(classic)]
        wait_for_owners(now, wanted, each=2)
        assert group_type() == "CLASSIC"
        for protocol, while_mixed, after in (
            ("consumer", "CONSUMER", "CONSUMER"),
            (classic, "CONSUMER", "CLASSIC"),
        ):
            for _ in range(2):
                now.append(start(protocol))
                wait_for_owners(now, wanted, at_least=1)
                assert group_type() == while_mixed
                now.pop(0).close()
                wait_for_owners(now, wanted)
            assert group_type() == after
    wait_for_records(everybody, stream.sent)
    times = Counter(record for member in everybody for record in member.records)
    assert len(times) == stream.sent
    assert set(times.values()) == {1}
