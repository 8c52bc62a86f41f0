"""The groups that this broker coordinates, with the names of kafka_exporter.

The lag is known for partitions of which this broker has a replica. For the others the leader has the current offset.
"""

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.broker.hosted_partition import HostedPartition
from ottla.broker.metrics.lag_times import Key, LagTimes, Lookup
from ottla.broker.metrics.scrape import run_in_slices
from ottla.broker.services import BrokerServices
from ottla.metrics import Collection, Collector, Family, Kind, labels, line
from ottla.model.errors import KafkaError

if TYPE_CHECKING:
    from ottla.broker.coordinators.groups import GroupCoordinator
    from ottla.broker.partition_host import PartitionHost
    from ottla.core.groups.group import Group
    from ottla.core.groups.offsets.store import OffsetValue
    from ottla.core.groups.shard import GroupShard

_OFFSETS_TOPIC = "__consumer_offsets"
_OFFSETS_PER_ITEM = 10
_OF_PARTITION = ("consumergroup", "topic", "partition")

_MEMBERS = Family("kafka_consumergroup_members", Kind.GAUGE, "Members of the group.", ("consumergroup",))
_CURRENT_OFFSET = Family(
    "kafka_consumergroup_current_offset", Kind.GAUGE, "The committed offset of the group.", _OF_PARTITION
)
_LAG = Family(
    "kafka_consumergroup_lag",
    Kind.GAUGE,
    "Offsets between the committed offset and the high watermark.",
    _OF_PARTITION,
)
_LAG_SECONDS = Family(
    "ottla_consumergroup_lag_seconds",
    Kind.GAUGE,
    "The age of the record at the committed offset, by its timestamp; 0 if there is none.",
    _OF_PARTITION,
)
FAMILIES = (_MEMBERS, _CURRENT_OFFSET, _LAG, _LAG_SECONDS)


class _Members(NamedTuple):
    group_id: str
    members: int


class _Committed(NamedTuple):
    """All committed offsets of a group for a topic."""

    group_id: str
    topic: str
    offsets: "list[tuple[int, OffsetValue]]"


class _Offsets(NamedTuple):
    """Some of the committed offsets of a group."""

    group_id: str
    topic: str
    offsets: list[tuple[int, int]]  # partition, offset


class GroupsCollector(Collector):
    families = FAMILIES

    def __init__(self, services: BrokerServices) -> None:
        self._services = services
        self._times = LagTimes(services)

    async def start(self) -> "_Groups":
        """Loads the coordinator if it has groups: their consumers may all have stopped before this broker started."""
        services = self._services
        coordinator = services.groups.created
        if coordinator is None and _OFFSETS_TOPIC in services.metadata.image.topics:
            await services.env.threads.run(lambda: import_module("ottla.broker.coordinators.groups"))
            coordinator = services.groups.get()
        groups = [] if coordinator is None else _groups(coordinator)
        # A group may have committed offsets of many topics, and many of one topic, so its work is divided too.
        parts = await run_in_slices(services.scheduler, groups, _parts)
        divided = await run_in_slices(
            services.scheduler, [part for found in parts for part in found], _divide
        )
        collection = _Groups(services.partitions, self._times, [item for items in divided for item in items])
        kept: dict[Key, Any] = {}
        lookups = await run_in_slices(
            services.scheduler, collection.items, lambda item: list(collection.lookups(kept, item))
        )
        await self._times.look_up(kept, [lookup for found in lookups for lookup in found])
        return collection


def _groups(coordinator: "GroupCoordinator") -> list[tuple["GroupShard", "Group"]]:
    from ottla.broker.coordinators.shard_runtime import RuntimeState

    return [
        (runtime.shard, group)
        for runtime in coordinator.runtimes
        if runtime.state is RuntimeState.ACTIVE
        for group in runtime.shard.state.groups.values()
    ]


def _parts(shard_and_group: tuple["GroupShard", "Group"]) -> "list[_Members | _Committed]":
    shard, group = shard_and_group
    committed = shard.offsets.committed(group.group_id)
    topics = [
        _Committed(group.group_id, topic, list(offsets.items())) for topic, offsets in committed.items()
    ]
    return [_Members(group.group_id, len(group.members)), *topics]


def _divide(part: "_Members | _Committed") -> list[_Members | _Offsets]:
    if isinstance(part, _Members):
        return [part]
    return [
        _Offsets(
            part.group_id,
            part.topic,
            [
                (partition, value.offset)
                for partition, value in part.offsets[start : start + _OFFSETS_PER_ITEM]
            ],
        )
        for start in range(0, len(part.offsets), _OFFSETS_PER_ITEM)
    ]


class _Groups(Collection[_Members | _Offsets]):
    def __init__(
        self, partitions: "PartitionHost", times: LagTimes, items: Sequence[_Members | _Offsets]
    ) -> None:
        self.items = items
        self._partitions = partitions
        self._times = times

    def lookups(self, kept: dict[Key, Any], item: _Members | _Offsets) -> Iterator[Lookup]:
        """The records of which the timestamp is not known yet."""
        if isinstance(item, _Members):
            return
        for partition, offset in item.offsets:
            hosted = self._hosted(item.topic, partition)
            if hosted is not None:
                key = (item.group_id, item.topic, partition)
                if (lookup := self._times.keep(kept, key, hosted, offset)) is not None:
                    yield lookup

    def collect(self, item: _Members | _Offsets) -> Sequence[str]:
        if isinstance(item, _Members):
            return line(_MEMBERS.name, labels(consumergroup=item.group_id), item.members), "", "", ""
        current, lag, seconds = [], [], []
        known = labels(consumergroup=item.group_id, topic=item.topic).removesuffix("}")
        for partition, offset in item.offsets:
            labels_text = f'{known},partition="{partition}"}}'
            current.append(line(_CURRENT_OFFSET.name, labels_text, offset))
            hosted = self._hosted(item.topic, partition)
            if hosted is None:
                continue
            # A follower may not know the newest high watermark yet.
            lag.append(line(_LAG.name, labels_text, max(0, hosted.role.high_watermark - offset)))
            age = self._times.seconds((item.group_id, item.topic, partition), hosted, offset)
            if age is not None:
                seconds.append(line(_LAG_SECONDS.name, labels_text, age))
        return "", "".join(current), "".join(lag), "".join(seconds)

    def finish(self) -> Sequence[str]:
        return ("",) * len(FAMILIES)

    def _hosted(self, topic: str, partition: int) -> HostedPartition | None:
        try:
            return self._partitions.find_replica(topic, None, partition)
        except KafkaError:
            return None
