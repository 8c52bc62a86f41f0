"""aiokafka: its group administration, and its consumer. Its members are in `test_groups_other_clients`."""

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import OffsetAndMetadata
from tests.interop.brokers import RunningBroker
from tests.interop.foreign_members import ForeignMembers
from tests.interop.group_clients import partitions_of, wait_for_owners, wait_for_state
from tests.interop.librdkafka import create_topic

pytestmark = pytest.mark.contract

TIMEOUT_S = 30


def test_a_group_with_members_is_found_listed_and_described(
    group_broker: RunningBroker, foreign_members: ForeignMembers, topic_name: str, group_id: str
) -> None:
    bootstrap = group_broker.bootstrap
    create_topic(bootstrap, topic_name, partitions=2)
    members = [foreign_members.start("aiokafka", bootstrap, group_id, topic_name) for _ in range(2)]
    wait_for_owners(members, partitions_of(topic_name, 2), each=1)
    wait_for_state(bootstrap, group_id, "STABLE")

    async def check() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            assert await admin.find_coordinator(group_id) == 1
            listed = {group[0]: group[1] for group in await admin.list_consumer_groups()}
            assert listed[group_id] == "consumer"
            (response,) = await admin.describe_consumer_groups([group_id])
            ((error, name, state, kind, assignor, described, *_),) = response.groups
            assert (error, name, state, kind, assignor) == (0, group_id, "Stable", "consumer", "range")
            assert len(described) == 2
        finally:
            await admin.close()

    asyncio.run(asyncio.wait_for(check(), TIMEOUT_S))


def test_offsets_are_committed_with_their_metadata_and_listed(
    group_broker: RunningBroker, topic_name: str, group_id: str
) -> None:
    bootstrap = group_broker.bootstrap
    create_topic(bootstrap, topic_name, partitions=2)
    partition, other = TopicPartition(topic_name, 0), TopicPartition(topic_name, 1)

    async def check() -> None:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group_id, enable_auto_commit=False)
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await consumer.start()
        await admin.start()
        try:
            consumer.assign([partition])
            assert await consumer.committed(partition) is None
            await consumer.commit({partition: OffsetAndMetadata(7, "seven")})
            assert await consumer.committed(partition) == 7
            found = await admin.list_consumer_group_offsets(group_id)
            assert {tp: (at.offset, at.metadata) for tp, at in found.items()} == {partition: (7, "seven")}
            asked = await admin.list_consumer_group_offsets(group_id, partitions=[other])
            assert asked[other].offset == -1
        finally:
            await admin.close()
            await consumer.stop()

    asyncio.run(asyncio.wait_for(check(), TIMEOUT_S))
