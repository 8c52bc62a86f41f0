"""What a pool has in hand: which tasks may begin, what may be committed, when to stop reading."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.model.ids import TopicPartition
from ottla.workers.backlog import WINDOW_FACTOR, Backlog, Holding, Order, Task
from ottla.workers.record import Record

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def record(offset: int, key: bytes | None = None, partition: TopicPartition = P0) -> Record:
    return Record(partition.topic, partition.partition, offset, key, b"value")


def backlog_of(*records: Record, order: Order = "key", in_flight_max: int = 100) -> Backlog:
    backlog = Backlog(order, in_flight_max)
    backlog.assign([P0, P1])
    for each in records:
        assert backlog.add(each)
    return backlog


def take_all(backlog: Backlog) -> dict[int, Task]:
    tasks = {}
    while (task := backlog.take(0.0)) is not None:
        tasks[task.record.offset] = task
    return tasks


def test_records_of_one_key_are_handled_one_after_the_other() -> None:
    backlog = backlog_of(record(0, b"a"), record(1, b"a"), record(2, b"b"))
    tasks = take_all(backlog)
    assert set(tasks) == {0, 2}
    backlog.finish(tasks[0])
    assert set(take_all(backlog)) == {1}


def test_records_without_a_key_have_no_order() -> None:
    assert set(take_all(backlog_of(record(0), record(1), record(2, b"")))) == {0, 1, 2}


def test_records_of_one_partition_are_handled_one_after_the_other_where_that_is_chosen() -> None:
    backlog = backlog_of(record(0, b"a"), record(1, b"b"), record(7, b"a", P1), order="partition")
    assert set(take_all(backlog)) == {0, 7}


def test_all_records_are_handled_at_once_where_no_order_is_chosen() -> None:
    assert set(take_all(backlog_of(record(0, b"a"), record(1, b"a"), order="none"))) == {0, 1}


def test_a_record_of_a_partition_that_is_not_ours_is_left_to_its_owner() -> None:
    backlog = Backlog("key", 100)
    assert not backlog.add(record(0))
    assert backlog.take(0.0) is None


def test_what_is_not_begun_is_left_to_the_next_owner_but_not_what_lies_before_a_begun_record() -> None:
    backlog = backlog_of(
        record(0, b"a"), record(1, b"a"), record(2, b"b"), record(3, b"a"), record(9, None, P1)
    )
    tasks = take_all(backlog)
    backlog.leave_unbegun([P0])
    assert not backlog.is_drained([P0])
    for offset in (0, 2):
        backlog.finish(tasks[offset])
    # 1 was not begun, but 2 was, and would be handled twice if 1 were left.
    (task,) = take_all(backlog).values()
    assert task.record.offset == 1
    backlog.finish(task)
    assert take_all(backlog) == {}
    assert backlog.is_drained([P0])
    assert backlog.committable([P0, P1]) == {P0: 3}


def test_a_task_of_a_partition_that_came_back_does_not_count_and_is_still_waited_for_by_its_key() -> None:
    backlog = backlog_of(record(0, b"a"), record(1, b"a"))
    (old,) = take_all(backlog).values()
    backlog.forget([P0])
    assert backlog.is_stale(old)
    backlog.assign([P0])
    assert backlog.add(record(0, b"a"))
    assert take_all(backlog) == {}
    backlog.finish(old)
    assert backlog.committable([P0]) == {}
    (again,) = take_all(backlog).values()
    assert again is not old
    backlog.finish(again)
    assert backlog.committable([P0]) == {P0: 1}


def test_a_retry_of_a_partition_that_went_is_not_tried_again() -> None:
    backlog = backlog_of(record(0))
    (task,) = take_all(backlog).values()
    backlog.forget([P0])
    backlog.put_off(task, due=0.0)
    assert backlog.next_due() is None
    assert backlog.take(10.0) is None


def test_an_abandoned_task_keeps_its_offset_from_being_committed() -> None:
    backlog = backlog_of(record(0), record(1), record(2))
    tasks = take_all(backlog)
    backlog.finish(tasks[0])
    backlog.abandon(tasks[1])
    backlog.finish(tasks[2])
    assert backlog.committable([P0]) == {P0: 1}


def test_a_halted_backlog_is_drained_when_the_workers_are_idle() -> None:
    backlog = backlog_of(record(0, b"a"), record(1, b"a"))
    (task,) = take_all(backlog).values()
    backlog.halt()
    assert not backlog.is_drained([P0])
    backlog.abandon(task)
    assert backlog.is_drained([P0])
    assert backlog.take(0.0) is None


def test_offsets_count_anew_when_the_position_goes_back() -> None:
    backlog = backlog_of(record(500), record(501))
    old = take_all(backlog)
    assert backlog.add(record(0))
    (new,) = take_all(backlog).values()
    backlog.finish(old[500])
    assert backlog.committable([P0]) == {}
    backlog.finish(new)
    assert backlog.committable([P0]) == {P0: 1}


def test_all_partitions_pause_when_there_is_no_room_and_resume_when_half_is_worked_off() -> None:
    backlog = backlog_of(*(record(n) for n in range(4)), in_flight_max=4)
    assert backlog.room == 0
    assert backlog.change_pauses() == ([P0, P1], [])
    assert backlog.change_pauses() == ([], [])
    tasks = take_all(backlog)
    backlog.finish(tasks[0])
    assert backlog.room == 1
    assert backlog.change_pauses() == ([], [])
    backlog.finish(tasks[1])
    assert backlog.change_pauses() == ([], [P0, P1])


def test_one_partition_pauses_when_too_much_is_finished_behind_a_record_that_is_not() -> None:
    backlog = backlog_of(record(0), in_flight_max=4)
    (stuck,) = take_all(backlog).values()
    for n in range(1, 4 * WINDOW_FACTOR):
        assert backlog.change_pauses() == ([], [])
        backlog.add(record(n))
        (task,) = take_all(backlog).values()
        backlog.finish(task)
    assert backlog.room == 3
    assert backlog.change_pauses() == ([P0], [])
    assert backlog.paused == [P0]
    backlog.finish(stuck)
    assert backlog.change_pauses() == ([], [P0])


class BacklogMachine(RuleBasedStateMachine):
    """A log of two partitions, read, handled, retried, revoked and read again from what was committed."""

    def __init__(self) -> None:
        super().__init__()
        self.committed = {P0: 0, P1: 0}
        self.position = dict.fromkeys((P0, P1), 0)
        self.owned: set[TopicPartition] = set()
        self.running: list[Task] = []
        self.handled: dict[TopicPartition, set[int]] = {P0: set(), P1: set()}
        self.last_begun: dict[tuple[Holding, bytes], int] = {}
        self.now = 0.0

    @initialize(order=st.sampled_from(["key", "partition", "none"]), in_flight_max=st.integers(1, 6))
    def begin(self, order: Order, in_flight_max: int) -> None:
        self.order = order
        self.in_flight_max = in_flight_max
        self.backlog = Backlog(order, in_flight_max)

    @rule(partition=st.sampled_from([P0, P1]))
    def assign(self, partition: TopicPartition) -> None:
        if partition not in self.owned:
            self.owned.add(partition)
            self.position[partition] = self.committed[partition]
            self.backlog.assign([partition])

    @precondition(lambda self: self.owned)
    @rule(data=st.data(), key=st.sampled_from([b"a", b"b"]), gap=st.integers(0, 1))
    def read(self, data: st.DataObject, key: bytes, gap: int) -> None:
        self.backlog.change_pauses()
        open_partitions = sorted(self.owned - set(self.backlog.paused))
        if open_partitions and self.backlog.room:
            partition = data.draw(st.sampled_from(open_partitions))
            offset = self.position[partition] + gap
            self.position[partition] = offset + 1
            assert self.backlog.add(record(offset, key, partition))

    @rule()
    def take(self) -> None:
        task = self.backlog.take(self.now)
        if task is None:
            return
        lanes = [t.lane for t in self.running]
        assert task.lane not in lanes, "two tasks of one lane at a time"
        if self.order != "none":
            lane = (task.holding, task.record.key if self.order == "key" else b"")
            assert task.record.offset >= self.last_begun.get(lane, -1), "a lane goes back"
            self.last_begun[lane] = task.record.offset
        self.running.append(task)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        task = data.draw(st.sampled_from(self.running))
        self.running.remove(task)
        self.handled[task.record.topic_partition].add(task.record.offset)
        self.backlog.finish(task)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), delay=st.sampled_from([0.0, 2.0]))
    def fail(self, data: st.DataObject, delay: float) -> None:
        task = data.draw(st.sampled_from(self.running))
        self.running.remove(task)
        self.backlog.put_off(task, self.now + delay)
        self.now += 1.0

    @rule()
    def commit(self) -> None:
        self.committed.update(self.backlog.committable(self.owned))

    @precondition(lambda self: self.owned)
    @rule(data=st.data(), is_lost=st.booleans())
    def go(self, data: st.DataObject, is_lost: bool) -> None:
        partition = data.draw(st.sampled_from(sorted(self.owned)))
        if not is_lost:
            self.backlog.leave_unbegun([partition])
            self.committed.update(self.backlog.committable([partition]))
        self.owned.remove(partition)
        self.backlog.forget([partition])

    @invariant()
    def no_more_is_in_hand_than_allowed(self) -> None:
        if hasattr(self, "backlog"):
            assert 0 <= self.backlog.room <= self.in_flight_max

    @invariant()
    def nothing_unhandled_lies_before_a_committed_offset(self) -> None:
        if not hasattr(self, "backlog"):
            return
        for partition, offset in self.backlog.committable(self.owned).items():
            holding = self.backlog._holdings[partition]
            assert offset - 1 in self.handled[partition]
            unfinished = holding.tracker._unfinished
            assert not unfinished or min(unfinished) >= offset

    def teardown(self) -> None:
        """Whatever happened, what is left can be worked off, and then all that was read is committable."""
        if not hasattr(self, "backlog"):
            return
        for task in self.running:
            self.backlog.finish(task)
        while (task := self.backlog.take(self.now + 1000)) is not None:
            self.backlog.finish(task)
        assert self.backlog.is_drained(self.owned)
        assert self.backlog.room == self.in_flight_max
        read = {p: h.tracker.last_started + 1 for p, h in self.backlog._holdings.items()}
        assert self.backlog.committable(self.owned) == {p: offset for p, offset in read.items() if offset}


BacklogMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
TestBacklogAgainstALog = BacklogMachine.TestCase
