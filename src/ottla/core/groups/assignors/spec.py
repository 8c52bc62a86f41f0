"""The interface of an assignor (KIP-848): a pure function of the group and the topics."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol
from uuid import UUID

from ottla.core.groups.state import TopicInfo

# The target of every member, without topics of which the member has no partitions.
GroupAssignment = dict[str, dict[UUID, frozenset[int]]]


class MemberSpec(NamedTuple):
    """`topic_ids` are the subscribed topics, with regular expressions resolved; `assigned` is the present target."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    topic_ids: frozenset[UUID]
    assigned: Mapping[UUID, frozenset[int]]


class GroupSpec(NamedTuple):
    """`is_homogeneous`: all members subscribe to the same topics."""

    members: Mapping[str, MemberSpec]
    is_homogeneous: bool


class Assignor(Protocol):
    @property
    def name(self) -> str:
        """The name in requests and in `group.consumer.assignors`."""
        ...

    def assign(self, group: GroupSpec, topics: Mapping[UUID, TopicInfo]) -> GroupAssignment:
        """The new target of every member of the group. Ignores topic ids that are not in `topics`."""
        ...
