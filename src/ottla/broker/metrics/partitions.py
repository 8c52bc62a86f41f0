"""The partitions of this broker: their logs, and the replicas of those that it leads."""

import asyncio
from collections.abc import Sequence

from ottla.broker.hosted_partition import HostedPartition
from ottla.broker.metrics.topic_blocks import TopicBlock, partitions_in, topic_blocks
from ottla.broker.services import BrokerServices
from ottla.core.controller.image import MetadataImage
from ottla.core.partition.leader import PartitionLeader
from ottla.metrics import Collection, Collector, Family, Kind, line


def _gauge(name: str, meaning: str, *labels: str) -> Family:
    return Family(name, Kind.GAUGE, meaning, labels)


def _of_partition(name: str, meaning: str) -> Family:
    return _gauge(name, meaning, "topic", "partition")


_REPLICAS = (
    _of_partition("kafka_log_log_size", "Bytes of the replica's log in this broker's data directory."),
    _of_partition("kafka_log_log_numlogsegments", "Segments of the replica's log."),
    _of_partition("kafka_log_log_logstartoffset", "The log start offset of the replica."),
    _of_partition("kafka_log_log_logendoffset", "The log end offset of the replica."),
)
_LED = (
    _of_partition(
        "kafka_topic_partition_current_offset", "The high watermark: the offset of the next committed record."
    ),
    _of_partition("kafka_topic_partition_oldest_offset", "The log start offset of the leader."),
    _of_partition("kafka_cluster_partition_replicascount", "Replicas of the partition."),
    _of_partition("kafka_cluster_partition_insyncreplicascount", "In-sync replicas of the partition."),
    _of_partition(
        "kafka_cluster_partition_underreplicated", "1 if some replicas are not in sync, otherwise 0."
    ),
    _of_partition(
        "kafka_cluster_partition_underminisr", "1 if fewer than min.insync.replicas are in sync, otherwise 0."
    ),
    _of_partition(
        "kafka_cluster_partition_atminisr", "1 if exactly min.insync.replicas are in sync, otherwise 0."
    ),
    _of_partition(
        "kafka_cluster_partition_laststableoffsetlag",
        "How far open transactions hold the last stable offset behind the high watermark.",
    ),
)
_MANAGER = "kafka_server_replicamanager_"
_TOTALS = (
    _gauge(f"{_MANAGER}partitioncount", "Replicas that this broker should have, offline ones included."),
    _gauge(f"{_MANAGER}leadercount", "Partitions that this broker leads."),
    _gauge(
        f"{_MANAGER}offlinereplicacount",
        "Replicas whose log is not open: their disk has failed, for example.",
    ),
    _gauge(f"{_MANAGER}underreplicatedpartitions", "Led partitions of which some replicas are not in sync."),
    _gauge(
        f"{_MANAGER}underminisrpartitioncount", "Led partitions with fewer in-sync replicas than required."
    ),
    _gauge(
        f"{_MANAGER}atminisrpartitioncount",
        "Led partitions with exactly as many in-sync replicas as required.",
    ),
)
FAMILIES = (*_REPLICAS, *_LED, *_TOTALS)
_PER_REPLICA = tuple(family.name for family in _REPLICAS)
_PER_LED = tuple(family.name for family in _LED)
_NOTHING = ("",) * len(FAMILIES)
_NO_REPLICA, _NO_LED, _NO_TOTALS = ("",) * len(_REPLICAS), ("",) * len(_LED), ("",) * len(_TOTALS)


class PartitionsCollector(Collector):
    families = FAMILIES

    def __init__(self, services: BrokerServices) -> None:
        self._services = services

    async def start(self) -> "_Partitions":
        services = self._services
        image = services.metadata.image
        # Each list takes some milliseconds if it is long.
        blocks = topic_blocks(image)
        await asyncio.sleep(0)
        hosted = list(services.partitions)
        await asyncio.sleep(0)
        return _Partitions(services.config.node_id, image, [*hosted, *blocks])


class _Partitions(Collection[HostedPartition | TopicBlock]):
    def __init__(
        self, node_id: int, image: MetadataImage, items: Sequence[HostedPartition | TopicBlock]
    ) -> None:
        self.items = items
        self._node_id = node_id
        self._image = image
        self._assigned = self._open = self._led = 0
        self._under_replicated = self._under_min_isr = self._at_min_isr = 0

    def collect(self, item: HostedPartition | TopicBlock) -> Sequence[str]:
        if not isinstance(item, HostedPartition):
            self._assigned += sum(self._node_id in partition.replicas for _, partition in partitions_in(item))
            return _NOTHING
        if item.is_closed or item.failure is not None:
            return _NOTHING
        self._open += 1
        topic, index = item.topic_partition
        labels_text = f'{{topic="{topic}",partition="{index}"}}'
        log = item.log
        values = (log.size_bytes, len(log.segments), log.offsets.start, log.offsets.end)
        replica = [f"{name}{labels_text} {value}\n" for name, value in zip(_PER_REPLICA, values, strict=True)]
        leader = item.role
        if not isinstance(leader, PartitionLeader):
            return (*replica, *_NO_LED, *_NO_TOTALS)
        led = zip(_PER_LED, self._measure(item, leader), strict=True)
        return (*replica, *(f"{name}{labels_text} {value}\n" for name, value in led), *_NO_TOTALS)

    def _measure(self, hosted: HostedPartition, leader: PartitionLeader) -> tuple[int, ...]:
        """The values of `_LED`."""
        image = self._image.partition(*hosted.topic_partition)
        replicas, in_sync = len(leader.replicas.followers) + 1, len(leader.isr)
        # As in Kafka, replicas that a reassignment adds are not missed until it ends.
        added = 0 if image is None else len(image.adding_replicas)
        is_under_replicated = in_sync < replicas - added
        is_at_min_isr = in_sync == min(leader.settings.min_insync_replicas, replicas)
        self._led += 1
        self._under_replicated += is_under_replicated
        self._under_min_isr += leader.is_under_min_isr
        self._at_min_isr += is_at_min_isr
        return (
            leader.high_watermark,
            hosted.log.offsets.start,
            replicas,
            in_sync,
            int(is_under_replicated),
            int(leader.is_under_min_isr),
            int(is_at_min_isr),
            leader.high_watermark - leader.last_stable_offset,
        )

    def finish(self) -> Sequence[str]:
        # The image may be ahead of the partitions that are open, and behind them if some were opened meanwhile.
        assigned = max(self._assigned, self._open)
        values = (
            assigned,
            self._led,
            assigned - self._open,
            self._under_replicated,
            self._under_min_isr,
            self._at_min_isr,
        )
        totals = [line(family.name, "", value) for family, value in zip(_TOTALS, values, strict=True)]
        return (*_NO_REPLICA, *_NO_LED, *totals)
