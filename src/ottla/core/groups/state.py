"""The state that the machines of one shard share: the groups, the settings, and the cluster's topics."""

import uuid
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from ottla.core.groups.group import Group
from ottla.core.groups.settings import GroupSettings


class TopicInfo(NamedTuple):
    """`racks` has one set per partition: the racks of its replicas' brokers. Empty if the brokers have no racks."""

    topic_id: uuid.UUID
    name: str
    num_partitions: int
    racks: tuple[frozenset[str], ...] = ()


class ClusterTopics(Protocol):
    """A view of the cluster's topics, which the shell implements on top of its metadata image."""

    @property
    def version(self) -> int:
        """Grows with every change of the metadata."""
        ...

    def find(self, name: str) -> TopicInfo | None: ...

    def find_by_id(self, topic_id: uuid.UUID) -> TopicInfo | None: ...

    def names(self) -> Iterable[str]: ...


class GroupsState:
    """`groups` has groups of all types; code that needs a certain type checks with isinstance."""

    def __init__(self, settings: GroupSettings, topics: ClusterTopics) -> None:
        self.settings = settings
        self.topics = topics
        self.groups: dict[str, Group] = {}
