"""What an assignor is given and what it gives back (KIP-848): pure functions of the group and the topics."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol
from uuid import UUID

from ottla.core.groups.topics import TopicInfo

# The target of every member; a topic of which the member has nothing is left out.
GroupAssignment = dict[str, dict[UUID, frozenset[int]]]


class MemberSpec(NamedTuple):
    """`topic_ids` is what the member is subscribed to, regular expressions resolved; `assigned` its target now."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    topic_ids: frozenset[UUID]
    assigned: Mapping[UUID, frozenset[int]]


class GroupSpec(NamedTuple):
    """`is_homogeneous`: all members are subscribed to the same topics."""

    members: Mapping[str, MemberSpec]
    is_homogeneous: bool


class Assignor(Protocol):
    @property
    def name(self) -> str:
        """As members ask for it, and as the group's configs list it."""
        ...

    def assign(self, group: GroupSpec, topics: Mapping[UUID, TopicInfo]) -> GroupAssignment:
        """The new target of every member of the group. A topic id that is not in `topics` is left out."""
        ...
