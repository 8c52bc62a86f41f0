"""Decides changes of in-sync replicas that leaders ask for (KIP-497, KIP-841, KIP-903)."""

from ottla.core.controller.brokers import registered_broker
from ottla.core.controller.cluster_edit import ClusterEdit
from ottla.core.controller.decision import ControllerDecision
from ottla.core.controller.image import PartitionImage
from ottla.core.controller.partition_change import RECOVERED, RECOVERING, PartitionTarget
from ottla.core.controller.partition_commands import AlteredPartition, AlterPartition, AlterPartitionResult
from ottla.core.controller.partition_index import PartitionKey
from ottla.model.errors import ErrorCode
from ottla.protocol.metadata_records.records import NO_LEADER_CHANGE

_UNKNOWN_EPOCH = -1


def decide_alter_partition(
    edit: ClusterEdit, command: AlterPartition
) -> ControllerDecision[tuple[AlterPartitionResult, ...]]:
    registered_broker(edit.image, command.broker_id, command.broker_epoch)
    results: list[AlterPartitionResult] = []
    for topic in command.topics:
        is_known = topic.topic_id in edit.image.topics_by_id
        for wanted in topic.partitions:
            key = (topic.topic_id, wanted.index)
            if is_known:
                results.append(_alter(edit, command.broker_id, key, wanted))
            else:
                results.append(AlterPartitionResult(*key, ErrorCode.unknown_topic_id))
    return ControllerDecision(tuple(edit.records), tuple(results))


def _alter(
    edit: ClusterEdit, broker_id: int, key: PartitionKey, wanted: AlteredPartition
) -> AlterPartitionResult:
    error = _error(edit, broker_id, edit.partition(key), wanted)
    if error is not ErrorCode.none:
        return AlterPartitionResult(*key, error)
    isr = tuple(replica for replica, _ in wanted.new_isr)
    record = edit.change_partition(
        key, PartitionTarget(isr, leader_recovery_state=wanted.leader_recovery_state)
    )
    if record is not None and record.leader not in (NO_LEADER_CHANGE, broker_id):
        # The change completed a reassignment that removes the leader, which must read the metadata now.
        return AlterPartitionResult(*key, ErrorCode.new_leader_elected)
    altered = edit.partition(key)
    assert altered is not None
    return AlterPartitionResult(
        *key,
        ErrorCode.none,
        altered.leader,
        altered.leader_epoch,
        altered.isr,
        altered.leader_recovery_state,
        altered.partition_epoch,
    )


def _error(
    edit: ClusterEdit, broker_id: int, partition: PartitionImage | None, wanted: AlteredPartition
) -> ErrorCode:
    if partition is None:
        return ErrorCode.unknown_topic_or_partition
    epochs = (wanted.leader_epoch, wanted.partition_epoch)
    if epochs[0] > partition.leader_epoch or epochs[1] > partition.partition_epoch:
        # The leader knows newer metadata, so this node is probably not the active controller any more.
        return ErrorCode.not_controller
    if wanted.leader_epoch < partition.leader_epoch:
        return ErrorCode.fenced_leader_epoch
    if broker_id != partition.leader:
        return ErrorCode.invalid_request
    if wanted.partition_epoch < partition.partition_epoch:
        return ErrorCode.invalid_update_version
    if not _is_valid(partition, wanted):
        return ErrorCode.invalid_request
    if not all(_is_eligible(edit, *member) for member in wanted.new_isr):
        return ErrorCode.ineligible_replica
    return ErrorCode.none


def _is_valid(partition: PartitionImage, wanted: AlteredPartition) -> bool:
    isr = [replica for replica, _ in wanted.new_isr]
    is_set_of_replicas = len(set(isr)) == len(isr) and set(isr) <= set(partition.replicas)
    if not is_set_of_replicas or partition.leader not in isr:
        return False
    if wanted.leader_recovery_state == RECOVERING:
        return len(isr) == 1 and partition.leader_recovery_state == RECOVERING
    return wanted.leader_recovery_state == RECOVERED


def _is_eligible(edit: ClusterEdit, broker_id: int, broker_epoch: int) -> bool:
    broker = edit.broker(broker_id)
    if broker is None or not broker.is_active:
        return False
    return broker_epoch in (_UNKNOWN_EPOCH, broker.epoch)
