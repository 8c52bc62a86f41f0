"""Plans which replicas to move so that brokers have the same number of replicas, leaders and bytes. Pure.

Racks come first: no rack gets more replicas of a partition than it must. Then brokers get as many replicas as the
others, within one, if racks allow it. Then disks: replicas of different size are swapped while a broker has clearly
more bytes than the mean. Leaders last: the order of replicas changes, which copies nothing.

Among moves that serve as well, those win that copy fewer bytes. So a balanced cluster stays as it is.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple

from ottla.admin.leader_planner import balance_leaders
from ottla.admin.reassignment_plan import Plan
from ottla.model.ids import TopicPartition

# Bytes above the mean, as a part of it, that are not worth a move.
_TOLERANCE = 0.1


class PlannerError(ValueError):
    """What was asked for is impossible."""


class PlannedPartition(NamedTuple):
    """`in_sync` are the replicas in sync; None: all."""

    replicas: tuple[int, ...]
    size_bytes: int
    in_sync: Collection[int] | None = None


class Goal(NamedTuple):
    """`brokers` may have replicas of the `selected` partitions; None: all.

    If `receivers` are given, moves that only balance go to these brokers alone. If not `rebalances`, only replicas
    move that must: from brokers that may not have them, or because the replication factor changes.
    """

    brokers: Collection[int]
    selected: Collection[TopicPartition] | None = None
    receivers: Collection[int] | None = None
    replication_factor: int | None = None
    rebalances: bool = True


def plan_replicas(
    partitions: Mapping[TopicPartition, PlannedPartition], racks: Mapping[int, str | None], goal: Goal
) -> Plan:
    """The new replicas of the partitions that change. `racks` has all active brokers. Raises PlannerError."""
    draft = _Draft(partitions, racks, goal)
    for partition in draft.order:
        draft.place(partition)
    draft.balance()
    before = {partition: partitions[partition].replicas for partition in draft.order}
    after = {partition: tuple(draft.replicas[partition]) for partition in draft.order}
    if goal.rebalances and goal.receivers is None:
        movable = set(after)
    else:
        movable = {partition for partition in after if after[partition] != before[partition]}
    everything = {partition: planned.replicas for partition, planned in partitions.items()} | after
    after |= balance_leaders(everything, movable)
    return {partition: after[partition] for partition in draft.order if after[partition] != before[partition]}


class _Move(NamedTuple):
    partition: TopicPartition
    source: int
    target: int


class _Draft:
    """The replicas as they are planned so far, and what the brokers would have then."""

    def __init__(
        self,
        partitions: Mapping[TopicPartition, PlannedPartition],
        racks: Mapping[int, str | None],
        goal: Goal,
    ) -> None:
        self.partitions = partitions
        self.racks = racks
        self.goal = goal
        selected = partitions if goal.selected is None else goal.selected
        # Large partitions first: the small ones even out what is left.
        self.order = sorted(selected, key=lambda each: (-partitions[each].size_bytes, each))
        self.replicas = {partition: list(partitions[partition].replicas) for partition in self.order}
        self.brokers = sorted(set(goal.brokers))
        # Racks count only if every broker has one, as in Kafka.
        self.uses_racks = all(self.racks.get(broker) for broker in self.brokers)
        self.rack_count = len({self.racks.get(broker) for broker in self.brokers}) if self.uses_racks else 1
        self.count: Counter[int] = Counter()
        self.bytes: Counter[int] = Counter()
        self.on: dict[int, dict[TopicPartition, None]] = {broker: {} for broker in self.brokers}
        for partition, planned in self.partitions.items():
            for broker in planned.replicas:
                self._count(partition, broker, +1)

    def _count(self, partition: TopicPartition, broker: int, by: int) -> None:
        self.count[broker] += by
        self.bytes[broker] += by * self.partitions[partition].size_bytes
        if broker in self.on and partition in self.replicas:
            if by > 0:
                self.on[broker][partition] = None
            else:
                del self.on[broker][partition]

    # -- changes that must be made

    def place(self, partition: TopicPartition) -> None:
        """Removes replicas from brokers that may not have them, and brings the replication factor to the goal."""
        replicas = self.replicas[partition]
        wanted = self.goal.replication_factor or len(replicas)
        if wanted > len(self.brokers):
            raise PlannerError(
                f"{partition} needs {wanted} brokers, but only {len(self.brokers)} may have its replicas"
            )
        while len(replicas) > wanted:
            broker = self._worst(partition)
            replicas.remove(broker)
            self._count(partition, broker, -1)
        for broker in [each for each in replicas if each not in self.on]:
            self._apply(_Move(partition, broker, self._best(partition, instead_of=broker)))
        while len(replicas) < wanted:
            replicas.append(self._best(partition))
            self._count(partition, replicas[-1], +1)

    def _best(self, partition: TopicPartition, instead_of: int | None = None) -> int:
        """The broker for one more replica, or for the one on `instead_of`."""
        replicas = self.replicas[partition]
        others = [replica for replica in replicas if replica != instead_of]
        free = [broker for broker in self.brokers if broker not in replicas]
        return min(
            free,
            key=lambda broker: (
                self._in_rack(others, broker),
                self.count[broker],
                self.bytes[broker],
                broker,
            ),
        )

    def _worst(self, partition: TopicPartition) -> int:
        """The replica to remove: not the first, which may lead, if any other serves.

        One that is not in sync goes before the others: the move ends only if all that stay are in sync.
        """
        replicas = self.replicas[partition]
        planned = self.partitions[partition]
        in_sync = planned.replicas if planned.in_sync is None else planned.in_sync
        return max(
            replicas,
            key=lambda broker: (
                broker not in self.on,
                broker not in in_sync,
                self._in_rack(replicas, broker),
                broker != replicas[0],
                self.count[broker],
                self.bytes[broker],
                broker,
            ),
        )

    def _in_rack(self, replicas: Collection[int], broker: int) -> int:
        if not self.uses_racks:
            return 0
        rack = self.racks.get(broker)
        return sum(self.racks.get(replica) == rack for replica in replicas)

    # -- moves that balance

    def balance(self) -> None:
        if self.goal.rebalances:
            self._spread_over_racks()
        while (moves := self._moves_for_counts()) is not None:
            for move in moves:
                self._apply(move)
        if self.goal.rebalances and self.goal.receivers is None:
            while (swap := self._swap_for_bytes()) is not None:
                for move in swap:
                    self._apply(move)

    def _apply(self, move: _Move) -> None:
        """The new replica takes the place of the old one in the order."""
        replicas = self.replicas[move.partition]
        replicas[replicas.index(move.source)] = move.target
        self._count(move.partition, move.source, -1)
        self._count(move.partition, move.target, +1)

    def _spread_over_racks(self) -> None:
        """Moves replicas out of racks that have more of a partition than they must."""
        if not self.uses_racks or self.goal.receivers is not None:
            return
        for partition in self.order:
            replicas = self.replicas[partition]
            most = -(-len(replicas) // self.rack_count)
            for source in list(reversed(replicas)):
                if self._in_rack(replicas, source) <= most:
                    continue
                if len(replicas) == len(self.brokers):
                    break
                target = self._best(partition, instead_of=source)
                if self._in_rack(replicas, target) < most:
                    self._apply(_Move(partition, source, target))

    def _may_move(self, partition: TopicPartition, source: int, target: int) -> bool:
        planned, replicas = self.partitions[partition].replicas, self.replicas[partition]
        if target in replicas:
            return False
        if not self.goal.rebalances and source in planned:
            return False
        receivers = self.goal.receivers
        if receivers is not None and target not in receivers and (source in planned or source in receivers):
            return False
        if not self.uses_racks or self.racks.get(source) == self.racks.get(target):
            return True
        most = -(-len(replicas) // self.rack_count)
        return self._in_rack(replicas, target) < max(most, self._in_rack(replicas, source))

    def _candidate(self, source: int, target: int) -> TopicPartition | None:
        """The partition whose move from `source` to `target` costs least, and evens out their bytes best."""
        wanted = max(0, self.bytes[source] - self.bytes[target]) // 2
        best: tuple[bool, int, TopicPartition] | None = None
        for partition in self.on[source]:
            planned = self.partitions[partition]
            copies = source in planned.replicas and target not in planned.replicas
            key = (copies, abs(planned.size_bytes - wanted), partition)
            if (best is None or key < best) and self._may_move(partition, source, target):
                best = key
        return None if best is None else best[2]

    def _moves_for_counts(self) -> list[_Move] | None:
        """Moves after which a broker has one replica less, and one with at least two fewer has one more."""
        by_count = sorted(self.brokers, key=lambda broker: (self.count[broker], broker))
        pairs = [
            (source, [target for target in by_count if self.count[source] >= self.count[target] + 2])
            for source in reversed(by_count)
        ]
        for source, targets in pairs:
            for target in targets:
                partition = self._candidate(source, target)
                if partition is not None:
                    return [_Move(partition, source, target)]
        for source, targets in pairs:  # only now: it takes long to find that there is no way
            if targets and (path := self._path(source, set(targets))) is not None:
                return path
        return None

    def _path(self, source: int, targets: set[int]) -> list[_Move] | None:
        """A way over other brokers, whose counts stay: racks may allow no direct move."""
        paths: dict[int, list[_Move]] = {source: []}
        queue = [source]
        for broker in queue:
            for target in self.brokers:
                if target in paths:
                    continue
                partition = self._candidate(broker, target)
                if partition is None or any(move.partition == partition for move in paths[broker]):
                    continue
                paths[target] = [*paths[broker], _Move(partition, broker, target)]
                if target in targets:
                    return paths[target]
                queue.append(target)
        return None

    def _swap_for_bytes(self) -> list[_Move] | None:
        """Two moves that bring the broker with the most bytes nearer to the mean, and no other above it."""
        mean = sum(self.bytes[broker] for broker in self.brokers) / max(len(self.brokers), 1)
        heaviest = max(self.brokers, key=lambda broker: (self.bytes[broker], broker), default=None)
        if heaviest is None or self.bytes[heaviest] <= mean * (1 + _TOLERANCE):
            return None
        for lighter in sorted(self.brokers, key=lambda broker: (self.bytes[broker], broker)):
            gap = self.bytes[heaviest] - self.bytes[lighter]
            if gap <= mean * _TOLERANCE:
                return None
            if (swap := self._best_swap(heaviest, lighter, gap)) is not None:
                return swap
        return None

    def _best_swap(self, heavy: int, light: int, gap: int) -> list[_Move] | None:
        """The swap that comes nearest to half of the gap. One that shifts little, or nearly all, is of no use."""

        def sizes_on(broker: int, target: int) -> list[tuple[int, TopicPartition]]:
            return sorted(
                (self.partitions[each].size_bytes, each)
                for each in self.on[broker]
                if self._may_move(each, broker, target)
            )

        takes = sizes_on(light, heavy)
        best: tuple[int, TopicPartition, TopicPartition] | None = None
        for size, give in sizes_on(heavy, light):
            near = bisect_left(takes, size - gap // 2, key=lambda taken: taken[0])
            for taken_size, take in takes[max(near - 1, 0) : near + 1]:
                shift = size - taken_size
                if gap * _TOLERANCE <= shift <= gap * (1 - _TOLERANCE):
                    found = (abs(shift - gap // 2), give, take)
                    best = found if best is None else min(best, found)
        if best is None:
            return None
        return [_Move(best[1], heavy, light), _Move(best[2], light, heavy)]
