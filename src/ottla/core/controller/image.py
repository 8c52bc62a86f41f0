"""The cluster's metadata at one offset of the metadata log. Immutable, so that the broker can serve from it while the
next image is built. Parts that did not change between two images are the same objects in both.
"""

import uuid
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.model.config.definition import ResourceType as ResourceType
from ottla.model.ids import NO_LEADER_EPOCH, NO_OFFSET, TopicPartition
from ottla.protocol.metadata_records.records import NO_LEADER, Endpoint, FeatureRange, OpaqueRecord

METADATA_VERSION = "metadata.version"
GROUP_VERSION = "group.version"  # 1: the consumer protocol of KIP-848
TRANSACTION_VERSION = "transaction.version"  # 1: flexible records, 2: an epoch per transaction (KIP-890)
ELR_VERSION = "eligible.leader.replicas.version"  # 1: KIP-966
KRAFT_VERSION = "kraft.version"  # 1: voters that change (KIP-853); the quorum has its level, not the metadata
_CORDONED_METADATA_VERSION_MIN = 30  # 4.3-IV0: registrations have cordoned directories (KIP-1066)
_ELR_METADATA_VERSION_MIN = 23  # 4.0-IV1: partition records have the eligible leader replicas

# KIP-858: the first 100 ids are not directories. `None` is Kafka's MIGRATING: the broker has the replica somewhere.
UNASSIGNED_DIRECTORY = uuid.UUID(int=1)
LOST_DIRECTORY = uuid.UUID(int=2)
_RESERVED_DIRECTORIES = 100


def is_reserved_directory(directory: uuid.UUID | None) -> bool:
    return directory is None or directory.int < _RESERVED_DIRECTORIES


class ConfigResource(NamedTuple):
    """The name "" of a broker resource is the default for all brokers."""

    type: int  # a ResourceType
    name: str


class PartitionImage(NamedTuple):
    """`directories` is in the order of `replicas`; a reserved id is a directory that the broker has not reported yet.

    Without ELR (KIP-966) the last in-sync replica stays in `isr` when it stops. With ELR it moves to
    `eligible_leader_replicas`, and `last_known_elr` has the last leader while `isr` is empty.
    """

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

    @property
    def is_being_reassigned(self) -> bool:
        """Whether replicas are being added or removed (KIP-455)."""
        return bool(self.adding_replicas or self.removing_replicas)

    def directory(self, broker_id: int) -> uuid.UUID | None:
        return self.directories[self.replicas.index(broker_id)]


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

    @property
    def has_uncordoned_directory(self) -> bool:
        """Whether new replicas may be placed on it (KIP-1066). A broker of an old release has listed no directories."""
        cordoned = self.cordoned_log_dirs or ()
        return not self.log_dirs or any(directory not in cordoned for directory in self.log_dirs)

    def is_online(self, directory: uuid.UUID | None) -> bool:
        """Whether a replica in `directory` is available. It is assumed to be until the broker reports its directory."""
        if is_reserved_directory(directory):
            return directory != LOST_DIRECTORY
        # A broker that registered before KIP-858 has listed no directories.
        return not self.log_dirs or directory in self.log_dirs


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
    opaque: Mapping[Hashable, OpaqueRecord] = field(default_factory=dict)

    @property
    def metadata_version(self) -> int:
        """The level of metadata.version; 0 before the first record sets it."""
        return self.features.get(METADATA_VERSION, 0)

    @property
    def has_elr(self) -> bool:
        """Whether partitions keep eligible leader replicas (KIP-966)."""
        return self.features.get(ELR_VERSION, 0) >= 1 and self.metadata_version >= _ELR_METADATA_VERSION_MIN

    @property
    def has_cordoned_directories(self) -> bool:
        """Whether the metadata may have them (KIP-1066)."""
        return self.metadata_version >= _CORDONED_METADATA_VERSION_MIN

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        found = self.topics.get(topic)
        return None if found is None else found.partitions.get(index)

    def topic_id_on(self, broker_id: int, partition: TopicPartition) -> uuid.UUID | None:
        """The topic id of a partition of which the broker has a replica, otherwise None."""
        topic = self.topics.get(partition.topic)
        found = None if topic is None else topic.partitions.get(partition.partition)
        is_here = found is not None and broker_id in found.replicas
        return topic.topic_id if topic is not None and is_here else None

    def config(self, resource_type: int, name: str) -> Mapping[str, str]:
        """The dynamic configs of the resource, without defaults."""
        return self.configs.get(ConfigResource(resource_type, name), {})

    def is_available(self, partition: PartitionImage, replica: int) -> bool:
        """Whether the replica may lead: its broker is active, and its directory is online (KIP-858)."""
        broker = self.brokers.get(replica)
        return broker is not None and broker.is_active and broker.is_online(partition.directory(replica))

    def is_active(self, broker_id: int) -> bool:
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.is_active
