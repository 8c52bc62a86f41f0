"""The interface of a group of any type. Each type has a class: `ClassicGroup`, `ConsumerGroup`."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from ottla.core.coordination import Decision
from ottla.core.groups.commands import ListedGroup, OffsetCommit, OffsetFetch, TxnOffsetCommit
from ottla.protocol.group_records.records import GroupKey, GroupValue

GroupDecision = Decision[GroupKey, GroupValue]


class OffsetExpiry(NamedTuple):
    """KIP-211: an unused offset expires `offsets.retention.minutes` after the later of its commit and `since_ms`, or
    after its commit if that is None.
    """

    since_ms: int | None


class Group(Protocol):
    group_id: str

    @property
    def members(self) -> Mapping[str, object]:
        """By member id."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        ...

    def check_offset_commit(
        self, command: OffsetCommit | TxnOffsetCommit, decision: GroupDecision, now_ms: int
    ) -> None:
        """Raises KafkaError if this member may not commit now. May restart the member's session, as a heartbeat
        does.
        """
        ...

    def check_offset_fetch(self, command: OffsetFetch) -> None: ...

    def check_offset_delete(self) -> None:
        """Raises KafkaError if no offset of the group may be deleted now."""
        ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether offsets of `topic` are in use, and so neither expire nor may be deleted."""
        ...

    def offset_expiry(self) -> OffsetExpiry | None:
        """None if no offset of the group expires: it has members, and their subscriptions are unknown."""
        ...

    def check_delete(self) -> None:
        """Raises NON_EMPTY_GROUP if the group has members."""
        ...

    def write_tombstones(self, decision: GroupDecision) -> None:
        """Writes tombstones for the group, but not for its offsets."""
        ...

    def as_listed_group(self) -> ListedGroup: ...

    def validate(self) -> None: ...
