"""What the shard asks of a group, whatever its type. One class per type: `ClassicGroup`, `ConsumerGroup`."""

from typing import NamedTuple, Protocol

from ottla.core.coordination import Decision
from ottla.core.groups.commands import ListedGroup, OffsetCommit, OffsetFetch, TxnOffsetCommit
from ottla.protocol.group_records.records import GroupKey, GroupValue

GroupDecision = Decision[GroupKey, GroupValue]


class OffsetExpiry(NamedTuple):
    """KIP-211: an offset expires `offsets.retention` after the later of its commit and `since_ms`, in groups and for
    topics that nobody uses. `since_ms` None: after the commit. A group that is in use has no OffsetExpiry.
    """

    since_ms: int | None


class Group(Protocol):
    group_id: str

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        ...

    def check_offset_commit(
        self, command: OffsetCommit | TxnOffsetCommit, decision: GroupDecision, now_ms: int
    ) -> None:
        """Raises KafkaError where this member may not commit now. A commit is a sign of life, as a heartbeat is."""
        ...

    def check_offset_fetch(self, command: OffsetFetch) -> None: ...

    def check_offset_delete(self) -> None:
        """Raises KafkaError where no offset may be deleted now, whatever the topic."""
        ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether offsets of `topic` are in use, and so neither expire nor may be deleted."""
        ...

    def offset_expiry(self) -> OffsetExpiry | None:
        """None: nothing of this group expires, as its members are there and say not what they read."""
        ...

    def check_delete(self) -> None:
        """Raises KafkaError where the group cannot be deleted: it has members (NON_EMPTY_GROUP)."""
        ...

    def write_tombstones(self, decision: GroupDecision) -> None:
        """Writes away the group itself (its offsets are written away by the offsets' own machine)."""
        ...

    def listed(self) -> ListedGroup: ...

    def validate(self) -> None: ...
