"""Generates a plan: balances, drains brokers, fills new ones, or changes the replication factor. Pure."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from ottla.admin.cluster import ClusterError
from ottla.admin.reassignment_plan import ClusterState, Plan, added_replicas
from ottla.admin.replica_planner import Goal, PlannedPartition, PlannerError, plan_replicas
from ottla.model.ids import TopicPartition


class Wish(NamedTuple):
    """Empty `topics` and `brokers` mean all of them."""

    topics: Sequence[str] = ()
    brokers: Sequence[int] = ()
    drain: Sequence[int] = ()
    add: Sequence[int] = ()
    replication_factor: int | None = None


class BrokerLoad(NamedTuple):
    """`leaders` are the partitions of which the broker is the preferred leader."""

    broker: int
    rack: str | None
    replicas: int
    leaders: int
    size_bytes: int


def generate_plan(state: ClusterState, wish: Wish) -> Plan:
    """The partitions to change; empty if there are none. Raises ClusterError."""
    selected = _selected(state, wish.topics)
    brokers = _brokers(state, wish, selected)
    if moving := sorted(selected & state.ongoing.keys()):
        raise ClusterError(
            f"No plan was generated: {moving[0]} is being moved, one of {len(moving)} partitions. Wait for that, or "
            "cancel it with `ottla reassign cancel`"
        )
    # A drain and another replication factor move what they must. Balancing is another wish.
    rebalances = bool(wish.add or wish.brokers or not (wish.drain or wish.replication_factor))
    goal = Goal(brokers, selected, wish.add or None, wish.replication_factor, rebalances)
    partitions = {
        partition: PlannedPartition(found.replicas, found.size_bytes, found.in_sync)
        for partition, found in state.partitions.items()
    }
    try:
        return plan_replicas(partitions, state.failure_domains, goal)
    except PlannerError as error:
        raise ClusterError(f"No plan was generated: {error}") from None


def _selected(state: ClusterState, topics: Collection[str]) -> set[TopicPartition]:
    known = {topic for topic, _ in state.partitions}
    if unknown := sorted(set(topics) - known):
        raise ClusterError(f"There is no topic {', '.join(unknown)}. See: ottla topics list")
    return {partition for partition in state.partitions if not topics or partition.topic in topics}


def _brokers(state: ClusterState, wish: Wish, selected: Collection[TopicPartition]) -> list[int]:
    """The brokers that may have replicas."""
    for option, named in (("--brokers", wish.brokers), ("--add", wish.add)):
        if down := sorted(set(named) - set(state.racks)):
            raise ClusterError(
                f"{option}: broker {_ids(down)} is not active. The active brokers are {_ids(sorted(state.racks))}"
            )
    if unknown := sorted(set(wish.drain) - set(state.racks) - state.inactive):
        raise ClusterError(
            f"--drain: there is no broker {_ids(unknown)}. The brokers are {_ids(sorted(state.racks))}"
        )
    if both := sorted(set(wish.drain) & {*wish.add, *wish.brokers}):
        raise ClusterError(f"Broker {_ids(both)} cannot be drained and get replicas in one plan")
    brokers = set(wish.brokers or state.racks) | set(wish.add)
    brokers -= set(wish.drain)
    used = {replica for partition in selected for replica in state.partitions[partition].replicas}
    if not wish.brokers and (down := sorted((used & state.inactive) - set(wish.drain))):
        raise ClusterError(
            f"No plan was generated: broker {_ids(down)} has replicas, but is not active. Start it, or move its "
            f"replicas away with --drain {down[0]}"
        )
    return sorted(brokers)


def broker_loads(state: ClusterState, plan: Plan) -> list[BrokerLoad]:
    """What each broker has when the plan is carried out; with an empty plan, what it has now."""
    replicas: Counter[int] = Counter()
    leaders: Counter[int] = Counter()
    size_bytes: Counter[int] = Counter()
    for partition, found in state.partitions.items():
        brokers = plan.get(partition, found.replicas)
        replicas.update(brokers)
        leaders.update(brokers[:1])
        for broker in brokers:
            size_bytes[broker] += found.size_bytes
    return [
        BrokerLoad(broker, state.racks.get(broker), replicas[broker], leaders[broker], size_bytes[broker])
        for broker in sorted(set(state.racks) | state.inactive | replicas.keys())
    ]


def copied_bytes(plan: Plan, state: ClusterState) -> int:
    added: Mapping[TopicPartition, tuple[int, ...]] = added_replicas(plan, state)
    return sum(state.partitions[partition].size_bytes * len(brokers) for partition, brokers in added.items())


def _ids(brokers: Collection[int]) -> str:
    return ", ".join(map(str, brokers))
