"""Decides in which directories brokers have their replicas (KIP-858)."""

import uuid

from ottla.core.controller.brokers import registered_broker
from ottla.core.controller.cluster_edit import ClusterEdit
from ottla.core.controller.decision import ControllerDecision
from ottla.core.controller.image import BrokerImage, PartitionImage
from ottla.core.controller.partition_change import PartitionTarget
from ottla.core.controller.partition_commands import AssignedReplica, AssignReplicasToDirs
from ottla.core.controller.partition_index import PartitionKey
from ottla.model.errors import ErrorCode


def decide_assign_replicas(
    edit: ClusterEdit, command: AssignReplicasToDirs
) -> ControllerDecision[tuple[AssignedReplica, ...]]:
    broker = registered_broker(edit.image, command.broker_id, command.broker_epoch)
    results = tuple(
        AssignedReplica(directory_id, topic_id, index, _assign(edit, broker, directory_id, (topic_id, index)))
        for directory_id, topics in command.directories
        for topic_id, partitions in topics
        for index in partitions
    )
    return ControllerDecision(tuple(edit.records), results)


def _assign(edit: ClusterEdit, broker: BrokerImage, directory_id: uuid.UUID, key: PartitionKey) -> ErrorCode:
    if key[0] not in edit.image.topics_by_id:
        return ErrorCode.unknown_topic_id
    partition = edit.partition(key)
    if partition is None:
        return ErrorCode.unknown_topic_or_partition
    if broker.broker_id not in partition.replicas:
        return ErrorCode.not_leader_or_follower
    directories = tuple(
        directory_id if replica == broker.broker_id else directory
        for replica, directory in zip(partition.replicas, partition.directories, strict=True)
    )
    others = tuple(other for other in partition.isr if other != broker.broker_id)
    if not broker.is_online(directory_id):
        target = PartitionTarget(others, directories)
    elif _may_be_recreated(broker, partition, directory_id) and (others or edit.image.has_elr):
        target = PartitionTarget(others, directories, recreated=broker.broker_id)
    else:
        target = PartitionTarget(directories=directories)
    edit.change_partition(key, target)
    return ErrorCode.none


def _may_be_recreated(broker: BrokerImage, partition: PartitionImage, directory_id: uuid.UUID) -> bool:
    """Whether the replica was in a directory that failed or was removed, so that it may be empty in the new one.

    Then it must not be elected as if it had all records. If there are no other replicas, no better one can be elected;
    nor is another one known to be better if it is the last in-sync replica of a cluster without ELR.
    """
    previous = partition.directory(broker.broker_id)
    return previous != directory_id and not broker.is_online(previous) and len(partition.replicas) > 1
