"""The embedded protocol of classic members in a consumer group: their assignment and owned partitions."""

from collections.abc import Iterable, Mapping
from uuid import UUID

from ottla.core.groups.commands import TopicIdPartitions
from ottla.core.groups.consumer.member import ConsumerGroupMember
from ottla.core.groups.consumer_protocol import (
    ConsumerProtocolSubscription,
    read_subscription,
    write_assignment,
)
from ottla.core.groups.state import ClusterTopics


def embedded_assignment(
    member: ConsumerGroupMember, partitions: Mapping[UUID, Iterable[int]], topics: ClusterTopics
) -> bytes:
    """In the version of the member's own subscription. Without deleted topics, which have no name."""
    assert member.classic_member_metadata is not None
    subscription = read_subscription(member.classic_member_metadata.supported_protocols[0].metadata)
    assert subscription is not None, f"member {member.member_id} was admitted with a broken subscription"
    named: dict[str, tuple[int, ...]] = {}
    for topic_id, indexes in partitions.items():
        topic = topics.find_by_id(topic_id)
        if topic is not None:
            named[topic.name] = tuple(sorted(indexes))
    return write_assignment(subscription.version, named)


def owned_partitions(
    subscription: ConsumerProtocolSubscription, topics: ClusterTopics
) -> tuple[TopicIdPartitions, ...]:
    """The owned partitions that the member reports. A member with eager rebalancing owns none when it joins."""
    owned = []
    for name, partitions in subscription.owned_partitions:
        topic = topics.find(name)
        if topic is not None:
            owned.append(TopicIdPartitions(topic.topic_id, partitions))
    return tuple(owned)
