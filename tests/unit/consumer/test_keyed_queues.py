"""Keyed queues against a model: which items are taken, in which order, and when."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.examples import examples

from ottla.consumer.keyed_queues import KeyedQueues


def taken(queues: KeyedQueues[str], now: float = 0.0) -> list[str]:
    found = []
    while (item := queues.take(now)) is not None:
        found.append(item)
    return found


@pytest.fixture
def queues() -> KeyedQueues[str]:
    queues: KeyedQueues[str] = KeyedQueues()
    for item in ("a1", "a2", "b1", "c1", "c2"):
        queues.put(item[0], item)
    return queues


def test_the_first_item_of_each_key_can_be_taken_at_once(queues: KeyedQueues[str]) -> None:
    assert taken(queues) == ["a1", "b1", "c1"]


def test_the_next_item_of_a_key_can_be_taken_when_the_one_before_is_done(queues: KeyedQueues[str]) -> None:
    assert taken(queues) == ["a1", "b1", "c1"]
    queues.done("c")
    assert taken(queues) == ["c2"]
    queues.done("b")
    assert taken(queues) == []


def test_a_postponed_item_blocks_its_key_and_no_other(queues: KeyedQueues[str]) -> None:
    assert queues.take(0.0) == "a1"
    queues.postpone("a", due=5.0)
    assert taken(queues, now=4.9) == ["b1", "c1"]
    assert queues.next_due() == 5.0
    assert queues.take(5.0) == "a1"
    assert queues.next_due() is None
    queues.done("a")
    assert queues.take(5.0) == "a2"


def test_an_item_that_was_taken_cannot_be_dropped_and_blocks_its_key(queues: KeyedQueues[str]) -> None:
    assert queues.take(0.0) == "a1"
    assert queues.drop(lambda item: item[0] in "ab") == ["a2", "b1"]
    queues.put("a", "a3")
    assert taken(queues) == ["c1"]
    queues.done("a")
    assert taken(queues) == ["a3"]


def test_dropping_a_postponed_item_unblocks_its_key(queues: KeyedQueues[str]) -> None:
    assert queues.take(0.0) == "a1"
    queues.postpone("a", due=1000.0)
    assert queues.drop(lambda item: item == "a1") == ["a1"]
    assert queues.next_due() is None
    assert taken(queues) == ["b1", "c1", "a2"]


class KeyedQueuesMachine(RuleBasedStateMachine):
    """The model: for each key the items in order, whether one is taken, and until when one is postponed."""

    def __init__(self) -> None:
        super().__init__()
        self.queues: KeyedQueues[tuple[str, int]] = KeyedQueues()
        self.model: dict[str, list[tuple[str, int]]] = {}
        self.running: dict[str, tuple[str, int]] = {}
        self.due: dict[str, float] = {}
        self.now = 0.0
        self.numbers = iter(range(1_000_000))

    @rule(key=st.sampled_from("abc"))
    def put(self, key: str) -> None:
        item = (key, next(self.numbers))
        self.model.setdefault(key, []).append(item)
        self.queues.put(key, item)

    @rule(passed=st.sampled_from([0.0, 1.0, 5.0]))
    def take(self, passed: float) -> None:
        self.now += passed
        open_keys = {
            key
            for key, items in self.model.items()
            if items and key not in self.running and self.due.get(key, 0.0) <= self.now
        }
        item = self.queues.take(self.now)
        if item is None:
            assert not open_keys
            return
        assert item[0] in open_keys
        assert item == self.model[item[0]][0]
        self.running[item[0]] = item
        self.due.pop(item[0], None)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.running)))
        del self.running[key]
        self.model[key].pop(0)
        self.queues.done(key)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), delay=st.sampled_from([0.0, 1.0, 3.0]))
    def postpone(self, data: st.DataObject, delay: float) -> None:
        key = data.draw(st.sampled_from(sorted(self.running)))
        del self.running[key]
        self.due[key] = self.now + delay
        self.queues.postpone(key, self.now + delay)

    @rule(keys=st.sets(st.sampled_from("abc")), least=st.integers(0, 30))
    def drop(self, keys: set[str], least: int) -> None:
        expected = []
        for key, items in self.model.items():
            unwanted = [item for item in items if item[0] in keys and item[1] >= least]
            unwanted = [item for item in unwanted if item is not self.running.get(key)]
            if items and items[0] in unwanted:
                self.due.pop(key, None)
            expected += unwanted
            self.model[key] = [item for item in items if item not in unwanted]
        dropped = self.queues.drop(lambda item: item[0] in keys and item[1] >= least)
        assert sorted(dropped) == sorted(expected)

    @invariant()
    def the_next_due_time_and_the_length_are_those_of_the_model(self) -> None:
        assert len(self.queues) == sum(map(len, self.model.values()))
        due = self.queues.next_due()
        # An item that is due may be ready already or not, depending on when `take` was last called.
        assert [at for at in self.due.values() if at > self.now] == [] or due is not None
        assert due is None or due in self.due.values()


KeyedQueuesMachine.TestCase.settings = examples(60, stateful_step_count=40)
TestKeyedQueuesAgainstAModel = KeyedQueuesMachine.TestCase
