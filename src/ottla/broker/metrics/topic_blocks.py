"""Divides the partitions of the metadata image into small blocks."""

from collections.abc import Iterator
from typing import NamedTuple

from ottla.core.controller.image import MetadataImage, PartitionImage, TopicImage

_PARTITIONS_PER_BLOCK = 20


class TopicBlock(NamedTuple):
    topic: TopicImage
    first: int

    @property
    def is_first(self) -> bool:
        return self.first == 0

    def partitions(self) -> Iterator[tuple[int, PartitionImage]]:
        """The numbers of a topic's partitions have no gaps."""
        found = self.topic.partitions
        for index in range(self.first, min(self.first + _PARTITIONS_PER_BLOCK, len(found))):
            yield index, found[index]


def topic_blocks(image: MetadataImage) -> list[TopicBlock]:
    return [
        TopicBlock(topic, first)
        for topic in image.topics.values()
        for first in range(0, len(topic.partitions), _PARTITIONS_PER_BLOCK)
    ]
