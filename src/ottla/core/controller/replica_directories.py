"""Decides in which directories brokers have their replicas (KIP-858)."""

import uuid

from ottla.core.controller.brokers import registered_broker
from ottla.core.controller.cluster_edit import ClusterEdit
from ottla.core.controller.decision import ControllerDecision
from ottla.core.controller.image import BrokerImage
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
    isr = None
    if not broker.is_online(directory_id):
        isr = tuple(other for other in partition.isr if other != broker.broker_id)
    edit.change_partition(key, PartitionTarget(isr, directories))
    return ErrorCode.none
