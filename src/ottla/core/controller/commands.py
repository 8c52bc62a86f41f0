"""What the controller can be asked to change, and what it answers. Randomness (ids, where placement starts) comes in
with the command, so that a decision follows from the image and the command alone.
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
class Command(Generic[ResponseT]):
    """A command names the type of its response."""


class Decision(NamedTuple, Generic[ResponseT]):
    """The records that make the change, all or none of them, and the answer once they are committed."""

    records: tuple[MetadataRecord, ...]
    response: ResponseT


class ApiError(NamedTuple):
    """A message of None leaves it to the client to describe the code."""

    code: ErrorCode = ErrorCode.none
    message: str | None = None


NO_ERROR = ApiError()


@dataclass(frozen=True, slots=True)
class RegisterBroker(Command[int]):
    """A broker's process has started (KIP-631). Answered with the broker epoch; the broker is fenced until it asks."""

    broker_id: int
    incarnation_id: uuid.UUID
    end_points: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]
    log_dirs: tuple[uuid.UUID, ...]
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class UnfenceBroker(Command[None]):
    """The broker has caught up with the metadata and can serve: it may lead what it is eligible for."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class FenceBroker(Command[None]):
    """The broker is gone or about to go: leadership moves to others in sync, where there are any."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class UnregisterBroker(Command[None]):
    broker_id: int


@dataclass(frozen=True, slots=True)
class RegisterController(Command[None]):
    controller_id: int
    incarnation_id: uuid.UUID
    end_points: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]


class NewTopic(NamedTuple):
    """-1 takes the default; with `assignments` (partition to replicas) both numbers must be -1."""

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
class CreateTopics(Command[tuple[NewTopicResult, ...]]):
    topics: tuple[NewTopic, ...]
    placement_start: int = 0
    validate_only: bool = False


class TopicToDelete(NamedTuple):
    """Exactly one of the two names the topic."""

    name: str | None = None
    topic_id: uuid.UUID | None = None


class DeletedTopic(NamedTuple):
    name: str | None
    topic_id: uuid.UUID | None
    error: ApiError


@dataclass(frozen=True, slots=True)
class DeleteTopics(Command[tuple[DeletedTopic, ...]]):
    topics: tuple[TopicToDelete, ...]


class MorePartitions(NamedTuple):
    """`assignments` are the replicas of each new partition; with None the controller places them."""

    name: str
    total: int
    assignments: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True, slots=True)
class CreatePartitions(Command[tuple[tuple[str, ApiError], ...]]):
    topics: tuple[MorePartitions, ...]
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
    op: int  # a ConfigOp, or what the client sent in its place
    value: str | None


@dataclass(frozen=True, slots=True)
class IncrementalAlterConfigs(Command[tuple[tuple[ConfigResource, ApiError], ...]]):
    resources: tuple[tuple[ConfigResource, tuple[ConfigChange, ...]], ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class AlterConfigs(Command[tuple[tuple[ConfigResource, ApiError], ...]]):
    """The configs given are all that the resource has afterwards."""

    resources: tuple[tuple[ConfigResource, tuple[tuple[str, str | None], ...]], ...]
    validate_only: bool = False


class ProducerIdBlock(NamedTuple):
    first: int
    size: int


@dataclass(frozen=True, slots=True)
class AllocateProducerIds(Command[ProducerIdBlock]):
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
class UpdateFeatures(Command[tuple[tuple[str, ApiError], ...]]):
    """All updates are made or none: where one is refused, the others are not made either."""

    updates: tuple[FeatureUpdate, ...]
    validate_only: bool = False
