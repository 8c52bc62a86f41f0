"""Checks the state of all nodes of a simulated cluster, again and again during a run, against replication's guarantees.

Each check has a name, which begins the message of its violation:

- one leader per epoch: two nodes never lead a partition in the same leader epoch;
- leader completeness: the log of a leader has everything that a high watermark of an earlier epoch exposed;
- committed prefix: what a high watermark has exposed never changes, and is the same in all logs, byte by byte;
- high watermark: it is within the log, and never goes back on a leader in its epoch;
- metadata: images and the controller's machine are valid, and images of the same offset are equal;
- node failure: no node stops by itself or logs an error, unless its disk is broken;
- stray folder: a node sets no folder aside whose topic id and partition its metadata places on it;
- cordon: a node creates no replica in a cordoned directory while it has another one;
- coordinator: every shard of groups and transactions is valid, and equals a replay of its log.
"""

import asyncio
import logging
from dataclasses import dataclass, field
from uuid import UUID

from ottla.broker.hosted_partition import HostedPartition
from ottla.core.controller.image import MetadataImage, PartitionImage
from ottla.core.controller.invariants import validate_image
from ottla.core.partition.leader import PartitionLeader
from ottla.model.ids import TopicPartition
from ottla.records.header import read_header
from ottla.sim.cluster import Cluster, ClusterNode
from ottla.sim.coordinator_audit import check_shards_against_logs, validate_shards
from ottla.sim.disk import SimDisk
from ottla.sim.history import Violation
from ottla.sim.loop import NODE
from ottla.storage.checkpoints import encode_partition_metadata
from ottla.storage.file_names import PARTITION_METADATA, parse_partition_dir
from ottla.storage.log import Log
from ottla.storage.log_dirs import LogDirs

ONE_LEADER = "one leader per epoch"
COMPLETENESS = "leader completeness"
COMMITTED_PREFIX = "committed prefix"
HIGH_WATERMARK = "high watermark"
METADATA = "metadata"
NODE_FAILURE = "node failure"
STRAY_FOLDER = "stray folder"
CORDON = "cordon"
INTERVAL_S = 0.3
_REPLAY_INTERVAL_S = 5.0  # of the logs of the coordinators, as a whole
_READ_BYTES = 1 << 20
_STRAY = "nothing deletes it"
# Strays are checked on their own. The others: while a coordinator's partition has too few replicas, and when
# another coordinator takes over.
_EXPECTED_ERRORS = (
    "partitions that are not in the metadata",
    "a folder of another topic is set aside",
    _STRAY,
    "is loaded again: %s",
    "another coordinator ends the transaction",
)

PartitionKey = tuple[UUID, int]


@dataclass
class _Exposed:
    """What high watermarks have exposed of a partition: its batches by base offset, and how far in which epoch."""

    name: str
    batches: dict[int, bytes] = field(default_factory=dict)
    start_offset: int = 0  # what is before it was checked, and is forgotten
    end_offset: int = 0
    ends: dict[int, int] = field(default_factory=dict)  # by leader epoch

    def before(self, epoch: int) -> int:
        return max((end for known, end in self.ends.items() if known < epoch), default=0)


