"""What groups need to know of the cluster's topics. The shell gives a view of its metadata image."""

import uuid
from collections.abc import Iterable
from typing import NamedTuple, Protocol


class TopicInfo(NamedTuple):
    """`racks` has one set per partition: the racks of its replicas' brokers, empty where none is told."""

    topic_id: uuid.UUID
    name: str
    num_partitions: int
    racks: tuple[frozenset[str], ...] = ()


class ClusterTopics(Protocol):
    @property
    def version(self) -> int:
        """Grows with every change of the metadata."""
        ...

    def find(self, name: str) -> TopicInfo | None: ...

    def find_by_id(self, topic_id: uuid.UUID) -> TopicInfo | None: ...

    def names(self) -> Iterable[str]: ...
