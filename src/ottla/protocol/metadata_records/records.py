"""The records of the metadata log: one dataclass per type, in the newest version of Kafka 4.3."""

import uuid
from dataclasses import dataclass, field
from typing import Any, ClassVar

from kio.static.primitive import i8, i16, i32, i64, u16

from ottla.protocol.record_schema import (
    BOOL,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID,
    NestedSchema,
    RecordSchema,
)

NO_LEADER = -1
NO_LEADER_CHANGE = -2

FENCE = 1
UNFENCE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint(NestedSchema):
    name: str = field(metadata=STRING)
    host: str = field(metadata=STRING)
    port: u16 = field(metadata=UINT16)
    security_protocol: i16 = field(metadata=INT16)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureRange(NestedSchema):
    name: str = field(metadata=STRING)
    min_supported_version: i16 = field(metadata=INT16)
    max_supported_version: i16 = field(metadata=INT16)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerRecord(RecordSchema):
    """A broker's process has registered. Its epoch fences requests of earlier processes."""

    __api_key__: ClassVar[int] = 0
    __version__: ClassVar[int] = 4
    broker_id: i32 = field(metadata=INT32)
    is_migrating_zk_broker: bool = field(metadata=BOOL, default=False)
    incarnation_id: uuid.UUID = field(metadata=UUID)
    broker_epoch: i64 = field(metadata=INT64)
    end_points: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]
    rack: str | None = field(metadata=STRING)
    fenced: bool = field(metadata=BOOL, default=True)
    in_controlled_shutdown: bool = field(metadata=BOOL, default=False)
    log_dirs: tuple[uuid.UUID | None, ...] = field(metadata={**UUID, "tag": 0}, default=())
    cordoned_log_dirs: tuple[uuid.UUID | None, ...] | None = field(metadata={**UUID, "tag": 1}, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterBrokerRecord(RecordSchema):
    __api_key__: ClassVar[int] = 1
    broker_id: i32 = field(metadata=INT32)
    broker_epoch: i64 = field(metadata=INT64)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord(RecordSchema):
    __api_key__: ClassVar[int] = 2
    name: str = field(metadata=STRING)
    topic_id: uuid.UUID = field(metadata=UUID)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRecord(RecordSchema):
    """The complete state of a partition; `directories` is in the order of `replicas` (KIP-858)."""

    __api_key__: ClassVar[int] = 3
    __version__: ClassVar[int] = 2
    partition_id: i32 = field(metadata=INT32)
    topic_id: uuid.UUID = field(metadata=UUID)
    replicas: tuple[i32, ...] = field(metadata=INT32)
    isr: tuple[i32, ...] = field(metadata=INT32)
    removing_replicas: tuple[i32, ...] = field(metadata=INT32, default=())
    adding_replicas: tuple[i32, ...] = field(metadata=INT32, default=())
    leader: i32 = field(metadata=INT32, default=i32(NO_LEADER))
    leader_recovery_state: i8 = field(metadata={**INT8, "tag": 0}, default=i8(0))
    leader_epoch: i32 = field(metadata=INT32)
    partition_epoch: i32 = field(metadata=INT32)
    directories: tuple[uuid.UUID | None, ...] = field(metadata=UUID, default=())
    eligible_leader_replicas: tuple[i32, ...] | None = field(metadata={**INT32, "tag": 1}, default=None)
    last_known_elr: tuple[i32, ...] | None = field(metadata={**INT32, "tag": 2}, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRecord(RecordSchema):
    """A dynamic config; without a value it is deleted."""

    __api_key__: ClassVar[int] = 4
    resource_type: i8 = field(metadata=INT8)
    resource_name: str = field(metadata=STRING)
    name: str = field(metadata=STRING)
    value: str | None = field(metadata=STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChangeRecord(RecordSchema):
    """The changes of a partition: None means no change (for the leader -2, for the recovery state -1)."""

    __api_key__: ClassVar[int] = 5
    __version__: ClassVar[int] = 2
    partition_id: i32 = field(metadata=INT32)
    topic_id: uuid.UUID = field(metadata=UUID)
    isr: tuple[i32, ...] | None = field(metadata={**INT32, "tag": 0}, default=None)
    leader: i32 = field(metadata={**INT32, "tag": 1}, default=i32(NO_LEADER_CHANGE))
    replicas: tuple[i32, ...] | None = field(metadata={**INT32, "tag": 2}, default=None)
    removing_replicas: tuple[i32, ...] | None = field(metadata={**INT32, "tag": 3}, default=None)
    adding_replicas: tuple[i32, ...] | None = field(metadata={**INT32, "tag": 4}, default=None)
    leader_recovery_state: i8 = field(metadata={**INT8, "tag": 5}, default=i8(-1))
    eligible_leader_replicas: tuple[i32, ...] | None = field(metadata={**INT32, "tag": 6}, default=None)
    last_known_elr: tuple[i32, ...] | None = field(metadata={**INT32, "tag": 7}, default=None)
    directories: tuple[uuid.UUID | None, ...] | None = field(metadata={**UUID, "tag": 8}, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceBrokerRecord(RecordSchema):
    __api_key__: ClassVar[int] = 7
    id: i32 = field(metadata=INT32)
    epoch: i64 = field(metadata=INT64)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfenceBrokerRecord(RecordSchema):
    __api_key__: ClassVar[int] = 8
    id: i32 = field(metadata=INT32)
    epoch: i64 = field(metadata=INT64)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveTopicRecord(RecordSchema):
    __api_key__: ClassVar[int] = 9
    topic_id: uuid.UUID = field(metadata=UUID)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureLevelRecord(RecordSchema):
    """The level of a feature for the whole cluster; 0 disables it (KIP-584)."""

    __api_key__: ClassVar[int] = 12
    name: str = field(metadata=STRING)
    feature_level: i16 = field(metadata=INT16)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdsRecord(RecordSchema):
    __api_key__: ClassVar[int] = 15
    broker_id: i32 = field(metadata=INT32)
    broker_epoch: i64 = field(metadata=INT64, default=i64(-1))
    next_producer_id: i64 = field(metadata=INT64)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistrationChangeRecord(RecordSchema):
    """`fenced` is 1 to fence, -1 to unfence, 0 for no change (KIP-841)."""

    __api_key__: ClassVar[int] = 17
    __version__: ClassVar[int] = 3
    broker_id: i32 = field(metadata=INT32)
    broker_epoch: i64 = field(metadata=INT64)
    fenced: i8 = field(metadata={**INT8, "tag": 0}, default=i8(0))
    in_controlled_shutdown: i8 = field(metadata={**INT8, "tag": 1}, default=i8(0))
    log_dirs: tuple[uuid.UUID | None, ...] = field(metadata={**UUID, "tag": 2}, default=())
    cordoned_log_dirs: tuple[uuid.UUID | None, ...] | None = field(metadata={**UUID, "tag": 3}, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoOpRecord(RecordSchema):
    """Advances the log, so that a quorum without changes still shows progress (KIP-835)."""

    __api_key__: ClassVar[int] = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginTransactionRecord(RecordSchema):
    """The records from here to the end of the transaction are applied atomically (KIP-868)."""

    __api_key__: ClassVar[int] = 23
    name: str | None = field(metadata={**STRING, "tag": 0}, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransactionRecord(RecordSchema):
    __api_key__: ClassVar[int] = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortTransactionRecord(RecordSchema):
    __api_key__: ClassVar[int] = 25
    reason: str | None = field(metadata={**STRING, "tag": 0}, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterControllerRecord(RecordSchema):
    """The endpoints and features of a controller's process (KIP-919)."""

    __api_key__: ClassVar[int] = 27
    controller_id: i32 = field(metadata=INT32)
    incarnation_id: uuid.UUID = field(metadata=UUID)
    zk_migration_ready: bool = field(metadata=BOOL, default=False)
    end_points: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearElrRecord(RecordSchema):
    """Clears the eligible leader replicas of a topic, or of all topics if the name is empty (KIP-966)."""

    __api_key__: ClassVar[int] = 28
    topic_name: str = field(metadata=STRING)


@dataclass(frozen=True, slots=True)
class OpaqueRecord:
    """A record of a type that Ottla does not use (quotas, ACLs, tokens): kept unchanged and in order."""

    api_key: int
    version: int
    body: bytes


RECORD_TYPES: tuple[type[Any], ...] = (
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
    TopicRecord,
    PartitionRecord,
    ConfigRecord,
    PartitionChangeRecord,
    FenceBrokerRecord,
    UnfenceBrokerRecord,
    RemoveTopicRecord,
    FeatureLevelRecord,
    ProducerIdsRecord,
    BrokerRegistrationChangeRecord,
    NoOpRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    AbortTransactionRecord,
    RegisterControllerRecord,
    ClearElrRecord,
)

MetadataRecord = (
    RegisterBrokerRecord
    | UnregisterBrokerRecord
    | TopicRecord
    | PartitionRecord
    | ConfigRecord
    | PartitionChangeRecord
    | FenceBrokerRecord
    | UnfenceBrokerRecord
    | RemoveTopicRecord
    | FeatureLevelRecord
    | ProducerIdsRecord
    | BrokerRegistrationChangeRecord
    | NoOpRecord
    | BeginTransactionRecord
    | EndTransactionRecord
    | AbortTransactionRecord
    | RegisterControllerRecord
    | ClearElrRecord
    | OpaqueRecord
)
