"""The commands of the controller and their responses. Random values (ids, where placement starts) come with the
command, so that a decision depends only on the state of the controller and the command.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from ottla.core.controller.broker_commands import AllocateProducerIds as AllocateProducerIds
from ottla.core.controller.broker_commands import BrokerDisconnected as BrokerDisconnected
from ottla.core.controller.broker_commands import BrokerHeartbeat as BrokerHeartbeat
from ottla.core.controller.broker_commands import FenceStaleBrokers as FenceStaleBrokers
from ottla.core.controller.broker_commands import HeartbeatReply as HeartbeatReply
from ottla.core.controller.broker_commands import ProducerIdBlock as ProducerIdBlock
from ottla.core.controller.broker_commands import RegisterBroker as RegisterBroker
from ottla.core.controller.broker_commands import RegisterController as RegisterController
from ottla.core.controller.broker_commands import UnregisterBroker as UnregisterBroker
from ottla.core.controller.broker_commands import WriteNoOp as WriteNoOp
from ottla.core.controller.decision import NO_ERROR as NO_ERROR
from ottla.core.controller.decision import ApiError as ApiError
from ottla.core.controller.decision import ControllerCommand as ControllerCommand
from ottla.core.controller.decision import ControllerDecision as ControllerDecision
from ottla.core.controller.decision import ResponseT as ResponseT
from ottla.core.controller.image import ConfigResource
from ottla.core.controller.partition_commands import AlteredPartition as AlteredPartition
from ottla.core.controller.partition_commands import AlterPartition as AlterPartition
from ottla.core.controller.partition_commands import AlterPartitionResult as AlterPartitionResult
from ottla.core.controller.partition_commands import AlterPartitionTopic as AlterPartitionTopic
from ottla.core.controller.partition_commands import AlterReassignments as AlterReassignments
from ottla.core.controller.partition_commands import AssignedReplica as AssignedReplica
from ottla.core.controller.partition_commands import AssignReplicasToDirs as AssignReplicasToDirs
from ottla.core.controller.partition_commands import BalanceLeaders as BalanceLeaders
from ottla.core.controller.partition_commands import ElectionResult as ElectionResult
from ottla.core.controller.partition_commands import ElectionType as ElectionType
from ottla.core.controller.partition_commands import ElectLeaders as ElectLeaders
from ottla.core.controller.partition_commands import ElectLostLeaders as ElectLostLeaders
from ottla.model.errors import KafkaError


def _api_error(error: KafkaError) -> ApiError:
    return ApiError(error.code, error.message)


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

    def failed(self, error: KafkaError) -> tuple[NewTopicResult, ...]:
        return tuple(NewTopicResult(topic.name, _api_error(error)) for topic in self.topics)


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

    def failed(self, error: KafkaError) -> tuple[DeletedTopic, ...]:
        return tuple(DeletedTopic(topic.name, topic.topic_id, _api_error(error)) for topic in self.topics)


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

    def failed(self, error: KafkaError) -> tuple[tuple[str, ApiError], ...]:
        return tuple((topic.name, _api_error(error)) for topic in self.topics)


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

    def failed(self, error: KafkaError) -> tuple[tuple[ConfigResource, ApiError], ...]:
        return tuple((resource, _api_error(error)) for resource, _ in self.resources)


@dataclass(frozen=True, slots=True)
class AlterConfigs(ControllerCommand[tuple[tuple[ConfigResource, ApiError], ...]]):
    """Replaces all configs of the resource."""

    resources: tuple[tuple[ConfigResource, tuple[tuple[str, str | None], ...]], ...]
    validate_only: bool = False

    def failed(self, error: KafkaError) -> tuple[tuple[ConfigResource, ApiError], ...]:
        return tuple((resource, _api_error(error)) for resource, _ in self.resources)


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

    def failed(self, error: KafkaError) -> tuple[tuple[str, ApiError], ...]:
        return tuple((update.name, _api_error(error)) for update in self.updates)