class ClusterAudit:
    """`close` it at the end of a run. `skips_compacted`: the cleaners of the replicas work at different times."""

    def __init__(self, cluster: Cluster, *, skips_compacted: bool = False) -> None:
        self._cluster = cluster
        self._skips_compacted = skips_compacted
        self._leaders: dict[tuple[PartitionKey, int], int] = {}
        self._exposed: dict[PartitionKey, _Exposed] = {}
        # How far a log was compared, by the log: it is replaced with a restart.
        self._compared: dict[Log, int] = {}
        self._high_watermarks: dict[PartitionLeader, int] = {}
        self._directories: dict[int, _Directories] = {}
        self._images: dict[int, MetadataImage] = {}
        self.comparisons = 0
        self._errors = _ErrorLog(cluster)

    async def run(self, interval_s: float = INTERVAL_S) -> None:
        """Runs until cancelled."""
        loop = asyncio.get_running_loop()
        replay_s = loop.time()
        while True:
            self.check()
            if loop.time() >= replay_s:
                self.check_coordinators()
                replay_s = loop.time() + _REPLAY_INTERVAL_S
            await asyncio.sleep(interval_s)

    def check(self) -> None:
        """Raises Violation."""
        for node in self._cluster.nodes.values():
            self._check_node(node)
            self._check_cordons(node)
            if node.broker is not None:
                validate_shards(node.broker)
        for node, hosted in self._cluster.replicas():
            if hosted.failure is None and not hosted.is_closed and not node.has_disk_fault:
                self._check_replica(node, hosted)

    def check_coordinators(self) -> None:
        """Compares the coordinators with their logs."""
        for node in self._cluster.brokers:
            if node.broker is not None and not node.has_disk_fault:
                check_shards_against_logs(node.broker)

    def has_converged(self) -> bool:
        """After healing: all replicas of each partition have the same end and the same high watermark."""
        ends: dict[PartitionKey, tuple[int, int, int]] = {}
        for _, hosted in self._cluster.replicas():
            found = (hosted.log.log_end_offset, hosted.role.high_watermark, hosted.role.leader_epoch)
            if ends.setdefault(_key(hosted), found) != found:
                return False
        return True

    def check_converged(self) -> None:
        """Compares all logs from their start. Call it when nothing is written any more."""
        self._compared.clear()
        self.check()
        self.check_coordinators()

    def forget_checked(self) -> None:
        """Drops the batches, so that a long run needs no more memory. Call it after `check_converged`."""
        replicas = [hosted for _, hosted in self._cluster.replicas()]
        self._exposed = {key: self._exposed[key] for key in map(_key, replicas) if key in self._exposed}
        for exposed in self._exposed.values():
            exposed.batches.clear()
            exposed.start_offset = exposed.end_offset
        self._leaders = {known: node for known, node in self._leaders.items() if known[0] in self._exposed}
        logs, roles = {hosted.log for hosted in replicas}, {hosted.role for hosted in replicas}
        self._compared = {log: offset for log, offset in self._compared.items() if log in logs}
        self._high_watermarks = {role: end for role, end in self._high_watermarks.items() if role in roles}

    # Nodes

    def _check_node(self, node: ClusterNode) -> None:
        if node.failure is not None:
            raise Violation(f"{NODE_FAILURE}: {node.host} stopped by itself: {node.failure!r}")
        if self._errors.first is not None:
            raise Violation(self._errors.first)
        quorum = node.quorum
        if quorum is None or not quorum.is_started:
            return
        image = quorum.image
        self._check_strays(node, image)
        if self._images.get(node.node_id) is not image:
            self._images[node.node_id] = image
            self._validate(node, image)

    def _check_strays(self, node: ClusterNode, image: MetadataImage) -> None:
        for stray in [stray for stray in self._errors.strays if stray.node is node]:
            self._errors.strays.remove(stray)
            if stray.disk is node.disk and not node.has_disk_fault:
                stray.check(image)

    def _validate(self, node: ClusterNode, image: MetadataImage) -> None:
        assert node.quorum is not None
        try:
            validate_image(image)
            if node.quorum.machine is not None:
                node.quorum.machine.validate()
        except AssertionError as error:
            raise Violation(f"{METADATA}: {node.host} at offset {image.offset}: {error}") from error
        for other_id, other in self._images.items():
            if other.offset == image.offset and _partitions(other) != _partitions(image):
                raise Violation(
                    f"{METADATA}: {node.host} and node-{other_id} have different partitions at offset {image.offset}"
                )

    def _check_cordons(self, node: ClusterNode) -> None:
        """Only between two checks with the same cordons: a replica may be older than a cordon that has come since."""
        before, now = self._directories.get(node.node_id), _Directories.of(node)
        if now is None:
            self._directories.pop(node.node_id, None)
            return
        self._directories[node.node_id] = now
        if before is None or not now.has_cordons_of(before) or not now.online - now.cordoned:
            return
        for partition in now.paths.keys() - before.paths.keys():
            if now.paths[partition] in now.cordoned:
                raise Violation(
                    f"{CORDON}: {node.host} has created {partition} in {now.paths[partition]}, which is cordoned"
                )

    # Replicas

    def _check_replica(self, node: ClusterNode, hosted: HostedPartition) -> None:
        role, log, key = hosted.role, hosted.log, _key(hosted)
        exposed = self._exposed.setdefault(key, _Exposed(str(hosted.topic_partition)))
        self.comparisons += 1
        if not log.log_start_offset <= role.high_watermark <= log.log_end_offset:
            raise Violation(
                f"{HIGH_WATERMARK}: that of {exposed.name} on {node.host} is {role.high_watermark}, but the log has "
                f"{log.log_start_offset} to {log.log_end_offset}"
            )
        if isinstance(role, PartitionLeader):
            self._check_leader(node, role, log, key, exposed)
        if not (self._skips_compacted and "compact" in log.config.cleanup_policy):
            self._compare_to(node, log, exposed, role.high_watermark)
        exposed.ends[role.leader_epoch] = max(exposed.ends.get(role.leader_epoch, 0), role.high_watermark)

    def _check_leader(
        self, node: ClusterNode, role: PartitionLeader, log: Log, key: PartitionKey, exposed: _Exposed
    ) -> None:
        known = self._leaders.setdefault((key, role.leader_epoch), node.node_id)
        if known != node.node_id:
            raise Violation(
                f"{ONE_LEADER}: node {known} and node {node.node_id} lead {exposed.name} in epoch {role.leader_epoch}"
            )
        before = self._high_watermarks.get(role, 0)
        if role.high_watermark < before:
            raise Violation(
                f"{HIGH_WATERMARK}: that of {exposed.name} went back from {before} to {role.high_watermark} on "
                f"{node.host}, which leads it in epoch {role.leader_epoch}"
            )
        self._high_watermarks[role] = role.high_watermark
        needed = exposed.before(role.leader_epoch)
        if log.log_end_offset < needed:
            raise Violation(
                f"{COMPLETENESS}: {node.host} leads {exposed.name} in epoch {role.leader_epoch} with a log to "
                f"{log.log_end_offset}, but a high watermark was {needed} before"
            )
        if not (self._skips_compacted and "compact" in log.config.cleanup_policy):
            self._compare_to(node, log, exposed, min(needed, exposed.end_offset))

    def _compare_to(self, node: ClusterNode, log: Log, exposed: _Exposed, end_offset: int) -> None:
        """Compares the log up to `end_offset` with what was exposed before; what is new is exposed from now on."""
        compared = min(self._compared.get(log, log.log_start_offset), log.log_end_offset)
        offset = max(compared, log.log_start_offset, exposed.start_offset)
        while offset < end_offset:
            found = log.read(offset, _READ_BYTES, end_offset=end_offset, at_least_one=True)
            data = found.region.read()
            if not data:
                break
            position = 0
            while position < len(data):
                header = read_header(data, position)
                batch = bytes(data[position : position + header.size])
                self._compare_batch(node, exposed, header.base_offset, header.next_offset, batch)
                position += header.size
                offset = header.next_offset
        self._compared[log] = offset

    def _compare_batch(
        self, node: ClusterNode, exposed: _Exposed, base_offset: int, next_offset: int, batch: bytes
    ) -> None:
        known = exposed.batches.get(base_offset)
        if known is None and base_offset < exposed.end_offset:
            raise Violation(
                f"{COMMITTED_PREFIX}: {exposed.name} on {node.host} has a batch at offset {base_offset}, where other "
                "replicas have none"
            )
        if known is not None and known != batch:
            raise Violation(
                f"{COMMITTED_PREFIX}: {exposed.name} on {node.host} has another batch at offset {base_offset} than a "
                f"high watermark exposed before: epoch {read_header(batch, 0).partition_leader_epoch}, "
                f"was {read_header(known, 0).partition_leader_epoch}"
            )
        exposed.batches[base_offset] = batch
        exposed.end_offset = max(exposed.end_offset, next_offset)

    def close(self) -> None:
        self._errors.close()


