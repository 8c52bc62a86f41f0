"""Decides to move partitions to other replicas, and to cancel that (KIP-455).

A reassignment adds the new replicas to the partition. Once all are in sync, `change_partition` removes the old ones
and ends it. So there are never fewer replicas than before or after, and nothing has to be remembered elsewhere.
"""

from collections.abc import Iterable

from ottla.core.controller.assignment import check_replicas, new_directory
from ottla.core.controller.cluster_edit import ClusterEdit
from ottla.core.controller.decision import NO_ERROR, ApiError, ControllerDecision
from ottla.core.controller.image import MetadataImage, PartitionImage
from ottla.core.controller.partition_change import Election, PartitionTarget
from ottla.core.controller.partition_commands import (
    AlterReassignments,
    OngoingReassignment,
    Reassignment,
    ReassignmentResult,
)
from ottla.core.controller.partition_index import PartitionKey
from ottla.core.controller.topic_settings import elects_uncleanly
from ottla.model.errors import ErrorCode, KafkaError

PARTITIONS_PER_REQUEST_MAX = 10_000


def decide_alter_reassignments(
    edit: ClusterEdit, command: AlterReassignments
) -> ControllerDecision[tuple[ReassignmentResult, ...]]:
    if len(command.partitions) > PARTITIONS_PER_REQUEST_MAX:
        raise KafkaError(
            ErrorCode.policy_violation,
            f"{len(command.partitions)} partitions are too many for a request. Name at most "
            f"{PARTITIONS_PER_REQUEST_MAX}.",
        )
    results = []
    for wanted in command.partitions:
        error = NO_ERROR
        try:
            _reassign(edit, wanted, command)
        except KafkaError as rejected:
            error = ApiError(rejected.code, rejected.message)
        results.append(ReassignmentResult(wanted.topic, wanted.partition, error))
    return ControllerDecision(tuple(edit.records), tuple(results))


def ongoing_reassignments(
    image: MetadataImage, partitions: Iterable[tuple[str, int]] | None
) -> list[OngoingReassignment]:
    """Of the given partitions, or of all. Partitions that do not exist are left out."""
    if partitions is None:
        partitions = ((topic.name, index) for topic in image.topics.values() for index in topic.partitions)
    found = ((topic, index, image.partition(topic, index)) for topic, index in partitions)
    return [
        OngoingReassignment(
            topic, index, partition.replicas, partition.adding_replicas, partition.removing_replicas
        )
        for topic, index, partition in found
        if partition is not None and partition.is_being_reassigned
    ]


def _reassign(edit: ClusterEdit, wanted: Reassignment, command: AlterReassignments) -> None:
    """Raises KafkaError."""
    topic = edit.image.topics.get(wanted.topic)
    if topic is None:
        raise KafkaError(
            ErrorCode.unknown_topic_or_partition, f"Unable to find a topic named {wanted.topic}."
        )
    key = (topic.topic_id, wanted.partition)
    partition = edit.partition(key)
    if partition is None:
        raise KafkaError(
            ErrorCode.unknown_topic_or_partition,
            f"Unable to find partition {wanted.topic}:{wanted.partition}.",
        )
    if wanted.replicas is None:
        _cancel(edit, key, partition, f"{wanted.topic}:{wanted.partition}")
        return
    check_replicas(edit.image, wanted.replicas)
    if not command.allow_replication_factor_change:
        _check_replication_factor(partition, wanted.replicas)
    edit.change_partition(key, _target(edit.image, partition, wanted.replicas))


def _check_replication_factor(partition: PartitionImage, replicas: tuple[int, ...]) -> None:
    """KIP-860. While a reassignment goes on, its target counts."""
    before = len(set(partition.replicas) - set(partition.removing_replicas))
    if before != len(replicas):
        raise KafkaError(
            ErrorCode.invalid_replication_factor,
            f"The replication factor is changed from {before} to {len(replicas)}",
        )


def _target(image: MetadataImage, partition: PartitionImage, wanted: tuple[int, ...]) -> PartitionTarget:
    """The new replicas come first, in the order that was asked for; those that are removed stay until the end."""
    removing = tuple(sorted(set(partition.replicas) - set(wanted)))
    adding = tuple(sorted(set(wanted) - set(partition.replicas)))
    replicas = wanted + removing
    return PartitionTarget(
        replicas=replicas,
        directories=tuple(
            partition.directory(replica) if replica in partition.replicas else new_directory(image, replica)
            for replica in replicas
        ),
        # Those that an earlier reassignment added are not original replicas yet: to cancel removes them too.
        adding=adding or partition.adding_replicas,
        removing=removing,
    )


def _cancel(edit: ClusterEdit, key: PartitionKey, partition: PartitionImage, name: str) -> None:
    """Removes the replicas that were added, and keeps those that should be removed."""
    if not partition.is_being_reassigned:
        raise KafkaError(ErrorCode.no_reassignment_in_progress, "No partition reassignment is in progress.")
    replicas = tuple(each for each in partition.replicas if each not in partition.adding_replicas)
    directories = tuple(map(partition.directory, replicas))
    isr = tuple(replica for replica in partition.isr if replica in replicas)
    election = None
    if not isr:
        # All original replicas are behind: one of them can lead only without the records that it lacks.
        topic = edit.image.topics_by_id[key[0]].name
        may_lead = any(map(edit.may_lead, replicas, directories))
        if not may_lead or not elects_uncleanly(edit.image, edit.settings, topic):
            raise KafkaError(
                ErrorCode.invalid_replica_assignment,
                f"Unable to revert partition assignment for {name} because it would require an unclean leader "
                "election.",
            )
        election = Election.UNCLEAN
    target = PartitionTarget(isr, directories, replicas=replicas, adding=(), removing=())
    edit.change_partition(key, target, election)
