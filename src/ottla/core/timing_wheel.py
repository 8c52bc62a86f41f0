"""A hierarchical timing wheel: adding, cancelling and expiring a timer take constant time.

The lowest wheel has 20 buckets of 1 ms, the next 20 buckets of 20 ms, and so on; each wheel is made when it is first
needed. When the time of a bucket in a higher wheel comes, its timers move to lower wheels. Time enters only as an
argument.
"""

from typing import Generic, TypeVar

T = TypeVar("T")


class Timer(Generic[T]):
    """An item and its deadline. It is in a bucket until it expires or is cancelled."""

    __slots__ = ("bucket", "deadline_ms", "item")

    def __init__(self, item: T, deadline_ms: int) -> None:
        self.item = item
        self.deadline_ms = deadline_ms
        self.bucket: _Bucket[T] | None = None


class _Bucket(Generic[T]):
    __slots__ = ("bit", "timers", "wheel")

    def __init__(self, wheel: "_Wheel[T]", bit: int) -> None:
        self.wheel = wheel
        self.bit = bit
        self.timers: dict[Timer[T], None] = {}

    def add(self, timer: Timer[T]) -> None:
        timer.bucket = self
        self.timers[timer] = None
        self.wheel.occupied |= self.bit

    def remove(self, timer: Timer[T]) -> None:
        timer.bucket = None
        del self.timers[timer]
        if not self.timers:
            self.wheel.occupied &= ~self.bit

    def take_all(self) -> list[Timer[T]]:
        timers = list(self.timers)
        self.timers.clear()
        self.wheel.occupied &= ~self.bit
        return timers


class _Wheel(Generic[T]):
    """`tick` counts ticks since the epoch. All timers are due within one turn after it, so each bucket has one time."""

    __slots__ = ("buckets", "occupied", "size", "tick", "tick_ms")

    def __init__(self, tick_ms: int, size: int, now_ms: int) -> None:
        self.tick_ms = tick_ms
        self.size = size
        self.tick = now_ms // tick_ms
        self.occupied = 0  # bit n: bucket n has timers
        self.buckets: list[_Bucket[T]] = [_Bucket(self, 1 << index) for index in range(size)]

    def next_tick(self) -> int | None:
        """The tick of the first occupied bucket."""
        if not self.occupied:
            return None
        first = (self.tick + 1) % self.size
        # Turn the ring so that the bucket of the next tick is bit 0; the lowest set bit is then the distance.
        turned = (self.occupied >> first) | (self.occupied << (self.size - first))
        return self.tick + (turned & -turned).bit_length()


class TimingWheel(Generic[T]):
    def __init__(self, now_ms: int, *, tick_ms: int = 1, wheel_size: int = 20) -> None:
        self._wheel_size = wheel_size
        self._now_ms = now_ms
        self._wheels: list[_Wheel[T]] = [_Wheel(tick_ms, wheel_size, now_ms)]
        # Timers that were due when they were added.
        self._due: _Bucket[T] = _Wheel[T](tick_ms, 1, now_ms).buckets[0]
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def items(self) -> list[T]:
        """The items whose timers run, in no order."""
        buckets = [self._due, *(bucket for wheel in self._wheels for bucket in wheel.buckets)]
        return [timer.item for bucket in buckets for timer in bucket.timers]

    def add(self, item: T, deadline_ms: int) -> Timer[T]:
        timer = Timer(item, deadline_ms)
        if not self._place(timer):
            self._due.add(timer)
        self._count += 1
        return timer

    def cancel(self, timer: Timer[T]) -> bool:
        """False if the timer has expired or was cancelled before."""
        if timer.bucket is None:
            return False
        timer.bucket.remove(timer)
        self._count -= 1
        return True

    def advance(self, now_ms: int) -> list[Timer[T]]:
        """Advances the clock and removes all timers with a deadline up to now; returns them in order of deadlines."""
        expired = sorted(self._due.take_all(), key=_deadline)
        while (start_ms := self._next_start_ms()) is not None and start_ms <= now_ms:
            timers = self._take_buckets(start_ms)
            self._turn_to(start_ms)
            expired.extend(timer for timer in timers if not self._place(timer))
        if now_ms > self._now_ms:
            self._turn_to(now_ms)
        for timer in expired:
            timer.bucket = None
        self._count -= len(expired)
        return expired

    def next_deadline_ms(self) -> int | None:
        """When `advance` must be called next: at the first deadline, or a little before it."""
        return self._now_ms if self._due.timers else self._next_start_ms()

    def _place(self, timer: Timer[T]) -> bool:
        """Puts the timer into the lowest wheel that reaches its deadline; False if it is due."""
        deadline_ms = timer.deadline_ms
        for wheel in self._wheels:
            ticks = deadline_ms // wheel.tick_ms
            distance = ticks - wheel.tick
            if distance <= 0:
                return False
            if distance < wheel.size:
                wheel.buckets[ticks % wheel.size].add(timer)
                return True
        top = self._wheels[-1]
        self._wheels.append(_Wheel(top.tick_ms * self._wheel_size, self._wheel_size, self._now_ms))
        return self._place(timer)

    def _next_start_ms(self) -> int | None:
        """The start time of the first occupied bucket of all wheels."""
        earliest: int | None = None
        for wheel in self._wheels:
            tick = wheel.next_tick()
            if tick is not None and (earliest is None or tick * wheel.tick_ms < earliest):
                earliest = tick * wheel.tick_ms
        return earliest

    def _take_buckets(self, start_ms: int) -> list[Timer[T]]:
        """Removes the timers of all buckets that start at `start_ms`, of the highest wheel first: those are older."""
        timers: list[Timer[T]] = []
        for wheel in reversed(self._wheels):
            tick = wheel.next_tick()
            if tick is not None and tick * wheel.tick_ms == start_ms:
                timers += wheel.buckets[tick % wheel.size].take_all()
        return timers

    def _turn_to(self, now_ms: int) -> None:
        self._now_ms = now_ms
        for wheel in self._wheels:
            wheel.tick = now_ms // wheel.tick_ms


def _deadline(timer: Timer[T]) -> int:
    return timer.deadline_ms
