"""kafka-python: its group administration, and its consumer. Its members are in `test_groups_other_clients`."""

from collections.abc import Iterator

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import MemberToRemove, OffsetSpec
from kafka.errors import GroupIdNotFoundError, NoError, UnknownMemberIdError
from kafka.structs import OffsetAndMetadata
from tests.interop.brokers import RunningBroker
from tests.interop.foreign_members import ForeignMembers
from tests.interop.group_clients import partitions_of, produce_to_each, wait_for_owners, wait_for_state
from tests.interop.librdkafka import create_topic, wait_until

pytestmark = pytest.mark.contract


@pytest.fixture
def admin(group_broker: RunningBroker) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=group_broker.bootstrap)
    yield client
    client.close()


def test_a_group_with_members_is_listed_and_described(
    group_broker: RunningBroker,
    admin: KafkaAdminClient,
    foreign_members: ForeignMembers,
    topic_name: str,
    group_id: str,
) -> None:
    bootstrap = group_broker.bootstrap
    create_topic(bootstrap, topic_name, partitions=2)
    members = [foreign_members.start("kafka-python", bootstrap, group_id, topic_name) for _ in range(2)]
    wait_for_owners(members, partitions_of(topic_name, 2), each=1)
    wait_for_state(bootstrap, group_id, "STABLE")
    (listed,) = [g for g in admin.list_groups(states_filter=["Stable"]) if g["group_id"] == group_id]
    assert (listed["protocol_type"], listed["group_state"], listed["group_type"]) == (
        "consumer",
        "Stable",
        "classic",
    )
    assert group_id not in {g["group_id"] for g in admin.list_groups(types_filter=["consumer"])}
    group = admin.describe_groups([group_id])[group_id]
    assert (group["error"], group["group_state"], group["protocol_data"]) == (None, "Stable", "range")
    assigned = [
        (topic["topic"], partition)
        for member in group["members"]
        for topic in member["member_assignment"]["assigned_partitions"]
        for partition in topic["partitions"]
    ]
    assert set(assigned) == partitions_of(topic_name, 2)
    assert len(assigned) == 2
    assert {member["client_host"] for member in group["members"]} == {"/127.0.0.1"}


def test_a_member_is_removed_by_the_admin_and_the_other_takes_over(
    group_broker: RunningBroker,
    admin: KafkaAdminClient,
    foreign_members: ForeignMembers,
    topic_name: str,
    group_id: str,
) -> None:
    bootstrap = group_broker.bootstrap
    create_topic(bootstrap, topic_name, partitions=2)
    member = foreign_members.start("kafka-python", bootstrap, group_id, topic_name)
    wait_for_owners([member], partitions_of(topic_name, 2))
    (member_id,) = [m["member_id"] for m in admin.describe_groups([group_id])[group_id]["members"]]
    done = admin.remove_group_members(
        group_id, [MemberToRemove(member_id=member_id), MemberToRemove("nobody")]
    )
    assert done == {member_id: NoError, "nobody": UnknownMemberIdError}
    # A member that was removed rejoins with another id.
    wait_until(
        lambda: (
            [
                m["member_id"]
                for m in admin.describe_groups([group_id])[group_id]["members"]
                if m["member_id"] != member_id
            ]
            != []
        ),
        "the member is back",
    )


def test_offsets_are_altered_reset_listed_and_deleted(
    group_broker: RunningBroker, admin: KafkaAdminClient, topic_name: str, group_id: str
) -> None:
    create_topic(group_broker.bootstrap, topic_name, partitions=2)
    produce_to_each(group_broker.bootstrap, topic_name, 2, 10)
    first, second = TopicPartition(topic_name, 0), TopicPartition(topic_name, 1)
    wanted = {first: OffsetAndMetadata(3, "a note", None), second: OffsetAndMetadata(4, "", None)}
    assert admin.alter_group_offsets(group_id, wanted) == {first: NoError, second: NoError}
    found = admin.list_group_offsets(group_id)[group_id]
    assert {tp: (at.offset, at.metadata) for tp, at in found.items()} == {
        first: (3, "a note"),
        second: (4, ""),
    }
    reset = admin.reset_group_offsets(group_id, {first: OffsetSpec.LATEST, second: 99})
    assert {tp: (line["error"], line["offset"]) for tp, line in reset.items()} == {
        first: (NoError, 10),
        second: (NoError, 10),
    }
    assert admin.delete_group_offsets(group_id, [first]) == {first: NoError}
    assert set(admin.list_group_offsets(group_id)[group_id]) == {second}
    assert admin.delete_groups([group_id, f"{group_id}-none"]) == {
        group_id: "OK",
        f"{group_id}-none": "GroupIdNotFoundError",
    }
    with pytest.raises(GroupIdNotFoundError):
        admin.delete_group_offsets(group_id, [first])


def test_a_consumer_reads_the_committed_offsets_of_its_group(
    group_broker: RunningBroker, topic_name: str, group_id: str
) -> None:
    create_topic(group_broker.bootstrap, topic_name)
    partition = TopicPartition(topic_name, 0)
    consumer = KafkaConsumer(
        bootstrap_servers=group_broker.bootstrap, group_id=group_id, enable_auto_commit=False
    )
    try:
        consumer.assign([partition])
        assert consumer.committed(partition) is None
        consumer.commit({partition: OffsetAndMetadata(7, "seven", -1)})
        found = consumer.committed(partition, metadata=True)
        assert (found.offset, found.metadata) == (7, "seven")
    finally:
        consumer.close(autocommit=False)
