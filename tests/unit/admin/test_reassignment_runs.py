"""How a plan is carried out: what is set, and what is removed when it ends or is refused."""

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.admin import reassignment_runs as runs
from ottla.admin import reassignment_throttles as throttles
from ottla.admin.cluster import ClusterError, UnknownTopicError
from ottla.admin.configs import ConfigValue
from ottla.admin.nodes import Node
from ottla.admin.reassignment_plan import ClusterState, OngoingMove, PartitionState, Plan
from ottla.model.ids import TopicPartition

FIRST, OTHER = TopicPartition("journal", 0), TopicPartition("other", 0)
STATE = ClusterState({1: None, 2: None}, frozenset({3}), {FIRST: PartitionState((1, 3), (1,), 1, 1000)}, {})
NODES = [Node(1, "h1", 9092), Node(2, "h2", 9092)]
MOVE = OngoingMove((2, 1), (2,), (1,))


class FakeCluster:
    """Records the changes that the functions of `reassignment_runs` make."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.said: list[tuple[Any, ...]] = []
        self.ongoing: dict[TopicPartition, OngoingMove] = {}
        self.refuses = self.refuses_throttles = self.refuses_removal = False
        self.refuses_cancel_of: TopicPartition | None = None
        partition = SimpleNamespace(replicas=[1, 3])
        topics = {"journal": SimpleNamespace(partitions={0: partition})}
        self.handle: Any = SimpleNamespace(metadata=lambda: SimpleNamespace(topics=topics))
        monkeypatch.setattr(runs, "read_state", lambda cluster: STATE)
        monkeypatch.setattr(runs, "active_nodes", lambda cluster: NODES)
        monkeypatch.setattr(runs, "list_ongoing", lambda cluster: self.ongoing)
        monkeypatch.setattr(runs, "min_insync_replicas", lambda cluster, topics: {"journal": 1})
        monkeypatch.setattr(runs, "reassign", self._reassign)
        monkeypatch.setattr(runs, "set_throttles", self._set_throttles)
        monkeypatch.setattr(runs, "cancel", self._cancel)
        monkeypatch.setattr(runs, "remove_throttles", self._remove_throttles)

    def _reassign(self, cluster: Any, changes: Any) -> None:
        if self.refuses:
            raise ClusterError("refused")
        self.said.append(("reassign", changes))

    def _set_throttles(self, *args: Any) -> None:
        self.said.append(("throttle", *args[1:]))
        if self.refuses_throttles:
            raise ClusterError("no throttle")

    def _cancel(self, cluster: Any, partitions: list[TopicPartition]) -> None:
        self.said.append(("cancel", partitions))
        if self.refuses_cancel_of is not None:
            self.ongoing = {self.refuses_cancel_of: MOVE}
            raise ClusterError("not cancelled")

    def _remove_throttles(self, cluster: Any, nodes: list[Node], topics: list[str]) -> bool:
        if self.refuses_removal:
            raise ClusterError("not removed")
        self.said.append(("remove", [node.id for node in nodes], topics))
        return True


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    return FakeCluster(monkeypatch)


def start(fake: FakeCluster, plan: Plan, *, force: bool = False) -> runs.Run:
    run = runs.prepare(fake.handle, plan, force=force)
    runs.start(fake.handle, run, throttle=500)
    return run


def test_throttles_are_set_first_and_only_on_brokers_that_are_active(fake: FakeCluster) -> None:
    run = start(fake, {FIRST: (2, 1)})
    lists = {"journal": {throttles.LEADERS: ["0:1", "0:3"], throttles.FOLLOWERS: ["0:2"]}}
    assert fake.said == [("throttle", NODES, lists, 500), ("reassign", {FIRST: (2, 1)})]
    assert run.previous == {FIRST: (1, 3)}
    assert run.added == {FIRST: (2,)}


def test_a_refused_plan_changes_nothing(fake: FakeCluster) -> None:
    with pytest.raises(ClusterError, match=r"nothing was changed:\n  journal-0: there is no broker 9"):
        start(fake, {FIRST: (9,)}, force=True)
    assert fake.said == []


def test_a_plan_that_the_cluster_refuses_leaves_no_throttle(fake: FakeCluster) -> None:
    fake.refuses = True
    with pytest.raises(ClusterError, match="refused"):
        start(fake, {FIRST: (2, 1)})
    assert fake.said[-1] == ("remove", [1, 2], ["journal"])


def test_a_plan_that_is_complete_needs_no_request(fake: FakeCluster) -> None:
    assert start(fake, {FIRST: (1, 3)}).changes == {}
    assert fake.said == []


def test_throttles_stay_as_long_as_a_partition_of_the_plan_moves(fake: FakeCluster) -> None:
    fake.ongoing = {FIRST: MOVE}
    assert runs.verify(fake.handle, {FIRST: (2,)}, keep_throttles=False) == ({FIRST: runs.MOVING}, False)
    assert runs.verify(fake.handle, {FIRST: (3,)}, keep_throttles=False) == ({FIRST: runs.DIFFERENT}, False)
    assert fake.said == []


def test_throttles_of_brokers_stay_while_other_partitions_move(fake: FakeCluster) -> None:
    fake.ongoing = {OTHER: MOVE}
    assert runs.verify(fake.handle, {FIRST: (1, 3)}, keep_throttles=False) == ({FIRST: runs.COMPLETE}, True)
    assert fake.said == [("remove", [], ["journal"])]


def test_only_moves_that_go_on_are_cancelled(fake: FakeCluster) -> None:
    assert runs.cancel_plan(fake.handle, {FIRST: (2,)}, keep_throttles=True) == ([], [], False, None)
    fake.ongoing = {FIRST: MOVE, OTHER: MOVE}
    assert runs.cancel_plan(fake.handle, {FIRST: (2,)}, keep_throttles=True) == ([FIRST], [], False, None)
    assert fake.said == [("cancel", [FIRST])]


def test_a_throttle_that_is_set_only_in_part_is_removed(fake: FakeCluster) -> None:
    fake.refuses_throttles = True
    with pytest.raises(ClusterError, match="no throttle"):
        start(fake, {FIRST: (2, 1)})
    assert [step[0] for step in fake.said] == ["throttle", "remove"]


def test_the_first_error_is_raised_if_the_throttle_cannot_be_removed_either(fake: FakeCluster) -> None:
    fake.refuses = fake.refuses_removal = True
    with pytest.raises(ClusterError, match="refused"):
        start(fake, {FIRST: (2, 1)})


def test_a_deleted_topic_is_reported_and_throttles_end(fake: FakeCluster) -> None:
    plan = {FIRST: (1, 3), OTHER: (2,)}
    states, removed = runs.verify(fake.handle, plan, keep_throttles=False)
    assert states == {FIRST: runs.COMPLETE, OTHER: runs.MISSING}
    assert removed
    assert runs.cancel_plan(fake.handle, plan, keep_throttles=False) == ([], [OTHER], True, None)
    assert fake.said == [("remove", [1, 2], ["journal", "other"])] * 2


def test_a_refused_cancellation_keeps_neither_the_others_nor_their_throttles(fake: FakeCluster) -> None:
    fake.ongoing = {FIRST: MOVE, OTHER: MOVE}
    fake.refuses_cancel_of = OTHER
    cancelled = runs.cancel_plan(fake.handle, {FIRST: (2,), OTHER: (2,)}, keep_throttles=False)
    assert cancelled.partitions == [FIRST]
    assert "not cancelled" in str(cancelled.error)
    assert fake.said[-1] == ("remove", [], ["journal"])


def test_throttles_are_removed_from_brokers_although_a_topic_is_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def describe(cluster: Any, kind: str, name: str) -> list[ConfigValue]:
        if kind == "topic":
            raise UnknownTopicError(f"Topic {name}: no such topic")
        return [ConfigValue(throttles.RATES[0], "500", "DYNAMIC_BROKER_CONFIG", False, False)]

    altered: list[int] = []
    monkeypatch.setattr(throttles, "describe_configs", describe)
    monkeypatch.setattr(throttles, "_alter_broker", lambda node, configs: altered.append(node.id))
    unused: Any = None
    assert throttles.remove_throttles(unused, NODES, ["journal"])
    assert altered == [1, 2]


def test_replicas_are_added_to_those_that_are_throttled_already(monkeypatch: pytest.MonkeyPatch) -> None:
    present = {"a": "0:1,1:2", "b": "*", "c": ""}
    changed: dict[str, Any] = {}
    monkeypatch.setattr(
        throttles,
        "describe_configs",
        lambda _, kind, topic: [ConfigValue(throttles.LEADERS, present[topic], "", False, False)],
    )
    monkeypatch.setattr(throttles, "alter_configs", lambda _, kind, topic, **to: changed.update({topic: to}))
    unused: Any = None
    throttles.set_throttles(unused, [], {topic: {throttles.LEADERS: ["0:1", "0:3"]} for topic in present}, 1)
    assert [changed[topic]["set"][throttles.LEADERS] for topic in present] == ["0:1,1:2,0:3", "*", "0:1,0:3"]