@dataclass(frozen=True)
class _Directories:
    """The data directories of a broker at one check."""

    log_dirs: LogDirs
    online: frozenset[str]
    cordoned: frozenset[str]
    paths: dict[TopicPartition, str | None]

    @classmethod
    def of(cls, node: ClusterNode) -> "_Directories | None":
        """None if the node does not serve, or if its disk is broken."""
        if node.broker is None or node.has_disk_fault:
            return None
        found = node.broker.services.log_dirs
        paths = {partition: found.directory_of(partition) for partition in found.partitions}
        return cls(found, frozenset(found.paths), found.cordoned, paths)

    def has_cordons_of(self, before: "_Directories") -> bool:
        """The broker has a new set whenever it applies its configs, also if they are as before."""
        return (
            self.log_dirs is before.log_dirs
            and self.online == before.online
            and self.cordoned is before.cordoned
        )


@dataclass
class _Stray:
    """A folder that a node has set aside."""

    node: ClusterNode
    disk: SimDisk  # of this run of the node
    directory: str

    def check(self, image: MetadataImage) -> None:
        """`image` is at least as new as the one that the node has loaded. A deleted topic id never comes back."""
        partition = parse_partition_dir(self.directory.rpartition("/")[2].partition(".")[0])
        recorded = self.disk.peek(f"{self.directory}/{PARTITION_METADATA}")
        for topic_id, topic in image.topics_by_id.items():
            placed = None if partition is None else topic.partitions.get(partition.partition)
            if placed is None or encode_partition_metadata(topic_id) != recorded:
                continue
            # A replica that is being added may have been removed before.
            if self.node.node_id in placed.replicas and self.node.node_id not in placed.adding_replicas:
                raise Violation(
                    f"{STRAY_FOLDER}: {self.node.host} has set {self.directory} aside, which is a replica of "
                    f"{topic.name}"
                )


