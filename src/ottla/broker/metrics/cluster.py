"""The metadata of the cluster, as the controllers know it.

The names `kafka_brokers` and `kafka_topic_` are those of kafka_exporter, which exists once in a cluster. So only the
active controller exposes them: dashboards add up the values of all nodes.
"""

from collections.abc import Mapping, Sequence

from ottla.broker.metrics.topic_blocks import TopicBlock, partitions_in, topic_blocks
from ottla.broker.quorum.quorum import Quorum
from ottla.core.controller.image import BrokerImage, MetadataImage
from ottla.core.raft.node import RaftNode
from ottla.core.raft.roles import Follower, Unattached
from ottla.metrics import Collection, Collector, Family, GaugeCollector, Kind, labels, line


def _gauge(name: str, meaning: str, *label_names: str) -> Family:
    return Family(name, Kind.GAUGE, meaning, label_names)


_EXPORTED = (
    _gauge("kafka_brokers", "Brokers that are registered and not fenced."),
    _gauge(
        "kafka_broker_info", "1 for each such broker, with its id and its first address.", "id", "address"
    ),
    _gauge("kafka_topic_partitions", "Partitions of the topic.", "topic"),
    _gauge("kafka_topic_partition_leader", "The id of the leader, or -1.", "topic", "partition"),
    _gauge("kafka_topic_partition_replicas", "Replicas of the partition.", "topic", "partition"),
    _gauge(
        "kafka_topic_partition_in_sync_replica", "In-sync replicas of the partition.", "topic", "partition"
    ),
    _gauge(
        "kafka_topic_partition_leader_is_preferred",
        "1 if the first replica leads the partition, otherwise 0.",
        "topic",
        "partition",
    ),
    _gauge(
        "kafka_topic_partition_under_replicated_partition",
        "1 if some replicas are not in sync, otherwise 0.",
        "topic",
        "partition",
    ),
)
_CONTROLLER = "kafka_controller_kafkacontroller_"
_TOTALS = (
    _gauge(f"{_CONTROLLER}activecontrollercount", "1 if this node is the active controller, otherwise 0."),
    _gauge(f"{_CONTROLLER}activebrokercount", "Brokers that are registered and not fenced."),
    _gauge(f"{_CONTROLLER}fencedbrokercount", "Brokers that are registered and fenced."),
    _gauge(f"{_CONTROLLER}globaltopiccount", "Topics of the cluster."),
    _gauge(f"{_CONTROLLER}globalpartitioncount", "Partitions of the cluster."),
    _gauge(f"{_CONTROLLER}offlinepartitionscount", "Partitions that have no leader."),
    _gauge(
        f"{_CONTROLLER}preferredreplicaimbalancecount", "Partitions that are not led by their first replica."
    ),
    _gauge(
        f"{_CONTROLLER}lastappliedrecordoffset", "The offset of the last metadata record that was applied."
    ),
)
FAMILIES = (*_EXPORTED, *_TOTALS)
_PER_PARTITION = tuple(family.name for family in _EXPORTED[3:])
_NOTHING = ("",) * len(FAMILIES)
_NO_TOTALS = ("",) * len(_TOTALS)


class ControllerCollector(Collector):
    families = FAMILIES

    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum

    async def start(self) -> "_Cluster":
        return _Cluster(self._quorum.image, is_active=self._quorum.is_active)


class _Cluster(Collection[TopicBlock]):
    def __init__(self, image: MetadataImage, *, is_active: bool) -> None:
        self.items = topic_blocks(image)
        self._image = image
        self._is_active = is_active
        self._partitions = self._offline = self._imbalanced = 0

    def collect(self, item: TopicBlock) -> Sequence[str]:
        written: list[list[str]] = [[] for _ in _PER_PARTITION]
        topic, first = item
        for index, partition in partitions_in(item):
            is_preferred = partition.leader == partition.replicas[0]
            self._partitions += 1
            self._offline += not partition.has_leader
            self._imbalanced += not is_preferred
            if not self._is_active:
                continue
            labels_text = f'{{topic="{topic.name}",partition="{index}"}}'
            replicas, in_sync = len(partition.replicas), len(partition.isr)
            values = (partition.leader, replicas, in_sync, int(is_preferred), int(in_sync < replicas))
            for lines, name, value in zip(written, _PER_PARTITION, values, strict=True):
                lines.append(f"{name}{labels_text} {value}\n")
        if not self._is_active:
            return _NOTHING
        count = ""
        if first == 0:
            count = line("kafka_topic_partitions", f'{{topic="{topic.name}"}}', len(topic.partitions))
        return ("", "", count, *map("".join, written), *_NO_TOTALS)

    def finish(self) -> Sequence[str]:
        image = self._image
        fenced = sum(broker.fenced for broker in image.brokers.values())
        values = (
            int(self._is_active),
            len(image.brokers) - fenced,
            fenced,
            len(image.topics),
            self._partitions,
            self._offline,
            self._imbalanced,
            image.offset,
        )
        totals = [line(family.name, "", value) for family, value in zip(_TOTALS, values, strict=True)]
        if not self._is_active:
            return (*_NOTHING[: len(_EXPORTED)], *totals)
        brokers = [broker for broker in image.brokers.values() if not broker.fenced]
        info = "".join(line("kafka_broker_info", _broker_labels(broker), 1) for broker in brokers)
        return (line("kafka_brokers", "", len(brokers)), info, "", *("",) * len(_PER_PARTITION), *totals)


def _broker_labels(broker: BrokerImage) -> str:
    point = broker.end_points[0] if broker.end_points else None
    return labels(id=broker.broker_id, address="" if point is None else f"{point.host}:{point.port}")


_RAFT = "kafka_server_raftmetrics_"
RAFT_FAMILIES = (
    _gauge(
        f"{_RAFT}current_state", "1, with the part of this node in the quorum, e.g. leader.", "current_state"
    ),
    _gauge(f"{_RAFT}current_leader", "The id of the active controller, or -1."),
    _gauge(f"{_RAFT}current_vote", "The id of the candidate that this node votes for in the epoch, or -1."),
    _gauge(f"{_RAFT}current_epoch", "The epoch of the quorum."),
    _gauge(f"{_RAFT}high_watermark", "The high watermark of the metadata log."),
    _gauge(f"{_RAFT}log_end_offset", "The log end offset of this node's metadata log."),
)


def raft_collector(quorum: Quorum) -> Collector:
    return GaugeCollector(RAFT_FAMILIES, lambda: _raft_values(quorum.driver.node))


def _raft_values(node: RaftNode) -> Mapping[str, float]:
    # A leader that commits its own removal, and a node whose removal is not committed, are no observers yet (KIP-853).
    is_observer = not node.is_voter and isinstance(node.role, Unattached | Follower)
    state = "observer" if is_observer else type(node.role).__name__.lower()
    return {
        f"{_RAFT}current_state" + labels(current_state=state): 1,
        f"{_RAFT}current_leader": node.leader_id,
        f"{_RAFT}current_vote": node.hard_state.voted_id,
        f"{_RAFT}current_epoch": node.epoch,
        f"{_RAFT}high_watermark": node.high_watermark,
        f"{_RAFT}log_end_offset": node.log.end_offset,
    }
