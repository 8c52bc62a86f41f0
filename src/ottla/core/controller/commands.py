"""The commands of the controller and their responses. Random values (ids, where placement starts) come with the
command, so that a decision depends only on the image and the command.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Generic, NamedTuple, TypeVar

from ottla.core.controller.image import ConfigResource
from ottla.model.errors import ErrorCode
from ottla.protocol.metadata_records.records import Endpoint, FeatureRange, MetadataRecord

ResponseT = TypeVar("ResponseT")


@dataclass(frozen=True, slots=True)
class ControllerCommand(Generic[ResponseT]):
    """The type parameter is the type of the response."""


class ControllerDecision(NamedTuple, Generic[ResponseT]):
    """The records of the change, committed atomically, and the response to send once they are."""

    records: tuple[MetadataRecord, ...]
    response: ResponseT


class ApiError(NamedTuple):
    """If `message` is None, the client describes the code itself."""

    code: ErrorCode = ErrorCode.none
    message: str | None = None


NO_ERROR = ApiError()


@dataclass(frozen=True, slots=True)
class RegisterBroker(ControllerCommand[int]):
    """A broker's process has started (KIP-631). Returns the broker epoch. Fenced until `UnfenceBroker`."""

    broker_id: int
    incarnation_id: uuid.UUID
    end_points: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]
    log_dirs: tuple[uuid.UUID, ...]
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class UnfenceBroker(ControllerCommand[None]):
    """The broker has caught up with the metadata and can serve: it may become a leader."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class FenceBroker(ControllerCommand[None]):
    """The broker has stopped or is about to: leadership moves to other in-sync replicas, if there are any."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class UnregisterBroker(ControllerCommand[None]):
    broker_id: int


@dataclass(frozen=True, slots=True)
class RegisterController(ControllerCommand[None]):
    controller_id: int
    incarnation_id: uuid.UUID
    end_points: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]


class NewTopic(NamedTuple):
    """-1 means the default. With `assignments` (partition, replicas) both numbers must be -1."""

    name: str
    topic_id: uuid.UUID
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: tuple[tuple[int, tuple[int, ...]], ...] = ()
    configs: tuple[tuple[str, str | None], ...] = ()


class NewTopicResult(NamedTuple):
    name: str
    error: ApiError
    topic_id: uuid.UUID | None = None
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class CreateTopics(ControllerCommand[tuple[NewTopicResult, ...]]):
    topics: tuple[NewTopic, ...]
    placement_start: int = 0
    validate_only: bool = False


class TopicToDelete(NamedTuple):
    """Exactly one of the two is set."""

    name: str | None = None
    topic_id: uuid.UUID | None = None


class DeletedTopic(NamedTuple):
    name: str | None
    topic_id: uuid.UUID | None
    error: ApiError


@dataclass(frozen=True, slots=True)
class DeleteTopics(ControllerCommand[tuple[DeletedTopic, ...]]):
    topics: tuple[TopicToDelete, ...]


class NewPartitions(NamedTuple):
    """`assignments` has the replicas of each new partition; if it is None, the controller places them."""

    name: str
    total: int
    assignments: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True, slots=True)
class CreatePartitions(ControllerCommand[tuple[tuple[str, ApiError], ...]]):
    topics: tuple[NewPartitions, ...]
    placement_start: int = 0
    validate_only: bool = False


class ConfigOp(IntEnum):
    """KIP-339."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    name: str
    op: int  # a ConfigOp, unless the client sent an unknown number
    value: str | None


@dataclass(frozen=True, slots=True)
class IncrementalAlterConfigs(ControllerCommand[tuple[tuple[ConfigResource, ApiError], ...]]):
    resources: tuple[tuple[ConfigResource, tuple[ConfigChange, ...]], ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class AlterConfigs(ControllerCommand[tuple[tuple[ConfigResource, ApiError], ...]]):
    """Replaces all configs of the resource."""

    resources: tuple[tuple[ConfigResource, tuple[tuple[str, str | None], ...]], ...]
    validate_only: bool = False


class ProducerIdBlock(NamedTuple):
    first: int
    size: int


@dataclass(frozen=True, slots=True)
class AllocateProducerIds(ControllerCommand[ProducerIdBlock]):
    broker_id: int
    broker_epoch: int


class FeatureUpgradeType(IntEnum):
    """KIP-584."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    name: str
    level: int
    upgrade_type: int = FeatureUpgradeType.UPGRADE


@dataclass(frozen=True, slots=True)
class UpdateFeatures(ControllerCommand[tuple[tuple[str, ApiError], ...]]):
    """Atomic: if one update is rejected, none is made."""

    updates: tuple[FeatureUpdate, ...]
    validate_only: bool = False
