"""The differences between two images, from which the publisher opens, closes and reconfigures partitions."""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

from ottla.core.controller.image import ConfigResource, MetadataImage, PartitionImage, TopicImage

Key = TypeVar("Key")


class PartitionChange(NamedTuple):
    """`old` is None for a partition that was added to an existing topic."""

    partition: int
    old: PartitionImage | None
    new: PartitionImage


class TopicChange(NamedTuple):
    topic: TopicImage
    partitions: tuple[PartitionChange, ...]


class MetadataChanges(NamedTuple):
    """A topic that was deleted and created again under its name is in both lists, with different ids."""

    created: tuple[TopicImage, ...]
    deleted: tuple[TopicImage, ...]
    changed: tuple[TopicChange, ...]
    configs: tuple[ConfigResource, ...]
    brokers: tuple[int, ...]
    features: bool


def changes_since(old: MetadataImage, new: MetadataImage) -> MetadataChanges:
    created: tuple[TopicImage, ...] = ()
    deleted: tuple[TopicImage, ...] = ()
    changed: tuple[TopicChange, ...] = ()
    if old.topics_by_id is not new.topics_by_id:
        before, after = old.topics_by_id, new.topics_by_id
        created = tuple(topic for topic_id, topic in after.items() if topic_id not in before)
        deleted = tuple(topic for topic_id, topic in before.items() if topic_id not in after)
        changed = tuple(
            TopicChange(topic, _partition_changes(before[topic_id], topic))
            for topic_id, topic in after.items()
            if topic_id in before and before[topic_id] is not topic
        )
    return MetadataChanges(
        created,
        deleted,
        tuple(change for change in changed if change.partitions),
        _changed_keys(old.configs, new.configs),
        _changed_keys(old.brokers, new.brokers),
        old.features != new.features,
    )


def _partition_changes(old: TopicImage, new: TopicImage) -> tuple[PartitionChange, ...]:
    return tuple(
        PartitionChange(index, old.partitions.get(index), partition)
        for index, partition in new.partitions.items()
        if old.partitions.get(index) is not partition
    )


def _changed_keys(old: Mapping[Key, Any], new: Mapping[Key, Any]) -> tuple[Key, ...]:
    if old is new:
        return ()
    kept = tuple(key for key, value in new.items() if old.get(key) != value)
    return kept + tuple(key for key in old if key not in new)
