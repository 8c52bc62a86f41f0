"""The cluster's topics as groups see them: a view of the metadata image."""

import uuid
from collections.abc import Iterable

from ottla.core.controller.image import MetadataImage, TopicImage
from ottla.core.groups.state import TopicInfo


class ImageTopics:
    """The topics of one image. Caches what it looks up, as many groups use the same topics."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._cached: dict[uuid.UUID, TopicInfo] = {}

    @property
    def version(self) -> int:
        return self._image.offset

    def find(self, name: str) -> TopicInfo | None:
        topic = self._image.topics.get(name)
        return None if topic is None else self._info(topic)

    def find_by_id(self, topic_id: uuid.UUID) -> TopicInfo | None:
        topic = self._image.topics_by_id.get(topic_id)
        return None if topic is None else self._info(topic)

    def names(self) -> Iterable[str]:
        return self._image.topics

    def _info(self, topic: TopicImage) -> TopicInfo:
        info = self._cached.get(topic.topic_id)
        if info is None:
            racks = tuple(self._racks(partition.replicas) for partition in topic.partitions.values())
            info = TopicInfo(topic.topic_id, topic.name, len(topic.partitions), racks)
            self._cached[topic.topic_id] = info
        return info

    def _racks(self, replicas: Iterable[int]) -> frozenset[str]:
        brokers = (self._image.brokers.get(replica) for replica in replicas)
        return frozenset(broker.rack for broker in brokers if broker is not None and broker.rack)
