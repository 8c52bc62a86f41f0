"""Groups with clients that share no code with librdkafka or Java: kafka-python, aiokafka and kafkajs."""

import pytest
from tests.interop.brokers import RunningBroker
from tests.interop.foreign_members import ForeignMembers
from tests.interop.group_clients import (
    Members,
    all_records,
    committed,
    describe,
    partitions_of,
    produce_to_each,
    wait_for_owners,
    wait_for_records,
    wait_for_state,
)
from tests.interop.librdkafka import create_topic, wait_until

CLIENTS = ["kafka-python", "aiokafka", pytest.param("kafkajs", marks=pytest.mark.node)]
pytestmark = pytest.mark.contract


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def test_two_members_share_partitions_and_the_remaining_one_takes_over(
    group_broker: RunningBroker, foreign_members: ForeignMembers, client: str, topic_name: str, group_id: str
) -> None:
    bootstrap, wanted = group_broker.bootstrap, partitions_of(topic_name, 4)
    create_topic(bootstrap, topic_name, partitions=4)
    first = foreign_members.start(client, bootstrap, group_id, topic_name)
    wait_for_owners([first], wanted)
    second = foreign_members.start(client, bootstrap, group_id, topic_name)
    wait_for_owners([first, second], wanted, each=2)
    produce_to_each(bootstrap, topic_name, 4, 10)
    wait_for_records([first, second], 40)
    assert {len({record[1] for record in member.records}) for member in (first, second)} == {2}
    second.close()
    wait_for_owners([first], wanted)
    produce_to_each(bootstrap, topic_name, 4, 10)
    wait_for_records([first, second], 80)
    assert len(describe(bootstrap, group_id).members) == 1
    first.close()
    wait_for_state(bootstrap, group_id, "EMPTY")


def test_a_group_continues_from_its_committed_offsets(
    group_broker: RunningBroker, foreign_members: ForeignMembers, client: str, topic_name: str, group_id: str
) -> None:
    bootstrap = group_broker.bootstrap
    create_topic(bootstrap, topic_name)
    produce_to_each(bootstrap, topic_name, 1, 50)
    before = foreign_members.start(client, bootstrap, group_id, topic_name)
    wait_for_records([before], 50)
    wait_until(lambda: committed(bootstrap, group_id, topic_name) == 50, "everything is committed")
    before.close()
    produce_to_each(bootstrap, topic_name, 1, 50)
    after = foreign_members.start(client, bootstrap, group_id, topic_name)
    wait_for_records([after], 50)
    assert all_records([before, after]) == [(topic_name, 0, offset) for offset in range(100)]


def test_the_partitions_of_a_killed_member_are_taken_over_after_its_session(
    group_broker: RunningBroker, foreign_members: ForeignMembers, client: str, topic_name: str, group_id: str
) -> None:
    bootstrap, wanted = group_broker.bootstrap, partitions_of(topic_name, 4)
    create_topic(bootstrap, topic_name, partitions=4)
    stays = foreign_members.start(client, bootstrap, group_id, topic_name)
    dies = foreign_members.start(client, bootstrap, group_id, topic_name)
    wait_for_owners([stays, dies], wanted, each=2)
    produce_to_each(bootstrap, topic_name, 4, 10)
    wait_for_records([stays, dies], 40)
    dies.kill()
    produce_to_each(bootstrap, topic_name, 4, 10)
    wait_for_owners([stays], wanted)
    wait_for_records([stays, dies], 80)
    assert len(describe(bootstrap, group_id).members) == 1


def test_a_pattern_subscribes_to_the_topics_that_match(
    group_broker: RunningBroker, foreign_members: ForeignMembers, client: str, topic_name: str, group_id: str
) -> None:
    bootstrap = group_broker.bootstrap
    names = [f"{topic_name}-{n}" for n in (1, 2, "other")]
    for name in names:
        create_topic(bootstrap, name, partitions=2)
    matching = partitions_of(names[0], 2) | partitions_of(names[1], 2)
    member = foreign_members.start(client, bootstrap, group_id, pattern=rf"^{topic_name}-\d$")
    wait_for_owners([member], matching)
    if client != "kafkajs":  # it looks for topics only when it subscribes
        create_topic(bootstrap, f"{topic_name}-3", partitions=2)
        wait_for_owners([member], matching | partitions_of(f"{topic_name}-3", 2))


@pytest.mark.parametrize("earliest", [True, False])
def test_a_new_group_starts_at_auto_offset_reset(
    group_broker: RunningBroker,
    foreign_members: ForeignMembers,
    client: str,
    topic_name: str,
    group_id: str,
    earliest: bool,
) -> None:
    bootstrap = group_broker.bootstrap
    create_topic(bootstrap, topic_name)
    produce_to_each(bootstrap, topic_name, 1, 10)
    member = foreign_members.start(client, bootstrap, group_id, topic_name, earliest=earliest)
    wait_for_owners([member], partitions_of(topic_name, 1))

    def has_begun() -> bool:
        # The end offset that it has found is unknown: records are sent until one of them arrives.
        if not earliest:
            produce_to_each(bootstrap, topic_name, 1, 1)
        return bool(member.records)

    wait_until(has_begun, "the member has read a record")
    assert (member.records[0][2] == 0) if earliest else (member.records[0][2] >= 10)


def test_kafka_python_aiokafka_and_librdkafka_share_one_group(
    group_broker: RunningBroker,
    members: Members,
    foreign_members: ForeignMembers,
    topic_name: str,
    group_id: str,
) -> None:
    bootstrap, wanted = group_broker.bootstrap, partitions_of(topic_name, 6)
    create_topic(bootstrap, topic_name, partitions=6)
    group = [
        foreign_members.start("kafka-python", bootstrap, group_id, topic_name),
        foreign_members.start("aiokafka", bootstrap, group_id, topic_name),
        members.start(bootstrap, group_id, topic_name, "eager"),
    ]
    wait_for_owners(group, wanted, each=2)
    produce_to_each(bootstrap, topic_name, 6, 10)
    wait_for_records(group, 60)
    # The assignor that all of them support.
    assert wait_for_state(bootstrap, group_id, "STABLE").partition_assignor == "range"
