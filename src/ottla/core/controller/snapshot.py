"""The records of a snapshot (KIP-630): those that produce the image from an empty one."""

from collections.abc import Iterator

from ottla.core.controller.image import METADATA_VERSION, MetadataImage, PartitionImage, TopicImage
from ottla.protocol.metadata_records.records import (
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
)

_NO_BROKER = -1


def image_records(image: MetadataImage) -> Iterator[MetadataRecord]:
    """metadata.version comes first, because it determines how the rest is read."""
    yield from _features(image)
    yield from _registrations(image)
    for topic in image.topics.values():
        yield from _topic(topic)
    for resource, configs in image.configs.items():
        for name, value in configs.items():
            yield ConfigRecord(
                resource_type=resource.type, resource_name=resource.name, name=name, value=value
            )
    if image.next_producer_id:
        yield ProducerIdsRecord(broker_id=_NO_BROKER, next_producer_id=image.next_producer_id)
    yield from image.opaque.values()


def _features(image: MetadataImage) -> Iterator[MetadataRecord]:
    names = sorted(image.features, key=lambda name: (name != METADATA_VERSION, name))
    for name in names:
        yield FeatureLevelRecord(name=name, feature_level=image.features[name])


def _registrations(image: MetadataImage) -> Iterator[MetadataRecord]:
    for broker in image.brokers.values():
        yield RegisterBrokerRecord(
            broker_id=broker.broker_id,
            incarnation_id=broker.incarnation_id,
            broker_epoch=broker.epoch,
            end_points=broker.end_points,
            features=broker.features,
            rack=broker.rack,
            fenced=broker.fenced,
            in_controlled_shutdown=broker.in_controlled_shutdown,
            log_dirs=broker.log_dirs,
            cordoned_log_dirs=broker.cordoned_log_dirs,
        )
    for controller in image.controllers.values():
        yield RegisterControllerRecord(
            controller_id=controller.controller_id,
            incarnation_id=controller.incarnation_id,
            end_points=controller.end_points,
            features=controller.features,
        )


def _topic(topic: TopicImage) -> Iterator[MetadataRecord]:
    yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
    for index, partition in topic.partitions.items():
        yield _partition_record(topic, index, partition)


def _partition_record(topic: TopicImage, index: int, partition: PartitionImage) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index,
        topic_id=topic.topic_id,
        replicas=partition.replicas,
        isr=partition.isr,
        removing_replicas=partition.removing_replicas,
        adding_replicas=partition.adding_replicas,
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=partition.directories,
        eligible_leader_replicas=partition.eligible_leader_replicas or None,
        last_known_elr=partition.last_known_elr or None,
    )
