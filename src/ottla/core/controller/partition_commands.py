"""The commands about the leaders, in-sync replicas and directories of existing partitions."""

import uuid
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from ottla.core.controller.decision import ApiError, ControllerCommand
from ottla.model.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class AlteredPartition:
    """`new_isr` has the ids of brokers and their epochs; -1 is an epoch that the leader does not know (KIP-903)."""

    index: int
    leader_epoch: int
    new_isr: tuple[tuple[int, int], ...]
    leader_recovery_state: int
    partition_epoch: int


class AlterPartitionTopic(NamedTuple):
    topic_id: uuid.UUID
    partitions: tuple[AlteredPartition, ...]


@dataclass(frozen=True, slots=True)
class AlterPartitionResult:
    """The partition after the change; the rest has no meaning if there is an error."""

    topic_id: uuid.UUID
    index: int
    error: ErrorCode
    leader: int = -1
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    partition_epoch: int = -1


@dataclass(frozen=True, slots=True)
class AlterPartition(ControllerCommand[tuple[AlterPartitionResult, ...]]):
    """A leader changes the in-sync replicas of its partitions (KIP-497). The results are in the command's order."""

    broker_id: int
    broker_epoch: int
    topics: tuple[AlterPartitionTopic, ...]


class AssignedReplica(NamedTuple):
    directory_id: uuid.UUID
    topic_id: uuid.UUID
    partition: int
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class AssignReplicasToDirs(ControllerCommand[tuple[AssignedReplica, ...]]):
    """A broker says in which of its directories it has replicas (KIP-858). The results are in the command's order.

    `directories` has (directory id, ((topic id, partitions), ...)).
    """

    broker_id: int
    broker_epoch: int
    directories: tuple[tuple[uuid.UUID, tuple[tuple[uuid.UUID, tuple[int, ...]], ...]], ...]


class ElectionType(IntEnum):
    """KIP-460."""

    PREFERRED = 0
    UNCLEAN = 1


class ElectionResult(NamedTuple):
    topic: str
    partition: int
    error: ApiError


@dataclass(frozen=True, slots=True)
class ElectLeaders(ControllerCommand[tuple[ElectionResult, ...]]):
    """`partitions` has (topic, partition). None means all; the result leaves out those that needed no election then."""

    election_type: int  # an ElectionType, unless the client sent an unknown number
    partitions: tuple[tuple[str, int], ...] | None


@dataclass(frozen=True, slots=True)
class BalanceLeaders(ControllerCommand[None]):
    """Gives partitions back to their preferred leaders (auto.leader.rebalance.enable)."""


@dataclass(frozen=True, slots=True)
class ElectLostLeaders(ControllerCommand[None]):
    """Looks for leaders of the partitions without one. Unclean ones are elected if the topic's config allows it."""


class Reassignment(NamedTuple):
    """`replicas` None cancels the reassignment of the partition."""

    topic: str
    partition: int
    replicas: tuple[int, ...] | None


class ReassignmentResult(NamedTuple):
    topic: str
    partition: int
    error: ApiError


class OngoingReassignment(NamedTuple):
    """`replicas` has those that are added and those that are removed too."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AlterReassignments(ControllerCommand[tuple[ReassignmentResult, ...]]):
    """Moves partitions to other replicas (KIP-455). The results are in the command's order."""

    partitions: tuple[Reassignment, ...]
    allow_replication_factor_change: bool = True
