"""The groups that this broker coordinates, with the names of kafka_exporter.

The lag is known for partitions of which this broker has a replica. For the others the leader has the current offset.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.metrics.scrape import run_in_slices
from ottla.broker.services import BrokerServices
from ottla.metrics import Collection, Collector, Family, Kind, labels, line
from ottla.model.errors import KafkaError

if TYPE_CHECKING:
    from ottla.broker.coordinators.groups import GroupCoordinator
    from ottla.core.groups.group import Group
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
FAMILIES = (_MEMBERS, _CURRENT_OFFSET, _LAG)


class _Members(NamedTuple):
    group_id: str
    members: int


class _Offsets(NamedTuple):
    """Some of the committed offsets of a group."""

    group_id: str
    topic: str
    offsets: list[tuple[int, int]]  # partition, offset


class GroupsCollector(Collector):
    families = FAMILIES

    def __init__(self, services: BrokerServices) -> None:
        self._services = services

    async def start(self) -> "_Groups":
        """Loads the coordinator if it has groups: their consumers may all have stopped before this broker started."""
        services = self._services
        coordinator = services.groups.created
        if coordinator is None and _OFFSETS_TOPIC in services.metadata.image.topics:
            await services.env.threads.run(lambda: import_module("ottla.broker.coordinators.groups"))
            coordinator = services.groups.get()
        groups = [] if coordinator is None else _groups(coordinator)
        # A group may have committed thousands of offsets, so its work is divided too.
        divided = await run_in_slices(services.scheduler, groups, _divide)
        return _Groups(services, [item for items in divided for item in items])


def _groups(coordinator: "GroupCoordinator") -> list[tuple["GroupShard", "Group"]]:
    from ottla.broker.coordinators.shard_runtime import RuntimeState

    return [
        (runtime.shard, group)
        for runtime in coordinator.runtimes
        if runtime.state is RuntimeState.ACTIVE
        for group in runtime.shard.state.groups.values()
    ]


def _divide(shard_and_group: tuple["GroupShard", "Group"]) -> list[_Members | _Offsets]:
    shard, group = shard_and_group
    items: list[_Members | _Offsets] = [_Members(group.group_id, len(group.members))]
    for topic, committed in shard.offsets.committed(group.group_id).items():
        offsets = [(partition, value.offset) for partition, value in committed.items()]
        items += [
            _Offsets(group.group_id, topic, offsets[start : start + _OFFSETS_PER_ITEM])
            for start in range(0, len(offsets), _OFFSETS_PER_ITEM)
        ]
    return items


class _Groups(Collection[_Members | _Offsets]):
    def __init__(self, services: BrokerServices, items: Sequence[_Members | _Offsets]) -> None:
        self.items = items
        self._services = services

    def collect(self, item: _Members | _Offsets) -> Sequence[str]:
        if isinstance(item, _Members):
            return line(_MEMBERS.name, labels(consumergroup=item.group_id), item.members), "", ""
        current, lag = [], []
        known = labels(consumergroup=item.group_id, topic=item.topic).removesuffix("}")
        for partition, offset in item.offsets:
            labels_text = f'{known},partition="{partition}"}}'
            current.append(line(_CURRENT_OFFSET.name, labels_text, offset))
            end = self._high_watermark(item.topic, partition)
            if end is not None:
                # A follower may not know the newest high watermark yet.
                lag.append(line(_LAG.name, labels_text, max(0, end - offset)))
        return "", "".join(current), "".join(lag)

    def finish(self) -> Sequence[str]:
        return ("", "", "")

    def _high_watermark(self, topic: str, partition: int) -> int | None:
        try:
            return self._services.partitions.find_replica(topic, None, partition).role.high_watermark
        except KafkaError:
            return None
