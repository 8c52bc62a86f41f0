"""Publishes metadata in which a partition of the broker has another leader, other replicas or another ISR."""

from dataclasses import replace
from typing import Any

from kio.static.primitive import i16, u16
from tests.unit.broker.broker_bench import Bench

from ottla.broker.hosted_partition import HostedPartition
from ottla.core.controller.image import BrokerImage, MetadataImage, PartitionImage
from ottla.protocol.metadata_records.records import Endpoint

OTHER = 2
OTHER_ADDRESS = Endpoint(name="PLAINTEXT", host="other.example", port=u16(9192), security_protocol=i16(0))


def partition_image(bench: Bench, topic: str = "journal", index: int = 0) -> PartitionImage:
    return bench.services.metadata.image.topics[topic].partitions[index]


def hosted_partition(bench: Bench, topic: str = "journal", index: int = 0) -> HostedPartition:
    return bench.services.partitions.find_replica(topic, None, index)


def publish(bench: Bench, image: MetadataImage) -> None:
    """Applies the image as if the quorum had committed it."""
    loader = bench.services.quorum.loader
    old, loader.image = loader.image, image
    for subscriber in loader._subscribers:
        work: Any = subscriber(old, image)
        if work is not None:
            bench.services.tasks.start(work)


def change_partition(bench: Bench, topic: str = "journal", index: int = 0, **fields: Any) -> None:
    """Raises the partition epoch, and the leader epoch too if the leader changes, unless `fields` say otherwise."""
    image = bench.services.metadata.image
    old = image.topics[topic].partitions[index]
    fields.setdefault("partition_epoch", old.partition_epoch + 1)
    replicas = fields.get("replicas", old.replicas)
    fields.setdefault(
        "directories", tuple(old.directory(each) if each in old.replicas else None for each in replicas)
    )
    if "leader" in fields:
        fields.setdefault("leader_epoch", old.leader_epoch + 1)
    changed = image.topics[topic]._replace(
        partitions={**image.topics[topic].partitions, index: old._replace(**fields)}
    )
    publish(
        bench,
        replace(
            image,
            topics={**image.topics, topic: changed},
            topics_by_id={**image.topics_by_id, changed.topic_id: changed},
        ),
    )


def step_down(bench: Bench, topic: str = "journal", index: int = 0) -> None:
    change_partition(bench, topic, index, leader=OTHER, replicas=(1, OTHER), isr=(1, OTHER))


def lead_alone(bench: Bench, topic: str = "journal", index: int = 0) -> None:
    change_partition(bench, topic, index, leader=1, replicas=(1,), isr=(1,))


def lead_with_follower(bench: Bench, topic: str = "journal", index: int = 0) -> None:
    """Acknowledgements wait for the fetches of broker 2, which does not exist, from now on."""
    change_partition(bench, topic, index, leader=1, replicas=(1, OTHER), isr=(1, OTHER))


def register_other(bench: Bench, **fields: Any) -> BrokerImage:
    image = bench.services.metadata.image
    broker = image.brokers[1]._replace(broker_id=OTHER, epoch=77, end_points=(OTHER_ADDRESS,), **fields)
    publish(bench, replace(image, brokers={**image.brokers, OTHER: broker}))
    return broker
