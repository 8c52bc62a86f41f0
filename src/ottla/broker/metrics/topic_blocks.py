"""Divides the partitions of the metadata image into small blocks."""

from collections.abc import Iterator

from ottla.core.controller.image import MetadataImage, PartitionImage, TopicImage

_PARTITIONS_PER_BLOCK = 5

# A topic, and the first of its partitions in the block. A plain tuple: there may be ten thousands, built in one turn.
TopicBlock = tuple[TopicImage, int]


def topic_blocks(image: MetadataImage) -> list[TopicBlock]:
    return [
        (topic, first)
        for topic in image.topics.values()
        for first in range(0, len(topic.partitions), _PARTITIONS_PER_BLOCK)
    ]


def partitions_in(block: TopicBlock) -> Iterator[tuple[int, PartitionImage]]:
    """The numbers of a topic's partitions have no gaps."""
    topic, first = block
    for index in range(first, min(first + _PARTITIONS_PER_BLOCK, len(topic.partitions))):
        yield index, topic.partitions[index]
