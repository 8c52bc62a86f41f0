"""The cluster's metadata at one offset of the metadata log. Immutable, so that the broker can serve from it while the
next image is built. Parts that did not change between two images are the same objects in both.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.model.config.definition import ResourceType as ResourceType
from ottla.model.ids import NO_LEADER_EPOCH, NO_OFFSET
from ottla.protocol.metadata_records.records import NO_LEADER, Endpoint, FeatureRange, OpaqueRecord

METADATA_VERSION = "metadata.version"
GROUP_VERSION = "group.version"  # 1: the consumer protocol of KIP-848
TRANSACTION_VERSION = "transaction.version"  # 1: flexible records, 2: an epoch per transaction (KIP-890)


class ConfigResource(NamedTuple):
    """The name "" of a broker resource is the default for all brokers."""

    type: int  # a ResourceType
    name: str


class PartitionImage(NamedTuple):
    """`directories` is in the order of `replicas`; None is a directory that the broker has not reported yet."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[uuid.UUID | None, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()

    @property
    def has_leader(self) -> bool:
        return self.leader != NO_LEADER


class TopicImage(NamedTuple):
    """`partitions` is in order of the partition numbers."""

    name: str
    topic_id: uuid.UUID
    partitions: Mapping[int, PartitionImage]


class BrokerImage(NamedTuple):
    broker_id: int
    epoch: int
    incarnation_id: uuid.UUID
    end_points: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: tuple[uuid.UUID | None, ...]
    cordoned_log_dirs: tuple[uuid.UUID | None, ...] | None

    @property
    def is_active(self) -> bool:
        """Whether the broker may lead partitions and be in sync."""
        return not self.fenced and not self.in_controlled_shutdown


class ControllerImage(NamedTuple):
    controller_id: int
    incarnation_id: uuid.UUID
    end_points: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """All metadata up to and including the record at `offset`, which was written in `epoch`."""

    offset: int = NO_OFFSET
    epoch: int = NO_LEADER_EPOCH
    features: Mapping[str, int] = field(default_factory=dict)
    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    controllers: Mapping[int, ControllerImage] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topics_by_id: Mapping[uuid.UUID, TopicImage] = field(default_factory=dict)
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=dict)
    next_producer_id: int = 0
    opaque: tuple[OpaqueRecord, ...] = ()

    @property
    def metadata_version(self) -> int:
        """The level of metadata.version; 0 before the first record sets it."""
        return self.features.get(METADATA_VERSION, 0)

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        found = self.topics.get(topic)
        return None if found is None else found.partitions.get(index)

    def config(self, resource_type: int, name: str) -> Mapping[str, str]:
        """The dynamic configs of the resource, without defaults."""
        return self.configs.get(ConfigResource(resource_type, name), {})

    def is_active(self, broker_id: int) -> bool:
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.is_active
