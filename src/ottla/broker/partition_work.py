"""What a new metadata image changes among the partitions of this broker."""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from ottla.broker.hosted_partition import HostedPartition
from ottla.core.controller.image import PartitionImage, TopicImage
from ottla.model.ids import TopicPartition

# Up to this many are opened or deleted in one turn of the event loop; each takes half a millisecond.
FEW_PARTITIONS = 20
PARTITIONS_PER_STEP = 10
# A new role of an open partition takes some ten microseconds.
ROLES_PER_STEP = 100


class PlacedPartition(NamedTuple):
    topic: TopicImage
    index: int  # type: ignore[assignment]  # hides tuple.index, which is not needed here
    image: PartitionImage

    @property
    def key(self) -> tuple[UUID, int]:
        return self.topic.topic_id, self.index

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic.name, self.index)


class PartitionWork(NamedTuple):
    """Partitions to delete, to open, and open ones that may get another role."""

    deleted: Sequence[HostedPartition]
    new: Sequence[PlacedPartition]
    changed: Sequence[tuple[HostedPartition, PlacedPartition]]

    @property
    def is_small(self) -> bool:
        return len(self.deleted) + len(self.new) <= FEW_PARTITIONS and len(self.changed) <= ROLES_PER_STEP
