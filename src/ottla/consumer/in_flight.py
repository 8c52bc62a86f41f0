"""The records in flight: which may be handled next, which offsets may be committed, when to pause partitions. Pure.

`HandlerPool` guards it with a lock and passes the time.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from ottla.consumer.keyed_queues import KeyedQueues
from ottla.consumer.offsets import OffsetTracker
from ottla.consumer.record import Record
from ottla.model.ids import TopicPartition

# How many times in_flight_max a partition may have records that are not committable yet, finished or not.
WINDOW_FACTOR = 10

Order: TypeAlias = Literal["key", "partition", "none"]


@dataclass(slots=True, eq=False)
class PartitionState:
    """One assignment of a partition. If the partition is revoked and assigned again, it gets a new state."""

    partition: TopicPartition
    tracker: OffsetTracker = field(default_factory=OffsetTracker)
    # The highest offset that a handler was given.
    last_taken: int = -1
    # Records that wait for a handler or a retry, or are being handled; and how many of them are being handled.
    pending: int = 0
    running: int = 0
    is_paused: bool = False


@dataclass(slots=True, eq=False)
class Task:
    """One record on its way through a handler. Tasks with the same ordering key are handled one after the other."""

    record: Record
    state: PartitionState
    ordering_key: Hashable
    failed_attempts: int = 0


class InFlightRecords:
    """Tasks of a partition that is no longer assigned are stale: their results do not count."""

    def __init__(self, order: Order, in_flight_max: int) -> None:
        self._order = order
        self._in_flight_max = in_flight_max
        self._states: dict[TopicPartition, PartitionState] = {}
        self._queues: KeyedQueues[Task] = KeyedQueues()
        self._is_halted = False

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._states[partition] = PartitionState(partition)

    def add(self, record: Record) -> bool:
        """Adds a record that was read. False if its partition is not assigned: the next owner reads it again."""
        state = self._states.get(record.topic_partition)
        if state is None:
            return False
        if record.offset <= state.tracker.last_started:
            # The position went back, by auto.offset.reset, because the log was truncated or the topic created again.
            # Offsets count from here. Tasks under way may end, but no longer change the committable offset.
            state = self._states[state.partition] = PartitionState(state.partition, is_paused=state.is_paused)
        state.tracker.started(record.offset)
        state.pending += 1
        ordering_key = self._ordering_key(record)
        self._queues.put(ordering_key, Task(record, state, ordering_key))
        return True

    def take(self, now: float) -> Task | None:
        """The next task to handle."""
        task = None if self._is_halted else self._queues.take(now)
        if task is not None:
            task.state.running += 1
            task.state.last_taken = max(task.state.last_taken, task.record.offset)
        return task

    def next_due(self) -> float | None:
        """When the first retry is due."""
        return None if self._is_halted else self._queues.next_due()

    def finish(self, task: Task) -> None:
        self._end(task)
        task.state.tracker.finished(task.record.offset)

    def postpone(self, task: Task, due: float) -> None:
        """The task is to be retried at `due`, unless it has become stale."""
        if self.is_stale(task):
            self._end(task)
            return
        task.state.running -= 1
        self._queues.postpone(task.ordering_key, due)

    def abandon(self, task: Task) -> None:
        """The task ends unfinished: its offset and those after it are not committed."""
        self._end(task)

    def is_stale(self, task: Task) -> bool:
        return self._states.get(task.record.topic_partition) is not task.state

    def halt(self) -> None:
        """From now on no task is taken."""
        self._is_halted = True

    def drop_waiting(self, partitions: Iterable[TopicPartition]) -> None:
        """Drops the tasks behind the last one that was taken, for the next owner to read.

        Those before it are kept: a later record may be finished already, and the next owner would handle it twice.
        """
        leaving = [self._states[p] for p in partitions if p in self._states]
        self._drop({id(state): state.last_taken for state in leaving})

    def is_drained(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether no task of these partitions is left; after `halt`, whether none of them is being handled."""
        assigned = [self._states[p] for p in partitions if p in self._states]
        return not any(state.running if self._is_halted else state.pending for state in assigned)

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        removed = [self._states.pop(p) for p in partitions if p in self._states]
        self._drop({id(state): -1 for state in removed})

    def committable(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset to commit for each of these partitions that has one."""
        assigned = [self._states[p] for p in partitions if p in self._states]
        offsets = {state.partition: state.tracker.committable() for state in assigned}
        return {partition: offset for partition, offset in offsets.items() if offset is not None}

    @property
    def partitions(self) -> list[TopicPartition]:
        return list(self._states)

    @property
    def paused(self) -> list[TopicPartition]:
        return [state.partition for state in self._states.values() if state.is_paused]

    @property
    def room(self) -> int:
        """How many more records may be read."""
        return max(0, self._in_flight_max - sum(state.pending for state in self._states.values()))

    def change_pauses(self) -> tuple[list[TopicPartition], list[TopicPartition]]:
        """Which partitions to pause and which to resume now.

        All pause when there is no room. A single one pauses when too many of its records are not committable: most are
        finished behind one that is not, and a crash would have them handled again. Partitions resume at half of these
        limits, because a pause is expensive: librdkafka drops what it has prefetched, and fetches again only after the
        fetch request that it has in flight.
        """
        half, window_max = self._in_flight_max // 2, self._in_flight_max * WINDOW_FACTOR
        is_full, is_half_empty = self.room == 0, self.room >= self._in_flight_max - half
        pause, resume = [], []
        for state in self._states.values():
            if not state.is_paused and (is_full or len(state.tracker) >= window_max):
                state.is_paused = True
                pause.append(state.partition)
            elif state.is_paused and is_half_empty and len(state.tracker) <= window_max // 2:
                state.is_paused = False
                resume.append(state.partition)
        return pause, resume

    def _ordering_key(self, record: Record) -> Hashable:
        if self._order == "partition":
            return record.topic_partition
        if self._order == "key" and record.key is not None:
            return (record.topic, record.partition, record.key)
        return (record.topic, record.partition, record.offset)

    def _end(self, task: Task) -> None:
        self._queues.done(task.ordering_key)
        task.state.running -= 1
        task.state.pending -= 1

    def _drop(self, last_kept: dict[int, int]) -> None:
        """Drops waiting tasks. `last_kept`: for each state, by its `id`, the last offset that stays."""
        for task in self._queues.drop(
            lambda task: id(task.state) in last_kept and task.record.offset > last_kept[id(task.state)]
        ):
            task.state.pending -= 1
