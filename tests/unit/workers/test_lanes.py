"""Lanes against a model: what is taken, in which order, and when."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.workers.lanes import Lanes


def taken(lanes: Lanes[str], now: float = 0.0) -> list[str]:
    found = []
    while (item := lanes.take(now)) is not None:
        found.append(item)
    return found


@pytest.fixture
def lanes() -> Lanes[str]:
    lanes: Lanes[str] = Lanes()
    for item in ("a1", "a2", "b1", "c1", "c2"):
        lanes.put(item[0], item)
    return lanes


def test_the_first_of_each_lane_can_be_taken_at_once(lanes: Lanes[str]) -> None:
    assert taken(lanes) == ["a1", "b1", "c1"]


def test_the_next_of_a_lane_can_be_taken_when_the_one_before_is_done(lanes: Lanes[str]) -> None:
    assert taken(lanes) == ["a1", "b1", "c1"]
    lanes.done("c")
    assert taken(lanes) == ["c2"]
    lanes.done("b")
    assert taken(lanes) == []


def test_an_item_put_off_holds_up_its_lane_and_no_other(lanes: Lanes[str]) -> None:
    assert lanes.take(0.0) == "a1"
    lanes.put_off("a", due=5.0)
    assert taken(lanes, now=4.9) == ["b1", "c1"]
    assert lanes.next_due() == 5.0
    assert lanes.take(5.0) == "a1"
    assert lanes.next_due() is None
    lanes.done("a")
    assert lanes.take(5.0) == "a2"


def test_what_is_taken_cannot_be_dropped_and_keeps_its_lane(lanes: Lanes[str]) -> None:
    assert lanes.take(0.0) == "a1"
    assert lanes.drop(lambda item: item[0] in "ab") == ["a2", "b1"]
    lanes.put("a", "a3")
    assert taken(lanes) == ["c1"]
    lanes.done("a")
    assert taken(lanes) == ["a3"]


def test_dropping_what_was_put_off_lets_the_next_of_its_lane_go(lanes: Lanes[str]) -> None:
    assert lanes.take(0.0) == "a1"
    lanes.put_off("a", due=1000.0)
    assert lanes.drop(lambda item: item == "a1") == ["a1"]
    assert lanes.next_due() is None
    assert taken(lanes) == ["b1", "c1", "a2"]


class LanesMachine(RuleBasedStateMachine):
    """The model: per lane the items in order, which lanes are taken, and until when lanes are put off."""

    def __init__(self) -> None:
        super().__init__()
        self.lanes: Lanes[tuple[str, int]] = Lanes()
        self.queues: dict[str, list[tuple[str, int]]] = {}
        self.running: dict[str, tuple[str, int]] = {}
        self.due: dict[str, float] = {}
        self.now = 0.0
        self.numbers = iter(range(1_000_000))

    @rule(lane=st.sampled_from("abc"))
    def put(self, lane: str) -> None:
        item = (lane, next(self.numbers))
        self.queues.setdefault(lane, []).append(item)
        self.lanes.put(lane, item)

    @rule(passed=st.sampled_from([0.0, 1.0, 5.0]))
    def take(self, passed: float) -> None:
        self.now += passed
        open_lanes = {
            lane
            for lane, queue in self.queues.items()
            if queue and lane not in self.running and self.due.get(lane, 0.0) <= self.now
        }
        item = self.lanes.take(self.now)
        if item is None:
            assert not open_lanes
            return
        assert item[0] in open_lanes
        assert item == self.queues[item[0]][0]
        self.running[item[0]] = item
        self.due.pop(item[0], None)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        lane = data.draw(st.sampled_from(sorted(self.running)))
        del self.running[lane]
        self.queues[lane].pop(0)
        self.lanes.done(lane)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), delay=st.sampled_from([0.0, 1.0, 3.0]))
    def put_off(self, data: st.DataObject, delay: float) -> None:
        lane = data.draw(st.sampled_from(sorted(self.running)))
        del self.running[lane]
        self.due[lane] = self.now + delay
        self.lanes.put_off(lane, self.now + delay)

    @rule(lanes=st.sets(st.sampled_from("abc")), least=st.integers(0, 30))
    def drop(self, lanes: set[str], least: int) -> None:
        expected = []
        for lane, queue in self.queues.items():
            unwanted = [item for item in queue if item[0] in lanes and item[1] >= least]
            unwanted = [item for item in unwanted if item is not self.running.get(lane)]
            if queue and queue[0] in unwanted:
                self.due.pop(lane, None)
            expected += unwanted
            self.queues[lane] = [item for item in queue if item not in unwanted]
        dropped = self.lanes.drop(lambda item: item[0] in lanes and item[1] >= least)
        assert sorted(dropped) == sorted(expected)

    @invariant()
    def the_next_due_time_and_the_length_are_the_models(self) -> None:
        assert len(self.lanes) == sum(map(len, self.queues.values()))
        due = self.lanes.next_due()
        # What is due already may or may not have been made ready, depending on when an item was last asked for.
        assert [at for at in self.due.values() if at > self.now] == [] or due is not None
        assert due is None or due in self.due.values()


LanesMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLanesAgainstAModel = LanesMachine.TestCase
