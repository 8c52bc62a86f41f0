"""What a shard of the group coordinator can be asked, and what it answers.

Refusals of the whole are KafkaErrors; a response has an error code only where the protocol wants other fields beside
it, or one per part. Timers are commands too; those stand with the machine that starts them.
"""

import uuid
from dataclasses import dataclass
from typing import NamedTuple

from ottla.core.coordination import Command
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition

NO_GENERATION = -1


class Client(NamedTuple):
    """Who speaks, for DescribeGroups: the client id of the request and the address that it came from ("/127.0.0.1")."""

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
class JoinGroup(Command[JoinGroupResponse]):
    """`new_member_id` is the id to give where the member has none; it is the group instance id or the client id, a dash
    and a UUID. KIP-394: from v4 on (`require_known_member_id`) a dynamic member has to join again with it.
    `can_skip_assignment` from v9 on (KIP-814).
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
class LeaveGroup(Command[tuple[MemberLeft, ...]]):
    group_id: str
    members: tuple[LeavingMember, ...]


# -- the consumer protocol


class TopicIdPartitions(NamedTuple):
    topic_id: uuid.UUID
    partitions: tuple[int, ...]


class ConsumerGroupHeartbeatResponse(NamedTuple):
    """`assignment` is None where the member need not be told it again."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: tuple[TopicIdPartitions, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupHeartbeat(Command[ConsumerGroupHeartbeatResponse]):
    """None: as last told. A member that joins (epoch 0) tells everything. Before v1 the coordinator makes the member's
    id up (`member_id` is then the made-up one).
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
class OffsetCommit(Command[tuple[PartitionError, ...]]):
    """Answered in the order of `offsets`. The shell has checked that the topics exist.

    `can_stale_member_epoch`: from v9 on a member of the consumer protocol is told STALE_MEMBER_EPOCH.
    `retention_ms` is that of v2 to v4, where the client gave one.
    """

    group_id: str
    member_id: str
    group_instance_id: str | None
    generation_or_member_epoch: int
    offsets: tuple[OffsetToCommit, ...]
    can_stale_member_epoch: bool = True
    retention_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommit(Command[tuple[PartitionError, ...]]):
    """KIP-98, with the group's check of KIP-447. The records are written under the producer's id."""

    group_id: str
    producer_id: int
    producer_epoch: int
    member_id: str
    group_instance_id: str | None
    generation_id: int
    offsets: tuple[OffsetToCommit, ...]


class CommittedOffset(NamedTuple):
    """An offset of -1: none is committed. An error only where it is not known yet (UNSTABLE_OFFSET_COMMIT)."""

    topic: str
    partition: int
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    topic_id: uuid.UUID | None = None
    error_code: ErrorCode = ErrorCode.none


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetch(Command[tuple[CommittedOffset, ...]]):
    """Answered in the order of `partitions`; None asks for all that are committed. KIP-447: `require_stable`."""

    group_id: str
    partitions: tuple[TopicPartition, ...] | None
    member_id: str | None = None
    member_epoch: int = -1
    require_stable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDelete(Command[tuple[PartitionError, ...]]):
    """KIP-496."""

    group_id: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletePartitionOffsets(Command[None]):
    """These topics are gone: so are the offsets committed for them, in every group of the shard."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class ExpireOffsets(Command[None]):
    """A timer's, again and again (`offsets.retention.check.interval.ms`)."""


# -- administration


class ListedGroup(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    group_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListGroups(Command[tuple[ListedGroup, ...]]):
    """Filters in lower case (KIP-518, KIP-848); empty: all."""

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
    """GROUP_ID_NOT_FOUND where it is not there, or is no classic group (KIP-1043)."""

    group_id: str


class ConsumerAssignment(NamedTuple):
    topic_id: uuid.UUID
    topic: str
    partitions: tuple[int, ...]


class DescribedConsumer(NamedTuple):
    """`member_type`: 1 speaks the consumer protocol, 0 the classic one (KIP-1099)."""

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
class DeleteGroup(Command[None]):
    """Deletes an empty group and all that it has committed."""

    group_id: str
