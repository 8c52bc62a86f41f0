"""The five causes of a rebalance, with librdkafka in each of its three modes: eager, cooperative, and KIP-848."""

import pytest
from confluent_kafka.admin import NewPartitions
from tests.interop.brokers import RunningBroker
from tests.interop.group_clients import (
    PROTOCOLS,
    Members,
    all_records,
    describe,
    partitions_of,
    produce_to_each,
    wait_for_owners,
    wait_for_records,
    wait_for_state,
)
from tests.interop.librdkafka import TIMEOUT_S, admin_of, create_topic

pytestmark = [pytest.mark.contract, pytest.mark.parametrize("protocol", PROTOCOLS)]


def test_a_member_that_joins_gets_its_share_and_returns_it_when_it_leaves(
    group_broker: RunningBroker, members: Members, topic_name: str, group_id: str, protocol: str
) -> None:
    bootstrap, wanted = group_broker.bootstrap, partitions_of(topic_name, 4)
    create_topic(bootstrap, topic_name, partitions=4)
    produce_to_each(bootstrap, topic_name, 4, 25)
    first = members.start(bootstrap, group_id, topic_name, protocol)
    wait_for_owners([first], wanted)
    wait_for_records([first], 100)
    second = members.start(bootstrap, group_id, topic_name, protocol)
    wait_for_owners([first, second], wanted, each=2)
    wait_for_state(bootstrap, group_id, "STABLE")
    produce_to_each(bootstrap, topic_name, 4, 25)
    wait_for_records([first, second], 200)
    second.close()
    wait_for_owners([first], wanted)
    produce_to_each(bootstrap, topic_name, 4, 25)
    wait_for_records([first, second], 300)
    assert all_records([first, second]) == [(topic_name, p, n) for p in range(4) for n in range(75)]
    first.close()
    assert wait_for_state(bootstrap, group_id, "EMPTY").members == []


def test_a_member_that_is_killed_loses_its_partitions_with_its_session(
    group_broker: RunningBroker, members: Members, topic_name: str, group_id: str, protocol: str
) -> None:
    bootstrap, wanted = group_broker.bootstrap, partitions_of(topic_name, 4)
    create_topic(bootstrap, topic_name, partitions=4)
    produce_to_each(bootstrap, topic_name, 4, 10)
    first, second = (members.start(bootstrap, group_id, topic_name, protocol) for _ in range(2))
    wait_for_owners([first, second], wanted, each=2)
    wait_for_records([first, second], 40)
    second.kill()
    produce_to_each(bootstrap, topic_name, 4, 10)
    wait_for_owners([first], wanted)
    wait_for_records([first, second], 80)
    (left,) = describe(bootstrap, group_id).members
    assert len(left.assignment.topic_partitions) == 4


def test_new_partitions_are_assigned_to_the_members(
    group_broker: RunningBroker, members: Members, topic_name: str, group_id: str, protocol: str
) -> None:
    bootstrap = group_broker.bootstrap
    create_topic(bootstrap, topic_name, partitions=2)
    both = [members.start(bootstrap, group_id, topic_name, protocol) for _ in range(2)]
    wait_for_owners(both, partitions_of(topic_name, 2), each=1)
    admin = admin_of(bootstrap)
    admin.create_partitions([NewPartitions(topic_name, 6)])[topic_name].result(TIMEOUT_S)
    wait_for_owners(both, partitions_of(topic_name, 6), each=3)
    produce_to_each(bootstrap, topic_name, 6, 5)
    wait_for_records(both, 30)


def test_a_deleted_topic_is_revoked_from_the_members(
    group_broker: RunningBroker, members: Members, topic_name: str, group_id: str, protocol: str
) -> None:
    bootstrap, other = group_broker.bootstrap, f"{topic_name}-other"
    for name in (topic_name, other):
        create_topic(bootstrap, name, partitions=2)
    both = [members.start(bootstrap, group_id, [topic_name, other], protocol) for _ in range(2)]
    wait_for_owners(both, partitions_of(topic_name, 2) | partitions_of(other, 2), each=2)
    admin = admin_of(bootstrap)
    admin.delete_topics([other])[other].result(TIMEOUT_S)
    wait_for_owners(both, partitions_of(topic_name, 2), each=1)
    produce_to_each(bootstrap, topic_name, 2, 5)
    wait_for_records(both, 10)


def test_a_new_topic_that_matches_the_pattern_is_assigned_to_the_members(
    group_broker: RunningBroker, members: Members, topic_name: str, group_id: str, protocol: str
) -> None:
    bootstrap, later = group_broker.bootstrap, f"{topic_name}-later"
    create_topic(bootstrap, topic_name, partitions=2)
    create_topic(bootstrap, f"not-{topic_name}", partitions=2)
    pattern = f"^{topic_name}.*"
    both = [members.start(bootstrap, group_id, pattern, protocol) for _ in range(2)]
    wait_for_owners(both, partitions_of(topic_name, 2), each=1)
    create_topic(bootstrap, later, partitions=2)
    wait_for_owners(both, partitions_of(topic_name, 2) | partitions_of(later, 2), each=2)
    produce_to_each(bootstrap, later, 2, 5)
    wait_for_records(both, 10)


def test_a_member_that_changes_its_subscription_gets_other_partitions(
    group_broker: RunningBroker, members: Members, topic_name: str, group_id: str, protocol: str
) -> None:
    bootstrap, other = group_broker.bootstrap, f"{topic_name}-other"
    for name in (topic_name, other):
        create_topic(bootstrap, name, partitions=2)
        produce_to_each(bootstrap, name, 2, 5)
    first, second = (members.start(bootstrap, group_id, topic_name, protocol) for _ in range(2))
    wait_for_owners([first, second], partitions_of(topic_name, 2), each=1)
    # The subscription keeps the old topic: a cooperative librdkafka that drops all topics at once does not rejoin.
    second.tell("subscribe", topics=[topic_name, other])
    wait_for_owners([first, second], partitions_of(topic_name, 2) | partitions_of(other, 2))
    assert partitions_of(other, 2) <= second.owned
    wait_for_records([first, second], 20)
