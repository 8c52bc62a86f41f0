"""Finds the partitions that a broker's coming or going changes, without a walk over all partitions. As Kafka's
BrokersToIsrs and BrokersToElrs.
"""

import uuid
from collections import Counter
from collections.abc import Collection

from ottla.core.controller.image import MetadataImage, PartitionImage

PartitionKey = tuple[uuid.UUID, int]  # topic id, partition


class PartitionIndex:
    """`leaderless` has the partitions without a leader, `imbalanced` those whose leader is not the preferred one.

    Dicts serve as sets that keep their order.
    """

    def __init__(self, image: MetadataImage) -> None:
        self.partitions_reset(image)

    def of_broker(self, broker_id: int) -> Collection[PartitionKey]:
        """The partitions that have the broker as an in-sync or an eligible leader replica."""
        return self._of_broker.get(broker_id, {}).keys()

    def leads(self, broker_id: int) -> bool:
        return self._led[broker_id] > 0

    def partition_changed(
        self, topic_id: uuid.UUID, index: int, old: PartitionImage | None, new: PartitionImage | None
    ) -> None:
        key = (topic_id, index)
        before = () if old is None else old.isr + old.eligible_leader_replicas
        after = () if new is None else new.isr + new.eligible_leader_replicas
        if before != after:
            for broker_id in before:
                if broker_id not in after:
                    del self._of_broker[broker_id][key]
            for broker_id in after:
                if broker_id not in before:
                    self._of_broker.setdefault(broker_id, {})[key] = None
        if new is not None and new.has_leader and new.leader != new.replicas[0]:
            self.imbalanced[key] = None
        else:
            self.imbalanced.pop(key, None)
        if old is not None and (new is None or new.leader != old.leader):
            self._led[old.leader] -= 1
            self.leaderless.pop(key, None)
        if new is not None and (old is None or new.leader != old.leader):
            self._led[new.leader] += 1
            if not new.has_leader:
                self.leaderless[key] = None

    def partitions_reset(self, image: MetadataImage) -> None:
        self.leaderless: dict[PartitionKey, None] = {}
        self.imbalanced: dict[PartitionKey, None] = {}
        self._of_broker: dict[int, dict[PartitionKey, None]] = {}
        self._led: Counter[int] = Counter()
        for topic_id, topic in image.topics_by_id.items():
            for index, partition in topic.partitions.items():
                self.partition_changed(topic_id, index, None, partition)

    def validate(self, image: MetadataImage) -> None:
        """Raises AssertionError if the index does not match the image."""
        expected = PartitionIndex(image)
        assert self.leaderless.keys() == expected.leaderless.keys(), "the leaderless partitions differ"
        assert self.imbalanced.keys() == expected.imbalanced.keys(), "the imbalanced partitions differ"
        for broker_id in self._of_broker.keys() | expected._of_broker.keys():
            assert self.of_broker(broker_id) == expected.of_broker(broker_id), (
                f"differs for broker {broker_id}"
            )
        assert +self._led == +expected._led, f"leaders are {self._led}, not {expected._led}"
