"""Invariants of every metadata image."""

from ottla.core.controller.image import ConfigResource, MetadataImage, PartitionImage, TopicImage
from ottla.model.config.definition import ResourceType
from ottla.protocol.metadata_records.records import NO_LEADER


def validate_image(image: MetadataImage) -> None:
    """Raises AssertionError if an invariant does not hold."""
    assert len(image.topics) == len(image.topics_by_id), "topics by name and by id differ"
    for name, topic in image.topics.items():
        assert topic.name == name, f"topic {topic.name} is filed under {name}"
        assert image.topics_by_id.get(topic.topic_id) is topic, f"topic {name} is not filed under its id"
        _validate_topic(image, topic)
    for resource, configs in image.configs.items():
        _validate_configs(image, resource)
        assert configs, f"{resource} is listed without configs"
    for broker_id, broker in image.brokers.items():
        assert broker.broker_id == broker_id, f"broker {broker.broker_id} is filed under {broker_id}"
        assert broker.epoch <= image.offset, f"broker {broker_id} registered after the image's offset"
    assert all(level > 0 for level in image.features.values()), "a feature is listed at level 0"
    assert image.next_producer_id >= 0, f"the next producer id is {image.next_producer_id}"


def _validate_topic(image: MetadataImage, topic: TopicImage) -> None:
    assert list(topic.partitions) == list(range(len(topic.partitions))), (
        f"topic {topic.name} has partitions {list(topic.partitions)}"
    )
    assert topic.partitions, f"topic {topic.name} has no partitions"
    for index, partition in topic.partitions.items():
        _validate_partition(image, f"{topic.name}-{index}", partition)


def _validate_partition(image: MetadataImage, name: str, partition: PartitionImage) -> None:
    replicas = set(partition.replicas)
    assert len(replicas) == len(partition.replicas) > 0, f"{name} has replicas {partition.replicas}"
    assert len(partition.directories) == len(partition.replicas), f"{name} has {partition.directories}"
    assert set(partition.isr) <= replicas, f"{name} has in-sync replicas {partition.isr} of {replicas}"
    assert partition.partition_epoch >= partition.leader_epoch >= 0, f"{name} has epochs {partition}"
    if partition.leader == NO_LEADER:
        return
    assert partition.leader in partition.isr, f"{name} is led by {partition.leader}, which is not in sync"
    # A broker that registers again stays the leader of partitions that no other broker can lead, until it is unfenced.
    others = [other for other in partition.isr if other != partition.leader and image.is_active(other)]
    assert image.is_active(partition.leader) or not others, (
        f"{name} is led by {partition.leader}, which is fenced, while {others} could lead"
    )


def _validate_configs(image: MetadataImage, resource: ConfigResource) -> None:
    if resource.type == ResourceType.TOPIC:
        assert resource.name in image.topics, f"topic {resource.name} has configs but does not exist"
