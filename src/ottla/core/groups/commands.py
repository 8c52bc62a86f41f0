"""The commands of a group coordinator shard and their responses.

A command that is rejected as a whole raises KafkaError. A response has an error code only if the protocol has other
fields beside it, or one code per member or partition. Timers are commands too; they are defined in the machine that
starts them.
"""

import uuid
from dataclasses import dataclass
from typing import NamedTuple

from ottla.core.coordination import Command, WritingCommand
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition

NO_GENERATION = -1


class Client(NamedTuple):
    """The client id and the address of a request ("/127.0.0.1"), for DescribeGroups."""

    client_id: str
    client_host: str


# -- the classic protocol


class JoinGroupMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinGroupResponse(NamedTuple):
    error_code: ErrorCode
    member_id: str
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinGroupMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroup(WritingCommand[JoinGroupResponse]):
    """`new_member_id` is used if the member has no id yet. `require_known_member_id` (from v4, KIP-394): a dynamic
    member must join again with the new id. `can_skip_assignment`: from v9 (KIP-814).
    """

    group_id: str
    member_id: str
    new_member_id: str
    client: Client
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    group_instance_id: str | None = None
    require_known_member_id: bool = False
    can_skip_assignment: bool = False
    reason: str | None = None


class SyncGroupResponse(NamedTuple):
    assignment: bytes
    protocol_type: str | None = None
    protocol_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroup(Command[SyncGroupResponse]):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()

    @property
    def writes(self) -> bool:
        return bool(self.assignments)  # the leader brings them


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat(Command[None]):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None


class LeavingMember(NamedTuple):
    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


class MemberLeft(NamedTuple):
    member_id: str
    group_instance_id: str | None
    error_code: ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroup(WritingCommand[tuple[MemberLeft, ...]]):
    group_id: str
    members: tuple[LeavingMember, ...]


# -- the consumer protocol


class TopicIdPartitions(NamedTuple):
    topic_id: uuid.UUID
    partitions: tuple[int, ...]


class ConsumerGroupHeartbeatResponse(NamedTuple):
    """`assignment` is None if it has not changed."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: tuple[TopicIdPartitions, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupHeartbeat(Command[ConsumerGroupHeartbeatResponse]):
    """A field of None is unchanged. A member that joins (epoch 0) sends all fields. Before v1 the coordinator generates
    the member id; then `member_id` is the generated one.
    """

    group_id: str
    member_id: str
    member_epoch: int
    client: Client
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: tuple[str, ...] | None = None
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    topic_partitions: tuple[TopicIdPartitions, ...] | None = None

    @property
    def writes(self) -> bool:
        return self.member_epoch <= 0  # the member joins or leaves


# -- offsets


class OffsetToCommit(NamedTuple):
    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str | None = None
    topic_id: uuid.UUID | None = None


class PartitionError(NamedTuple):
    topic: str
    partition: int
    error_code: ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommit(WritingCommand[tuple[PartitionError, ...]]):
    """The response is in the order of `offsets`. The handler has checked that the topics exist.

    `supports_stale_member_epoch`: from v9 on a member of the consumer protocol may get STALE_MEMBER_EPOCH.
    `retention_ms`: v2 to v4, if the client sent it.
    """

    group_id: str
    member_id: str
    group_instance_id: str | None
    generation_or_member_epoch: int
    offsets: tuple[OffsetToCommit, ...]
    supports_stale_member_epoch: bool = True
    retention_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommit(WritingCommand[tuple[PartitionError, ...]]):
    """KIP-98, with the check of the group member of KIP-447. The records belong to the producer's transaction."""

    group_id: str
    producer_id: int
    producer_epoch: int
    member_id: str
    group_instance_id: str | None
    generation_id: int
    offsets: tuple[OffsetToCommit, ...]


class CommittedOffset(NamedTuple):
    """The offset is -1 if none is committed. The only error is UNSTABLE_OFFSET_COMMIT."""

    topic: str
    partition: int
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    topic_id: uuid.UUID | None = None
    error_code: ErrorCode = ErrorCode.none


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetch(Command[tuple[CommittedOffset, ...]]):
    """The response is in the order of `partitions`. None: all committed offsets. KIP-447: `require_stable`."""

    group_id: str
    partitions: tuple[TopicPartition, ...] | None
    member_id: str | None = None
    member_epoch: int = -1
    require_stable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDelete(WritingCommand[tuple[PartitionError, ...]]):
    """KIP-496."""

    group_id: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletePartitionOffsets(Command[None]):
    """Deletes the offsets of deleted topics in all groups of the shard."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class ExpireOffsets(Command[None]):
    """Runs every `offsets.retention.check.interval.ms`."""


# -- administration


class ListedGroup(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    group_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListGroups(Command[tuple[ListedGroup, ...]]):
    """Filters in lower case (KIP-518, KIP-848). An empty filter matches all."""

    states: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()


class DescribedMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    client: Client
    metadata: bytes
    assignment: bytes


class DescribedGroup(NamedTuple):
    group_id: str
    state: str
    protocol_type: str
    protocol_data: str
    members: tuple[DescribedMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeGroup(Command[DescribedGroup]):
    """GROUP_ID_NOT_FOUND if the group does not exist or is not a classic group (KIP-1043)."""

    group_id: str


class ConsumerAssignment(NamedTuple):
    topic_id: uuid.UUID
    topic: str
    partitions: tuple[int, ...]


class DescribedConsumer(NamedTuple):
    """`member_type`: 1 for the consumer protocol, 0 for the classic protocol (KIP-1099)."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client: Client
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str | None
    assignment: tuple[ConsumerAssignment, ...]
    target_assignment: tuple[ConsumerAssignment, ...]
    member_type: int


class DescribedConsumerGroup(NamedTuple):
    group_id: str
    state: str
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    members: tuple[DescribedConsumer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConsumerGroup(Command[DescribedConsumerGroup]):
    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroup(WritingCommand[None]):
    """Deletes an empty group and its committed offsets."""

    group_id: str
