"""The records in flight: which may be handled next, which offsets may be committed, when to stop reading."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.examples import examples

from ottla.consumer.in_flight import WINDOW_FACTOR, InFlightRecords, Order, PartitionState, Task
from ottla.consumer.record import Record
from ottla.model.ids import TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def record(offset: int, key: bytes | None = None, partition: TopicPartition = P0) -> Record:
    return Record(partition.topic, partition.partition, offset, key, b"value")


def in_flight(*added: Record, order: Order = "key", in_flight_max: int = 100) -> InFlightRecords:
    records = InFlightRecords(order, in_flight_max)
    records.assign([P0, P1])
    for each in added:
        assert records.add(each)
    return records


def take_all(records: InFlightRecords) -> dict[int, Task]:
    tasks = {}
    while (task := records.take(0.0)) is not None:
        tasks[task.record.offset] = task
    return tasks


def test_records_of_one_key_are_handled_one_after_the_other() -> None:
    records = in_flight(record(0, b"a"), record(1, b"a"), record(2, b"b"))
    tasks = take_all(records)
    assert set(tasks) == {0, 2}
    records.finish(tasks[0])
    assert set(take_all(records)) == {1}


def test_records_without_a_key_have_no_order() -> None:
    assert set(take_all(in_flight(record(0), record(1), record(2, b"")))) == {0, 1, 2}


def test_records_of_one_partition_are_handled_one_after_the_other_with_order_partition() -> None:
    records = in_flight(record(0, b"a"), record(1, b"b"), record(7, b"a", P1), order="partition")
    assert set(take_all(records)) == {0, 7}


def test_all_records_may_be_handled_at_once_with_order_none() -> None:
    assert set(take_all(in_flight(record(0, b"a"), record(1, b"a"), order="none"))) == {0, 1}


def test_a_record_of_a_partition_that_is_not_assigned_is_not_added() -> None:
    records = InFlightRecords("key", 100)
    assert not records.add(record(0))
    assert records.take(0.0) is None


def test_waiting_records_are_dropped_unless_a_later_record_was_taken() -> None:
    records = in_flight(
        record(0, b"a"), record(1, b"a"), record(2, b"b"), record(3, b"a"), record(9, None, P1)
    )
    tasks = take_all(records)
    records.drop_waiting([P0])
    assert not records.is_drained([P0])
    for offset in (0, 2):
        records.finish(tasks[offset])
    # 1 was not taken, but 2 was, and would be handled twice if 1 were dropped.
    (task,) = take_all(records).values()
    assert task.record.offset == 1
    records.finish(task)
    assert take_all(records) == {}
    assert records.is_drained([P0])
    assert records.committable([P0, P1]) == {P0: 3}


def test_a_stale_task_does_not_count_but_still_blocks_its_key() -> None:
    records = in_flight(record(0, b"a"), record(1, b"a"))
    (old,) = take_all(records).values()
    records.unassign([P0])
    assert records.is_stale(old)
    records.assign([P0])
    assert records.add(record(0, b"a"))
    assert take_all(records) == {}
    records.finish(old)
    assert records.committable([P0]) == {}
    (again,) = take_all(records).values()
    assert again is not old
    records.finish(again)
    assert records.committable([P0]) == {P0: 1}


def test_a_stale_task_is_not_retried() -> None:
    records = in_flight(record(0))
    (task,) = take_all(records).values()
    records.unassign([P0])
    records.postpone(task, due=0.0)
    assert records.next_due() is None
    assert records.take(10.0) is None


def test_the_offset_of_an_abandoned_task_is_not_committable() -> None:
    records = in_flight(record(0), record(1), record(2))
    tasks = take_all(records)
    records.finish(tasks[0])
    records.abandon(tasks[1])
    records.finish(tasks[2])
    assert records.committable([P0]) == {P0: 1}


def test_after_halt_partitions_are_drained_when_no_record_is_being_handled() -> None:
    records = in_flight(record(0, b"a"), record(1, b"a"))
    (task,) = take_all(records).values()
    records.halt()
    assert not records.is_drained([P0])
    records.abandon(task)
    assert records.is_drained([P0])
    assert records.take(0.0) is None


def test_a_position_that_goes_back_starts_a_new_count_of_offsets() -> None:
    records = in_flight(record(500), record(501))
    old = take_all(records)
    assert records.add(record(0))
    (new,) = take_all(records).values()
    records.finish(old[500])
    assert records.committable([P0]) == {}
    records.finish(new)
    assert records.committable([P0]) == {P0: 1}


def test_all_partitions_pause_when_there_is_no_room_and_resume_when_half_is_free() -> None:
    records = in_flight(*(record(n) for n in range(4)), in_flight_max=4)
    assert records.room == 0
    assert records.change_pauses() == ([P0, P1], [])
    assert records.change_pauses() == ([], [])
    tasks = take_all(records)
    records.finish(tasks[0])
    assert records.room == 1
    assert records.change_pauses() == ([], [])
    records.finish(tasks[1])
    assert records.change_pauses() == ([], [P0, P1])


def test_one_partition_pauses_when_too_many_records_are_finished_behind_one_that_is_not() -> None:
    records = in_flight(record(0), in_flight_max=4)
    (stuck,) = take_all(records).values()
    for n in range(1, 4 * WINDOW_FACTOR):
        assert records.change_pauses() == ([], [])
        records.add(record(n))
        (task,) = take_all(records).values()
        records.finish(task)
    assert records.room == 3
    assert records.change_pauses() == ([P0], [])
    assert records.paused == [P0]
    records.finish(stuck)
    assert records.change_pauses() == ([], [P0])


class InFlightMachine(RuleBasedStateMachine):
    """A log of two partitions, read, handled, retried, revoked and read again from what was committed."""

    def __init__(self) -> None:
        super().__init__()
        self.committed = {P0: 0, P1: 0}
        self.position = dict.fromkeys((P0, P1), 0)
        self.owned: set[TopicPartition] = set()
        self.running: list[Task] = []
        self.handled: dict[TopicPartition, set[int]] = {P0: set(), P1: set()}
        self.last_taken: dict[tuple[PartitionState, bytes | None], int] = {}
        self.now = 0.0

    @initialize(order=st.sampled_from(["key", "partition", "none"]), in_flight_max=st.integers(1, 6))
    def begin(self, order: Order, in_flight_max: int) -> None:
        self.order = order
        self.in_flight_max = in_flight_max
        self.records = InFlightRecords(order, in_flight_max)

    @rule(partition=st.sampled_from([P0, P1]))
    def assign(self, partition: TopicPartition) -> None:
        if partition not in self.owned:
            self.owned.add(partition)
            self.position[partition] = self.committed[partition]
            self.records.assign([partition])

    @precondition(lambda self: self.owned)
    @rule(data=st.data(), key=st.sampled_from([b"a", b"b"]), gap=st.integers(0, 1))
    def read(self, data: st.DataObject, key: bytes, gap: int) -> None:
        self.records.change_pauses()
        open_partitions = sorted(self.owned - set(self.records.paused))
        if open_partitions and self.records.room:
            partition = data.draw(st.sampled_from(open_partitions))
            offset = self.position[partition] + gap
            self.position[partition] = offset + 1
            assert self.records.add(record(offset, key, partition))

    @rule()
    def take(self) -> None:
        task = self.records.take(self.now)
        if task is None:
            return
        running_keys = [t.ordering_key for t in self.running]
        assert task.ordering_key not in running_keys, "two tasks of one ordering key at a time"
        if self.order != "none":
            key = (task.state, task.record.key if self.order == "key" else b"")
            assert task.record.offset >= self.last_taken.get(key, -1), "the order of a key is broken"
            self.last_taken[key] = task.record.offset
        self.running.append(task)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        task = data.draw(st.sampled_from(self.running))
        self.running.remove(task)
        self.handled[task.record.topic_partition].add(task.record.offset)
        self.records.finish(task)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), delay=st.sampled_from([0.0, 2.0]))
    def fail(self, data: st.DataObject, delay: float) -> None:
        task = data.draw(st.sampled_from(self.running))
        self.running.remove(task)
        self.records.postpone(task, self.now + delay)
        self.now += 1.0

    @rule()
    def commit(self) -> None:
        self.committed.update(self.records.committable(self.owned))

    @precondition(lambda self: self.owned)
    @rule(data=st.data(), is_lost=st.booleans())
    def revoke(self, data: st.DataObject, is_lost: bool) -> None:
        partition = data.draw(st.sampled_from(sorted(self.owned)))
        if not is_lost:
            self.records.drop_waiting([partition])
            self.committed.update(self.records.committable([partition]))
        self.owned.remove(partition)
        self.records.unassign([partition])

    @invariant()
    def no_more_records_are_in_flight_than_allowed(self) -> None:
        if hasattr(self, "records"):
            assert 0 <= self.records.room <= self.in_flight_max

    @invariant()
    def no_unhandled_record_is_before_a_committable_offset(self) -> None:
        if not hasattr(self, "records"):
            return
        for partition, offset in self.records.committable(self.owned).items():
            state = self.records._states[partition]
            assert offset - 1 in self.handled[partition]
            unfinished = state.tracker._unfinished
            assert not unfinished or min(unfinished) >= offset

    def teardown(self) -> None:
        """Whatever happened, the rest can be handled, and then everything that was read is committable."""
        if not hasattr(self, "records"):
            return
        for running in self.running:
            self.records.finish(running)
        while (task := self.records.take(self.now + 1000)) is not None:
            self.records.finish(task)
        assert self.records.is_drained(self.owned)
        assert self.records.room == self.in_flight_max
        read = {p: h.tracker.last_started + 1 for p, h in self.records._states.items()}
        assert self.records.committable(self.owned) == {p: offset for p, offset in read.items() if offset}


InFlightMachine.TestCase.settings = examples(60, stateful_step_count=50)
TestInFlightRecordsAgainstALog = InFlightMachine.TestCase
