"""Registers, fences and unregisters brokers, and elects leaders when brokers come and go (KIP-631, KIP-841)."""

from ottla.core.controller.commands import (
    ControllerDecision,
    FenceBroker,
    RegisterBroker,
    RegisterController,
    UnfenceBroker,
    UnregisterBroker,
)
from ottla.core.controller.image import BrokerImage, MetadataImage, PartitionImage
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.metadata_records.records import (
    FENCE,
    NO_LEADER,
    NO_LEADER_CHANGE,
    UNFENCE,
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
)


def decide_register_broker(
    image: MetadataImage, command: RegisterBroker, broker_epoch: int
) -> ControllerDecision[int]:
    """Registers a broker's new process. If the broker was not fenced, its partitions get other leaders if possible.

    A partition that no other broker can lead keeps it as its leader; `decide_unfence_broker` then elects the broker
    again, in a new epoch.
    """
    _check_features(image, command)
    records: list[MetadataRecord] = []
    before = image.brokers.get(command.broker_id)
    if before is not None and not before.fenced:
        records += _remove_from_isrs(image, command.broker_id, keep_last_leader=True)
    records.append(
        RegisterBrokerRecord(
            broker_id=command.broker_id,
            incarnation_id=command.incarnation_id,
            broker_epoch=broker_epoch,
            end_points=command.end_points,
            features=command.features,
            rack=command.rack,
            fenced=True,
            log_dirs=command.log_dirs,
        )
    )
    return ControllerDecision(tuple(records), broker_epoch)


def decide_unfence_broker(image: MetadataImage, command: UnfenceBroker) -> ControllerDecision[None]:
    broker = registered_broker(image, command.broker_id, command.broker_epoch)
    if not broker.fenced:
        return ControllerDecision((), None)
    records: list[MetadataRecord] = [
        BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=UNFENCE)
    ]
    for topic in image.topics.values():
        for index, partition in topic.partitions.items():
            if _may_lead(partition, broker.broker_id):
                in_sync = broker.broker_id in partition.isr
                elr = partition.eligible_leader_replicas or partition.last_known_elr
                records.append(
                    PartitionChangeRecord(
                        partition_id=index,
                        topic_id=topic.topic_id,
                        leader=broker.broker_id,
                        isr=None if in_sync else (broker.broker_id,),
                        eligible_leader_replicas=() if elr else None,
                        last_known_elr=() if elr else None,
                    )
                )
    return ControllerDecision(tuple(records), None)


def decide_fence_broker(image: MetadataImage, command: FenceBroker) -> ControllerDecision[None]:
    broker = registered_broker(image, command.broker_id, command.broker_epoch)
    if broker.fenced:
        return ControllerDecision((), None)
    fenced = BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=FENCE
    )
    return ControllerDecision((fenced, *_remove_from_isrs(image, broker.broker_id)), None)


def decide_unregister_broker(image: MetadataImage, command: UnregisterBroker) -> ControllerDecision[None]:
    broker = image.brokers.get(command.broker_id)
    if broker is None:
        raise KafkaError(
            ErrorCode.broker_id_not_registered, f"Broker ID {command.broker_id} is not currently registered"
        )
    removed = UnregisterBrokerRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch)
    return ControllerDecision((*_remove_from_isrs(image, broker.broker_id), removed), None)


def decide_register_controller(command: RegisterController) -> ControllerDecision[None]:
    record = RegisterControllerRecord(
        controller_id=command.controller_id,
        incarnation_id=command.incarnation_id,
        end_points=command.end_points,
        features=command.features,
    )
    return ControllerDecision((record,), None)


def registered_broker(image: MetadataImage, broker_id: int, broker_epoch: int) -> BrokerImage:
    """Raises KafkaError if the broker is not registered, or a later process of it is."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(
            ErrorCode.broker_id_not_registered, f"No broker registration found for broker id {broker_id}"
        )
    if broker.epoch != broker_epoch:
        raise KafkaError(
            ErrorCode.stale_broker_epoch,
            f"Expected broker epoch {broker.epoch} for broker {broker_id}, but got broker epoch {broker_epoch}",
        )
    return broker


def _check_features(image: MetadataImage, command: RegisterBroker) -> None:
    ranges = {feature.name: feature for feature in command.features}
    for name, level in image.features.items():
        supported = ranges.get(name)
        # A broker does not list the features that do not concern it.
        if supported is None:
            continue
        if not supported.min_supported_version <= level <= supported.max_supported_version:
            raise KafkaError(
                ErrorCode.unsupported_version,
                f"Unable to register because broker {command.broker_id} does not support finalized version {level} "
                f"of {name}. It wants a version between {supported.min_supported_version} and "
                f"{supported.max_supported_version}, inclusive.",
            )


def _may_lead(partition: PartitionImage, broker_id: int) -> bool:
    """Whether to elect the unfenced broker: it still is the leader, or there is none and it is eligible."""
    if partition.leader == broker_id:
        return True
    if partition.leader != NO_LEADER:
        return False
    # KIP-966: if no replica is eligible, the last known leader is, because its log is the longest known.
    return (
        broker_id in partition.isr
        or broker_id in partition.eligible_leader_replicas
        or (not partition.eligible_leader_replicas and partition.last_known_elr == (broker_id,))
    )


def _remove_from_isrs(
    image: MetadataImage, broker_id: int, *, keep_last_leader: bool = False
) -> list[PartitionChangeRecord]:
    """Removes a broker from the ISR of its partitions, unless it is the only member, and from their leadership.

    With `keep_last_leader`, a partition that no other broker can lead is not changed.
    """
    records: list[PartitionChangeRecord] = []
    for topic in image.topics.values():
        for index, partition in topic.partitions.items():
            if broker_id not in partition.isr:
                continue
            others = tuple(other for other in partition.isr if other != broker_id)
            candidates = [other for other in partition.replicas if other in others and image.is_active(other)]
            leader = NO_LEADER_CHANGE
            if partition.leader == broker_id:
                leader = candidates[0] if candidates else NO_LEADER
            if leader == NO_LEADER and keep_last_leader:
                continue
            if leader == NO_LEADER_CHANGE and not others:
                continue
            records.append(
                PartitionChangeRecord(
                    partition_id=index, topic_id=topic.topic_id, leader=leader, isr=others or None
                )
            )
    return records
