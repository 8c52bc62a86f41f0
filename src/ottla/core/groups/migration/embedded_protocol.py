"""What a classic member in a consumer group says and is told in the consumer protocol's embedded messages."""

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
    """In the version of the member's own subscription. Topics that are gone have no name, and are left out."""
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
    """What the member says it owns. One that rebalances eagerly has given up everything before it joins."""
    owned = []
    for name, partitions in subscription.owned_partitions:
        topic = topics.find(name)
        if topic is not None:
            owned.append(TopicIdPartitions(topic.topic_id, partitions))
    return tuple(owned)
