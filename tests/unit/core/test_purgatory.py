"""Delayed operations end once, by an event or by their deadline, and are removed from all lists."""

from collections.abc import Callable
from functools import partial

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.examples import examples

from ottla.core.purgatory import Operation, Purgatory


class Waiting(Operation):
    """Completes when `is_ready` is set, and records its events."""

    def __init__(self, name: str = "", on_try: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self.name = name
        self.on_try = on_try
        self.is_ready = False
        self.tries = 0
        self.story: list[str] = []

    def try_complete(self, now_ms: int) -> bool:
        self.tries += 1
        self.on_try()
        if self.is_ready:
            self.story.append("completed")
        return self.is_ready

    def on_expire(self, now_ms: int) -> None:
        self.story.append("expired")

    def on_error(self, error: Exception) -> None:
        self.story.append(f"failed: {error}")


def new_purgatory() -> Purgatory:
    return Purgatory(0, lambda operation, error: operation.on_error(error))


def is_empty(purgatory: Purgatory) -> bool:
    return len(purgatory) == 0 and purgatory.watched_keys == 0 and purgatory.timers.next_deadline_ms() is None


def test_an_operation_completes_when_one_of_its_keys_is_checked() -> None:
    purgatory = new_purgatory()
    operation = Waiting()
    purgatory.watch(operation, ["a", "b"], 100)
    assert purgatory.check(("a",), 1) == 0
    assert operation.is_waiting
    operation.is_ready = True
    assert purgatory.check(("c",), 2) == 0
    assert purgatory.check(("b",), 2) == 1
    assert operation.story == ["completed"]
    assert not operation.is_waiting
    assert is_empty(purgatory)


def test_a_completed_operation_is_not_tried_again_and_does_not_expire() -> None:
    purgatory = new_purgatory()
    operation = Waiting()
    purgatory.watch(operation, ["a", "b"], 100)
    operation.is_ready = True
    purgatory.check(("a",), 1)
    assert purgatory.check(("a",), 1) == purgatory.check(("b",), 1) == purgatory.expire(200) == 0
    assert operation.tries == 1


def test_an_operation_that_watches_many_changed_keys_is_tried_once() -> None:
    purgatory = new_purgatory()
    operation = Waiting()
    purgatory.watch(operation, range(1000), 100)
    assert purgatory.check(range(1000), 1) == 0
    assert operation.tries == 1


def test_an_operation_that_did_not_complete_expires_at_its_deadline() -> None:
    purgatory = new_purgatory()
    operation = Waiting()
    purgatory.watch(operation, ["a"], 100)
    assert purgatory.expire(99) == 0
    assert purgatory.expire(100) == 1
    assert operation.story == ["expired"]
    operation.is_ready = True
    assert purgatory.check(("a",), 101) == 0
    assert is_empty(purgatory)


def test_operations_on_a_key_are_tried_in_the_order_in_which_they_were_added() -> None:
    purgatory = new_purgatory()
    tried: list[str] = []
    for name in ("first", "second", "third"):
        purgatory.watch(Waiting(name, partial(tried.append, name)), ["a"], 100)
    purgatory.check(("a",), 1)
    assert tried == ["first", "second", "third"]


def test_an_operation_may_have_a_deadline_and_no_keys() -> None:
    purgatory = new_purgatory()
    operation = Waiting()
    purgatory.watch(operation, [], 10)
    assert purgatory.timers.next_deadline_ms() == 10
    purgatory.expire(10)
    assert operation.story == ["expired"]


def test_no_method_of_a_cancelled_operation_is_called() -> None:
    purgatory = new_purgatory()
    operation = Waiting()
    purgatory.watch(operation, ["a", "a"], 10)
    purgatory.cancel(operation)
    purgatory.cancel(operation)
    operation.is_ready = True
    assert purgatory.check(("a",), 1) == purgatory.expire(20) == 0
    assert operation.story == []
    assert is_empty(purgatory)


def test_an_operation_that_completes_another_one_completes_each_once() -> None:
    purgatory = new_purgatory()
    second = Waiting("second")
    second.is_ready = True
    first = Waiting("first", partial(purgatory.check, "b", 1))
    first.is_ready = True
    purgatory.watch(first, ["a"], 100)
    purgatory.watch(second, ["a", "b"], 100)
    purgatory.check(("a",), 1)
    assert first.story == second.story == ["completed"]
    assert is_empty(purgatory)


def test_an_operation_whose_attempt_changes_its_key_is_tried_again_but_not_recursively() -> None:
    purgatory = new_purgatory()
    operation = Waiting()
    looks: list[int] = []

    def check_own_key() -> None:
        looks.append(operation.tries)
        if operation.tries == 1:
            purgatory.check(("a",), 1)
            assert looks == [1]

    operation.on_try = check_own_key
    purgatory.watch(operation, ["a"], 100)
    assert purgatory.check(("a",), 1) == 0
    assert operation.tries == 2


def test_an_operation_that_its_own_attempt_makes_ready_completes_once() -> None:
    purgatory = new_purgatory()
    operation = Waiting()

    def become_ready() -> None:
        operation.is_ready = True
        if operation.tries == 1:
            purgatory.check(("a",), 1)

    operation.on_try = become_ready
    purgatory.watch(operation, ["a"], 100)
    assert purgatory.check(("a",), 1) == 1
    assert operation.story == ["completed"]
    assert is_empty(purgatory)


def test_an_expiry_that_completes_another_operation_of_the_same_time_ends_each_once() -> None:
    purgatory = new_purgatory()
    second = Waiting("second")

    class Waking(Waiting):
        def on_expire(self, now_ms: int) -> None:
            super().on_expire(now_ms)
            second.is_ready = True
            purgatory.check(("a",), now_ms)

    first = Waking("first")
    purgatory.watch(first, ["a"], 10)
    purgatory.watch(second, ["a"], 10)
    assert purgatory.expire(10) == 1
    assert first.story == ["expired"]
    assert second.story == ["completed"]
    assert is_empty(purgatory)


def test_completed_operations_are_removed_from_all_lists() -> None:
    purgatory = new_purgatory()
    for number in range(10_000):
        operation = Waiting()
        purgatory.watch(operation, ["hot", ("rare", number)], 1_000_000)
        operation.is_ready = True
        purgatory.check(("hot",), 1)
    assert is_empty(purgatory)


def raise_an_error() -> None:
    raise LookupError("broken")


def test_an_operation_that_raises_when_it_is_tried_is_removed_and_the_others_are_tried() -> None:
    purgatory = new_purgatory()
    before, broken, after = Waiting("before"), Waiting("broken", raise_an_error), Waiting("after")
    for operation in (before, broken, after):
        purgatory.watch(operation, ["a", "b"], 100)
    before.is_ready = after.is_ready = True
    assert purgatory.check(("a",), 1) == 2
    assert [before.story, broken.story, after.story] == [["completed"], ["failed: broken"], ["completed"]]
    assert not broken.is_waiting
    assert is_empty(purgatory)


def test_an_operation_that_raises_when_it_expires_does_not_affect_others() -> None:
    class Broken(Waiting):
        def on_expire(self, now_ms: int) -> None:
            raise_an_error()

    purgatory = new_purgatory()
    operations = [Waiting("first"), Broken("broken"), Waiting("last")]
    for operation in operations:
        purgatory.watch(operation, ["a"], 10)
    assert purgatory.expire(10) == 3
    assert [operation.story for operation in operations] == [["expired"], ["failed: broken"], ["expired"]]
    assert is_empty(purgatory)


class PurgatoryModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.purgatory = new_purgatory()
        self.all: list[Waiting] = []
        self.waiting: dict[Waiting, tuple[frozenset[int], int]] = {}

    @rule(keys=st.frozensets(st.integers(0, 4), max_size=3), delay=st.integers(0, 1000))
    def watch(self, keys: frozenset[int], delay: int) -> None:
        operation = Waiting()
        self.all.append(operation)
        self.waiting[operation] = keys, self.now_ms + delay
        self.purgatory.watch(operation, sorted(keys), self.now_ms + delay)

    @precondition(lambda self: self.all)
    @rule(number=st.integers(0, 1000))
    def make_ready(self, number: int) -> None:
        self.all[number % len(self.all)].is_ready = True

    @precondition(lambda self: self.all)
    @rule(number=st.integers(0, 1000))
    def break_one(self, number: int) -> None:
        self.all[number % len(self.all)].on_try = raise_an_error

    @rule(key=st.integers(0, 4))
    def check(self, key: int) -> None:
        expected = [operation for operation, (keys, _) in self.waiting.items() if key in keys]
        broken = [operation for operation in expected if operation.on_try is raise_an_error]
        expected = [operation for operation in expected if operation not in broken]
        for operation in broken:
            del self.waiting[operation]
        done = [operation for operation in expected if operation.is_ready]
        assert self.purgatory.check((key,), self.now_ms) == len(done)
        for operation in done:
            del self.waiting[operation]
            assert operation.story == ["completed"]
        assert all(operation.story == ["failed: broken"] for operation in broken)

    @rule(step=st.integers(0, 500))
    def expire(self, step: int) -> None:
        self.now_ms += step
        due = [operation for operation, (_, deadline) in self.waiting.items() if deadline <= self.now_ms]
        assert self.purgatory.expire(self.now_ms) == len(due)
        for operation in due:
            del self.waiting[operation]
            assert operation.story == ["expired"]

    @precondition(lambda self: self.waiting)
    @rule(number=st.integers(0, 1000))
    def cancel(self, number: int) -> None:
        operation = list(self.waiting)[number % len(self.waiting)]
        del self.waiting[operation]
        self.purgatory.cancel(operation)

    @invariant()
    def none_is_lost_and_none_completes_twice(self) -> None:
        assert len(self.purgatory) == len(self.waiting)
        for operation in self.all:
            assert operation.is_waiting == (operation in self.waiting)
            assert len(operation.story) <= 1
        keys = {key for keys, _ in self.waiting.values() for key in keys}
        assert self.purgatory.watched_keys == len(keys)

    def teardown(self) -> None:
        self.purgatory.expire(self.now_ms + 10_000)
        assert is_empty(self.purgatory)


PurgatoryModel.TestCase.settings = examples(50, stateful_step_count=40)
TestPurgatoryModel = PurgatoryModel.TestCase
