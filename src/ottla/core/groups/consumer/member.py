"""A member of a consumer group: its metadata and its current assignment (KIP-848).

Members are immutable: a record makes a new object. Metadata and current assignment are separate records, so that a
change of one does not write the other.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from uuid import UUID

from ottla.core.groups.commands import TopicIdPartitions
from ottla.protocol.group_records.records import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    CurrentTopicPartitions,
)

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2

# For each topic, its partitions and the epoch at which each was assigned to the member (KIP-1251).
Assigned = Mapping[UUID, Mapping[int, int]]
_NOTHING_ASSIGNED: Assigned = {}


class MemberState(IntEnum):
    """The progress of the member towards its target. UNKNOWN: a state that a later release has written."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127

    @classmethod
    def of(cls, value: int) -> "MemberState":
        return cls(value) if value in (0, 1, 2) else cls.UNKNOWN


_NO_METADATA = ConsumerGroupMemberMetadataValue(
    instance_id=None,
    rack_id=None,
    client_id="",
    client_host="",
    subscribed_topic_names=(),
    subscribed_topic_regex="",  # Kafka's value for none
    server_assignor=None,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMember:
    """`assigned` has the partitions that the member may consume, `pending_revocation` those that it must revoke."""

    member_id: str
    metadata: ConsumerGroupMemberMetadataValue = _NO_METADATA
    member_epoch: int = JOIN_EPOCH
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Assigned = field(default_factory=dict)
    pending_revocation: Assigned = field(default_factory=dict)

    @property
    def instance_id(self) -> str | None:
        return self.metadata.instance_id

    @property
    def regex(self) -> str | None:
        """None if the member has no regular expression, or an empty one."""
        return self.metadata.subscribed_topic_regex or None

    @property
    def classic_member_metadata(self) -> ClassicMemberMetadata | None:
        return self.metadata.classic_member_metadata

    @property
    def uses_classic_protocol(self) -> bool:
        return self.metadata.classic_member_metadata is not None

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch

    def assignment_epoch_of(self, topic_id: UUID, partition: int) -> int | None:
        """None if the partition is not assigned to the member."""
        epoch = self.assigned.get(topic_id, {}).get(partition)
        return self.pending_revocation.get(topic_id, {}).get(partition) if epoch is None else epoch

    def has_all(self, owned: Iterable[TopicIdPartitions]) -> bool:
        """Whether all partitions in `owned` are assigned to the member."""
        return all(
            self.assigned.get(topic_id, {}).keys() >= set(partitions)
            for topic_id, partitions in owned
            if partitions
        )

    def at_epoch(
        self,
        epoch: int,
        state: MemberState,
        assigned: Assigned,
        pending_revocation: Assigned = _NOTHING_ASSIGNED,
    ) -> "ConsumerGroupMember":
        """Keeps the previous epoch, because the member may miss the response with the new one."""
        return replace(
            self,
            member_epoch=epoch,
            previous_member_epoch=self.member_epoch,
            state=state,
            assigned=assigned,
            pending_revocation=pending_revocation,
        )

    def after_static_leave(self) -> "ConsumerGroupMember":
        """A static member that has left temporarily keeps its partitions.

        Their epochs become 0, because the next incarnation starts at epoch 0.
        """
        return replace(
            self,
            member_epoch=LEAVE_STATIC_EPOCH,
            assigned={
                topic_id: dict.fromkeys(partitions, 0) for topic_id, partitions in self.assigned.items()
            },
            pending_revocation=_NOTHING_ASSIGNED,
        )

    def replaced_by(self, member_id: str) -> "ConsumerGroupMember":
        """The same static member with the member id of its new incarnation."""
        return replace(self, member_id=member_id, member_epoch=JOIN_EPOCH, previous_member_epoch=JOIN_EPOCH)

    def with_metadata(self, metadata: ConsumerGroupMemberMetadataValue) -> "ConsumerGroupMember":
        return replace(self, metadata=metadata)

    def with_current_assignment(
        self, value: ConsumerGroupCurrentMemberAssignmentValue
    ) -> "ConsumerGroupMember":
        return replace(
            self,
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=MemberState.of(value.state),
            assigned=_assigned_of(value.assigned_partitions, value.member_epoch),
            pending_revocation=_assigned_of(value.partitions_pending_revocation, value.member_epoch),
        )

    def without_current_assignment(self) -> "ConsumerGroupMember":
        return replace(
            self,
            member_epoch=LEAVE_EPOCH,
            previous_member_epoch=LEAVE_EPOCH,
            assigned=_NOTHING_ASSIGNED,
            pending_revocation=_NOTHING_ASSIGNED,
        )

    def current_assignment_value(self) -> ConsumerGroupCurrentMemberAssignmentValue:
        return ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.member_epoch,
            previous_member_epoch=self.previous_member_epoch,
            state=int(self.state),
            assigned_partitions=_topic_partitions_of(self.assigned),
            partitions_pending_revocation=_topic_partitions_of(self.pending_revocation),
        )


def response_assignment(assigned: Assigned) -> tuple[TopicIdPartitions, ...]:
    return tuple(
        TopicIdPartitions(topic_id, tuple(sorted(of_topic))) for topic_id, of_topic in assigned.items()
    )


def _assigned_of(topics: tuple[CurrentTopicPartitions, ...], member_epoch: int) -> Assigned:
    """Releases before KIP-1251 wrote no epochs per partition: the member epoch is the upper bound."""
    return {
        topic.topic_id: (
            dict(zip(topic.partitions, topic.assignment_epochs, strict=True))
            if topic.assignment_epochs is not None and len(topic.assignment_epochs) == len(topic.partitions)
            else dict.fromkeys(topic.partitions, member_epoch)
        )
        for topic in topics
    }


def _topic_partitions_of(assigned: Assigned) -> tuple[CurrentTopicPartitions, ...]:
    return tuple(
        CurrentTopicPartitions(
            topic_id=topic_id,
            partitions=(partitions := tuple(sorted(of_topic))),
            assignment_epochs=tuple(of_topic[partition] for partition in partitions),
        )
        for topic_id, of_topic in assigned.items()
    )
