"""Carries a plan out: checks it, throttles and starts it, verifies it and cancels it."""

from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from ottla.admin.cluster import Cluster, ClusterError
from ottla.admin.nodes import Node
from ottla.admin.reassignment_plan import (
    ClusterState,
    Plan,
    added_replicas,
    changes_of,
    plan_errors,
)
from ottla.admin.reassignment_throttles import remove_throttles, set_throttles, throttled_replicas
from ottla.admin.reassignments import (
    Progress,
    active_nodes,
    cancel,
    list_ongoing,
    min_insync_replicas,
    read_progress,
    read_state,
    reassign,
)
from ottla.model.ids import TopicPartition

COMPLETE, MOVING, DIFFERENT, MISSING = "complete", "moving", "different", "missing"


class Run(NamedTuple):
    """A plan that may be carried out. `previous` are the replicas of before, as a plan to go back."""

    changes: Plan
    previous: Plan
    added: Mapping[TopicPartition, tuple[int, ...]]
    state: ClusterState  # before the start
    nodes: list[Node]

    def progress(self, cluster: Cluster) -> Progress:
        sizes = {partition: self.state.partitions[partition].size_bytes for partition in self.changes}
        return read_progress(cluster, self.nodes, self.added, sizes, self.changes.keys())


def prepare(cluster: Cluster, plan: Plan, *, force: bool) -> Run:
    """Changes nothing. Raises ClusterError if the plan is refused."""
    state = read_state(cluster)
    topics = sorted({topic for topic, _ in plan} & {topic for topic, _ in state.partitions})
    minimums = {} if force else min_insync_replicas(cluster, topics)
    if errors := plan_errors(plan, state, minimums, force=force):
        raise ClusterError("\n  ".join(["The plan is refused, and nothing was changed:", *errors]))
    changes = changes_of(plan, state)
    previous = {partition: _replicas_before(partition, state) for partition in changes}
    return Run(changes, previous, added_replicas(changes, state), state, active_nodes(cluster))


def start(cluster: Cluster, run: Run, *, throttle: int | None) -> None:
    """If the cluster refuses it, because it has changed since the checks, no throttle stays behind."""
    if not run.changes:
        return
    try:
        if throttle is not None and run.added:
            _throttle(cluster, run, throttle)
        reassign(cluster, run.changes)
    except ClusterError:
        if throttle is not None:
            with suppress(ClusterError):  # the first error says more
                end_throttles(cluster, run.changes)
        raise


def _throttle(cluster: Cluster, run: Run, rate: int) -> None:
    involved = {
        broker
        for partition, added in run.added.items()
        for broker in (*run.state.partitions[partition].replicas, *added)
    }
    nodes = [node for node in run.nodes if node.id in involved]
    set_throttles(cluster, nodes, throttled_replicas(run.changes, run.state), rate)


def _replicas_before(partition: TopicPartition, state: ClusterState) -> tuple[int, ...]:
    move = state.ongoing.get(partition)
    adding = move.adding if move else ()
    return tuple(each for each in state.partitions[partition].replicas if each not in adding)


def verify(cluster: Cluster, plan: Plan, *, keep_throttles: bool) -> tuple[dict[TopicPartition, str], bool]:
    """The state of each partition, and whether throttles were removed because nothing moves any more."""
    known = _replicas(cluster)
    ongoing = list_ongoing(cluster)
    states = {}
    for partition, replicas in sorted(plan.items()):
        if partition in ongoing:
            states[partition] = MOVING if ongoing[partition].target == replicas else DIFFERENT
        elif partition not in known:
            states[partition] = MISSING
        else:
            states[partition] = COMPLETE if known[partition] == replicas else DIFFERENT
    removed = False
    if not keep_throttles and not plan.keys() & ongoing.keys():
        removed = end_throttles(cluster, plan)
    return states, removed


class Cancelled(NamedTuple):
    """The partitions whose moves were cancelled, and those of the plan that do not exist.

    `error` says which moves were not cancelled, and why.
    """

    partitions: list[TopicPartition]
    missing: list[TopicPartition]
    throttles_removed: bool
    error: ClusterError | None


def cancel_plan(cluster: Cluster, plan: Plan, *, keep_throttles: bool) -> Cancelled:
    missing = sorted(plan.keys() - _replicas(cluster).keys())
    moving = sorted(plan.keys() & list_ongoing(cluster).keys())
    refused = None
    try:
        if moving:
            cancel(cluster, moving)
    except ClusterError as error:
        refused = error
        ongoing = list_ongoing(cluster)
        moving = [partition for partition in moving if partition not in ongoing]
    removed = not keep_throttles and end_throttles(cluster, plan)
    return Cancelled(moving, missing, removed, refused)


def _replicas(cluster: Cluster) -> dict[TopicPartition, tuple[int, ...]]:
    return {
        TopicPartition(topic, index): tuple(partition.replicas)
        for topic, described in cluster.metadata().topics.items()
        for index, partition in described.partitions.items()
    }


def end_throttles(cluster: Cluster, plan: Plan) -> bool:
    """Removes the throttles from those topics of the plan, and from brokers, that no other move needs."""
    ongoing = list_ongoing(cluster)
    topics = {topic for topic, _ in plan} - {topic for topic, _ in ongoing}
    nodes = [] if ongoing else active_nodes(cluster)
    return remove_throttles(cluster, nodes, sorted(topics))