class _ErrorLog(logging.Handler):
    """Notices the first error that any node logs."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(logging.ERROR)
        self._cluster = cluster
        self.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        self.first: str | None = None
        self.strays: list[_Stray] = []  # to be checked
        logging.getLogger("ottla").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        is_expected = any(text in str(record.msg) for text in _EXPECTED_ERRORS) or self._has_disk_fault()
        if self.first is None and not is_expected:
            self.first = f"{NODE_FAILURE}: {self.format(record)}"
        node = self._node()
        if _STRAY in str(record.msg) and isinstance(record.args, tuple) and node is not None:
            self.strays.append(_Stray(node, node.disk, str(record.args[1])))

    def _has_disk_fault(self) -> bool:
        """Whether the disk of the node that logs is broken."""
        node = self._node()
        return node is not None and node.has_disk_fault

    def _node(self) -> ClusterNode | None:
        """The node that logs."""
        host = NODE.get().partition("#")[0]
        return next((node for node in self._cluster.nodes.values() if node.host == host), None)

    def close(self) -> None:
        logging.getLogger("ottla").removeHandler(self)
        super().close()


def _key(hosted: HostedPartition) -> PartitionKey:
    return hosted.topic_id, hosted.topic_partition.partition


def _partitions(image: MetadataImage) -> dict[UUID, dict[int, PartitionImage]]:
    return {topic_id: dict(topic.partitions) for topic_id, topic in image.topics_by_id.items()}
