"""The shape of every coordinator's machine: decide, append, replay.

A coordinator is split into shards, one per partition of its internal topic. A shard's machine takes commands and says
what is to be written, answered and timed; the shell appends the records, sends the answers once everything written so
far is committed, and keeps the timers. What a machine must know after a crash it changes only by replaying records,
so that a shard rebuilt from its log equals the one that wrote it. A failed append gives up the whole machine: it is
rebuilt from the log, so nothing here is ever undone.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from ottla.model.ids import NO_PRODUCER_ID

ResponseT = TypeVar("ResponseT")
KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")
KeyT_contra = TypeVar("KeyT_contra", contravariant=True)
ValueT_contra = TypeVar("ValueT_contra", contravariant=True)

# Who is to be answered; what it is, is the shell's business. None: nobody (a timer).
Waiter = Hashable


@dataclass(frozen=True, slots=True)
class Command(Generic[ResponseT]):
    """A command names the type of its response. Randomness (member ids) comes in with it."""


class Reply(NamedTuple):
    """To be sent when all that was written up to its decision is committed. A KafkaError is a refusal."""

    waiter: Waiter
    response: Any


class StartTimer(NamedTuple):
    """`command` is to be decided in `delay_ms`, unless the timer is cancelled or started anew under the same key."""

    key: Hashable
    delay_ms: int
    command: Command[Any]


class CancelTimer(NamedTuple):
    key: Hashable


Timing = StartTimer | CancelTimer


class Producer(NamedTuple):
    """Under whose transaction records are written."""

    producer_id: int
    producer_epoch: int


class Replay(Protocol[KeyT_contra, ValueT_contra]):
    def __call__(
        self, key: KeyT_contra, value: ValueT_contra | None, producer_id: int = NO_PRODUCER_ID
    ) -> None: ...


class PackedRecords(NamedTuple):
    """Records that are encoded already, as they stand in a batch that holds nothing else."""

    number: int
    payload: bytes


class Decision(Generic[KeyT, ValueT]):
    """What a machine wants done: collected while it decides, performed by the shell afterwards.

    Where `producer` is set, before the first record, all of them belong to that producer's transaction.
    """

    def __init__(self, replay: Replay[KeyT, ValueT]) -> None:
        self._replay = replay
        self.producer: Producer | None = None
        self.records: list[tuple[KeyT, ValueT | None]] = []  # all or none of them are written
        self.packed: PackedRecords | None = None  # instead of `records`
        self.replies: list[Reply] = []
        self.timings: list[Timing] = []
        self.effects: list[Any] = []

    def write(self, key: KeyT, value: ValueT | None) -> None:
        """Writes a record, whose effect the machine sees at once. Without a value it is a tombstone."""
        self.records.append((key, value))
        if self.producer is None:
            self._replay(key, value)
        else:
            self._replay(key, value, self.producer.producer_id)

    def write_only(self, key: KeyT, value: ValueT | None) -> None:
        """Writes a record of what the machine has changed already (a snapshot of its state)."""
        self.records.append((key, value))

    def write_packed(self, number: int, payload: bytes) -> None:
        """Likewise, of encoded records, which are then all that this decision writes."""
        assert not self.records, "packed records stand alone"
        self.packed = PackedRecords(number, payload)

    def reply(self, waiter: Waiter, response: Any) -> None:
        if waiter is not None:
            self.replies.append(Reply(waiter, response))

    def perform(self, effect: Any) -> None:
        """Has the shell do what this coordinator's machine and shell agree on, once the records are committed."""
        self.effects.append(effect)

    def start_timer(self, key: Hashable, delay_ms: int, command: Command[Any]) -> None:
        self.timings.append(StartTimer(key, delay_ms, command))

    def cancel_timer(self, key: Hashable) -> None:
        self.timings.append(CancelTimer(key))


class CoordinatorMachine(Protocol[KeyT, ValueT]):
    """One shard of a coordinator."""

    def decide(self, command: Command[Any], waiter: Waiter, now_ms: int) -> Decision[KeyT, ValueT]:
        """Raises KafkaError where the command is refused as a whole, before anything has changed."""
        ...

    def replay(self, key: KeyT, value: ValueT | None, producer_id: int = NO_PRODUCER_ID) -> None:
        """Applies one record of the log, in the log's order. `producer_id` is that of a transactional batch."""
        ...

    def replay_marker(self, producer_id: int, committed: bool) -> None:
        """Applies the end of a producer's transaction in this partition."""
        ...

    def loaded(self, now_ms: int) -> Decision[KeyT, ValueT]:
        """The whole log has been replayed: what is to be timed from now on."""
        ...

    def validate(self) -> None:
        """Raises AssertionError where the state contradicts itself. Called after every event in tests."""
        ...
