"""The records of `__consumer_offsets`: a key and a value class per type, in the newest version of Kafka 4.3.

A record without a value is a tombstone: it deletes its key.
"""

import uuid
from dataclasses import dataclass, field
from typing import ClassVar

from kio.static.primitive import i8, i32, i64

from ottla.protocol.record_schema import BYTES, INT8, INT32, INT64, STRING, UUID, NestedSchema, RecordSchema


class KeySchema(RecordSchema):
    """Keys are never flexible, because compaction compares their bytes, which must be the same in all releases."""

    __slots__ = ()
    __flexible__: ClassVar[bool] = False


# Not frozen, though they are never changed: creating a frozen dataclass takes twice as long, and a commit creates two
# per partition.
@dataclass(slots=True, kw_only=True, unsafe_hash=True)
class OffsetCommitKey(KeySchema):
    __api_key__: ClassVar[int] = 1
    group: str = field(metadata=STRING)
    topic: str = field(metadata=STRING)
    partition: i32 = field(metadata=INT32)


@dataclass(slots=True, kw_only=True, unsafe_hash=True)
class OffsetCommitValue(RecordSchema):
    """`topic_id` is None if it was not known when the offset was committed (KIP-848)."""

    __api_key__: ClassVar[int] = 1
    __version__: ClassVar[int] = 4
    __first_flexible__: ClassVar[int] = 4
    offset: i64 = field(metadata=INT64)
    leader_epoch: i32 = field(metadata={**INT32, "since": 3}, default=i32(-1))
    metadata: str = field(metadata=STRING)
    commit_timestamp: i64 = field(metadata=INT64)
    topic_id: uuid.UUID | None = field(metadata={**UUID, "tag": 0, "since": 4}, default=None)
    expire_timestamp: ClassVar[int] = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiringOffsetCommitValue(RecordSchema):
    """An OffsetCommitValue of version 1, the only one with an expiry time. Kafka still writes it if an old client
    (OffsetCommit v2 to v4) sends a retention time. It has no leader epoch and no topic id.
    """

    __api_key__: ClassVar[int] = 1
    __version__: ClassVar[int] = 1
    __flexible__: ClassVar[bool] = False
    offset: i64 = field(metadata=INT64)
    metadata: str = field(metadata=STRING)
    commit_timestamp: i64 = field(metadata=INT64)
    expire_timestamp: i64 = field(metadata=INT64)
    leader_epoch: ClassVar[int] = -1
    topic_id: ClassVar[uuid.UUID | None] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataKey(KeySchema):
    __api_key__: ClassVar[int] = 2
    group: str = field(metadata=STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadata(NestedSchema):
    member_id: str = field(metadata=STRING)
    group_instance_id: str | None = field(metadata={**STRING, "since": 3}, default=None)
    client_id: str = field(metadata=STRING)
    client_host: str = field(metadata=STRING)
    rebalance_timeout: i32 = field(metadata={**INT32, "since": 1}, default=i32(-1))
    session_timeout: i32 = field(metadata=INT32)
    subscription: bytes = field(metadata=BYTES)
    assignment: bytes = field(metadata=BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataValue(RecordSchema):
    """A complete classic group, written when a generation has its assignment and when the group becomes empty."""

    __api_key__: ClassVar[int] = 2
    __version__: ClassVar[int] = 4
    __first_flexible__: ClassVar[int] = 4
    protocol_type: str = field(metadata=STRING)
    generation: i32 = field(metadata=INT32)
    protocol: str | None = field(metadata=STRING)
    leader: str | None = field(metadata=STRING)
    current_state_timestamp: i64 = field(metadata={**INT64, "since": 2}, default=i64(-1))
    members: tuple[MemberMetadata, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMetadataKey(KeySchema):
    __api_key__: ClassVar[int] = 3
    group_id: str = field(metadata=STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMetadataValue(RecordSchema):
    """`metadata_hash` is of the subscribed topics, so that their changes are detected after a reload (KIP-1101)."""

    __api_key__: ClassVar[int] = 3
    epoch: i32 = field(metadata=INT32)
    metadata_hash: i64 = field(metadata={**INT64, "tag": 0}, default=i64(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMemberMetadataKey(KeySchema):
    __api_key__: ClassVar[int] = 5
    group_id: str = field(metadata=STRING)
    member_id: str = field(metadata=STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicProtocol(NestedSchema):
    name: str = field(metadata=STRING)
    metadata: bytes = field(metadata=BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMemberMetadata(NestedSchema):
    session_timeout_ms: i32 = field(metadata=INT32)
    supported_protocols: tuple[ClassicProtocol, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMemberMetadataValue(RecordSchema):
    """`classic_member_metadata` is set for a member that uses the classic protocol."""

    __api_key__: ClassVar[int] = 5
    instance_id: str | None = field(metadata=STRING)
    rack_id: str | None = field(metadata=STRING)
    client_id: str = field(metadata=STRING)
    client_host: str = field(metadata=STRING)
    subscribed_topic_names: tuple[str, ...] = field(metadata=STRING)
    subscribed_topic_regex: str | None = field(metadata=STRING)
    rebalance_timeout_ms: i32 = field(metadata=INT32, default=i32(-1))
    server_assignor: str | None = field(metadata=STRING)
    classic_member_metadata: ClassicMemberMetadata | None = field(metadata={"tag": 0}, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupTargetAssignmentMetadataKey(KeySchema):
    __api_key__: ClassVar[int] = 6
    group_id: str = field(metadata=STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupTargetAssignmentMetadataValue(RecordSchema):
    """`assignment_timestamp` is the time at which the target was computed (KIP-1263)."""

    __api_key__: ClassVar[int] = 6
    assignment_epoch: i32 = field(metadata=INT32)
    assignment_timestamp: i64 = field(metadata={**INT64, "tag": 0}, default=i64(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupTargetAssignmentMemberKey(KeySchema):
    __api_key__: ClassVar[int] = 7
    group_id: str = field(metadata=STRING)
    member_id: str = field(metadata=STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTopicPartitions(NestedSchema):
    topic_id: uuid.UUID = field(metadata=UUID)
    partitions: tuple[i32, ...] = field(metadata=INT32)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupTargetAssignmentMemberValue(RecordSchema):
    __api_key__: ClassVar[int] = 7
    topic_partitions: tuple[TargetTopicPartitions, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupCurrentMemberAssignmentKey(KeySchema):
    __api_key__: ClassVar[int] = 8
    group_id: str = field(metadata=STRING)
    member_id: str = field(metadata=STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentTopicPartitions(NestedSchema):
    """`assignment_epochs` is in the order of `partitions`: the epoch at which each was assigned (KIP-1251)."""

    topic_id: uuid.UUID = field(metadata=UUID)
    partitions: tuple[i32, ...] = field(metadata=INT32)
    assignment_epochs: tuple[i32, ...] | None = field(metadata={**INT32, "tag": 0}, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupCurrentMemberAssignmentValue(RecordSchema):
    __api_key__: ClassVar[int] = 8
    member_epoch: i32 = field(metadata=INT32)
    previous_member_epoch: i32 = field(metadata=INT32)
    state: i8 = field(metadata=INT8)
    assigned_partitions: tuple[CurrentTopicPartitions, ...]
    partitions_pending_revocation: tuple[CurrentTopicPartitions, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupRegularExpressionKey(KeySchema):
    __api_key__: ClassVar[int] = 16
    group_id: str = field(metadata=STRING)
    regular_expression: str = field(metadata=STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupRegularExpressionValue(RecordSchema):
    """The topics that a regular expression matched, at which metadata version, and when."""

    __api_key__: ClassVar[int] = 16
    topics: tuple[str, ...] = field(metadata=STRING)
    version: i64 = field(metadata=INT64)
    timestamp: i64 = field(metadata=INT64)


GroupKey = (
    OffsetCommitKey
    | GroupMetadataKey
    | ConsumerGroupMetadataKey
    | ConsumerGroupMemberMetadataKey
    | ConsumerGroupTargetAssignmentMetadataKey
    | ConsumerGroupTargetAssignmentMemberKey
    | ConsumerGroupCurrentMemberAssignmentKey
    | ConsumerGroupRegularExpressionKey
)

GroupValue = (
    OffsetCommitValue
    | ExpiringOffsetCommitValue
    | GroupMetadataValue
    | ConsumerGroupMetadataValue
    | ConsumerGroupMemberMetadataValue
    | ConsumerGroupTargetAssignmentMetadataValue
    | ConsumerGroupTargetAssignmentMemberValue
    | ConsumerGroupCurrentMemberAssignmentValue
    | ConsumerGroupRegularExpressionValue
)
