"""All records that a pool has in hand: what may begin, what may be committed, where to stop reading. Pure.

The pool guards it with a lock and gives it the time.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from ottla.model.ids import TopicPartition
from ottla.workers.lanes import Lanes
from ottla.workers.offsets import OffsetTracker
from ottla.workers.record import Record

# How many times in_flight_max records of one partition may be finished or under way behind the committable offset.
WINDOW_FACTOR = 10

Order: TypeAlias = Literal["key", "partition", "none"]


@dataclass(slots=True, eq=False)
class Holding:
    """A partition for as long as it is ours. If it goes and comes back, that is another holding."""

    partition: TopicPartition
    tracker: OffsetTracker = field(default_factory=OffsetTracker)
    begun_to: int = -1
    # Records that wait for a worker or a retry, or are with a worker; and of these the last kind alone.
    pending: int = 0
    running: int = 0
    is_paused: bool = False


@dataclass(slots=True, eq=False)
class Task:
    """One record on its way through a handler."""

    record: Record
    holding: Holding
    lane: Hashable
    failed_attempts: int = 0


class Backlog:
    """Tasks of partitions that were taken away are stale: what becomes of them no longer counts."""

    def __init__(self, order: Order, in_flight_max: int) -> None:
        self._order = order
        self._in_flight_max = in_flight_max
        self._holdings: dict[TopicPartition, Holding] = {}
        self._lanes: Lanes[Task] = Lanes()
        self._is_halted = False

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._holdings[partition] = Holding(partition)

    def add(self, record: Record) -> bool:
        """A record that was read; False where its partition is not ours (the next owner reads it again)."""
        holding = self._holdings.get(record.topic_partition)
        if holding is None:
            return False
        if record.offset <= holding.tracker.last_started:
            # The position went back: the log was cut short or the topic made anew, and auto.offset.reset
            # took effect. Offsets count from here; what is under way may end, but says no more about them.
            holding = self._holdings[holding.partition] = Holding(
                holding.partition, is_paused=holding.is_paused
            )
        holding.tracker.started(record.offset)
        holding.pending += 1
        lane = self._lane_of(record)
        self._lanes.put(lane, Task(record, holding, lane))
        return True

    def take(self, now: float) -> Task | None:
        """The next task that a worker may begin."""
        task = None if self._is_halted else self._lanes.take(now)
        if task is not None:
            task.holding.running += 1
            task.holding.begun_to = max(task.holding.begun_to, task.record.offset)
        return task

    def next_due(self) -> float | None:
        """When the first retry is due."""
        return None if self._is_halted else self._lanes.next_due()

    def finish(self, task: Task) -> None:
        self._end(task)
        task.holding.tracker.finished(task.record.offset)

    def put_off(self, task: Task, due: float) -> None:
        """The task is to be tried again, not before `due`, unless its partition was taken away meanwhile."""
        if self.is_stale(task):
            self._end(task)
            return
        task.holding.running -= 1
        self._lanes.put_off(task.lane, due)

    def abandon(self, task: Task) -> None:
        """The task ends unfinished: nothing from its offset on is committed."""
        self._end(task)

    def is_stale(self, task: Task) -> bool:
        return self._holdings.get(task.record.topic_partition) is not task.holding

    def halt(self) -> None:
        """No task begins any more."""
        self._is_halted = True

    def leave_unbegun(self, partitions: Iterable[TopicPartition]) -> None:
        """Drops what lies behind the last record that was begun, for the next owner to read.

        What lies before it is kept even if not begun: a later record may be finished, and would be handled twice.
        """
        leaving = [self._holdings[p] for p in partitions if p in self._holdings]
        self._drop({id(holding): holding.begun_to for holding in leaving})

    def is_drained(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether nothing of these partitions is under way; once halted, whether no worker has one of their tasks."""
        held = [self._holdings[p] for p in partitions if p in self._holdings]
        return not any(holding.running if self._is_halted else holding.pending for holding in held)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """The partitions are no longer ours."""
        gone = [self._holdings.pop(p) for p in partitions if p in self._holdings]
        self._drop({id(holding): -1 for holding in gone})

    def committable(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset to commit for each of these partitions that has one."""
        held = [self._holdings[p] for p in partitions if p in self._holdings]
        offsets = {holding.partition: holding.tracker.committable() for holding in held}
        return {partition: offset for partition, offset in offsets.items() if offset is not None}

    @property
    def partitions(self) -> list[TopicPartition]:
        return list(self._holdings)

    @property
    def paused(self) -> list[TopicPartition]:
        return [holding.partition for holding in self._holdings.values() if holding.is_paused]

    @property
    def room(self) -> int:
        """How many more records may be read."""
        return max(0, self._in_flight_max - sum(holding.pending for holding in self._holdings.values()))

    def change_pauses(self) -> tuple[list[TopicPartition], list[TopicPartition]]:
        """Which partitions to pause and which to resume now.

        All pause when there is no room. One pauses when its window is too long: most of that is finished behind a
        record that is not, and would be handled again after a crash. They resume when half is worked off, for a pause
        costs much: the client throws away what it has fetched ahead, and asks anew only after its present fetch.
        """
        half, window_max = self._in_flight_max // 2, self._in_flight_max * WINDOW_FACTOR
        is_full, is_half_empty = self.room == 0, self.room >= self._in_flight_max - half
        pause, resume = [], []
        for holding in self._holdings.values():
            if not holding.is_paused and (is_full or len(holding.tracker) >= window_max):
                holding.is_paused = True
                pause.append(holding.partition)
            elif holding.is_paused and is_half_empty and len(holding.tracker) <= window_max // 2:
                holding.is_paused = False
                resume.append(holding.partition)
        return pause, resume

    def _lane_of(self, record: Record) -> Hashable:
        if self._order == "partition":
            return record.topic_partition
        if self._order == "key" and record.key is not None:
            return (record.topic, record.partition, record.key)
        return (record.topic, record.partition, record.offset)

    def _end(self, task: Task) -> None:
        self._lanes.done(task.lane)
        task.holding.running -= 1
        task.holding.pending -= 1

    def _drop(self, kept_to: dict[int, int]) -> None:
        """Drops the queued tasks of the holdings named, by identity, that lie behind the offset given for each."""
        for task in self._lanes.drop(
            lambda task: id(task.holding) in kept_to and task.record.offset > kept_to[id(task.holding)]
        ):
            task.holding.pending -= 1
