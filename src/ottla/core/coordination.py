"""The interface of every coordinator shard: decide, append, replay.

A coordinator has one shard per partition of its internal topic. A shard takes commands and returns decisions: records
to append, responses to send, timers to start. The runtime in the shell appends the records, sends the responses once
everything appended so far is committed, and runs the timers. State that must survive a crash is changed only by
replaying records, so that a shard rebuilt from its log equals the one that wrote it. If an append fails, the runtime
drops the shard and rebuilds it from the log, so a shard never has to undo anything.
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

# The request that waits for a response; opaque to the core. None if nobody waits, as for a timer.
Waiter = Hashable


@dataclass(frozen=True, slots=True)
class Command(Generic[ResponseT]):
    """The type parameter is the type of the response. Random values (member ids) come with the command."""

    @property
    def writes(self) -> bool:
        """Whether the command cannot succeed without a record. While the log takes none, the runtime rejects it
        undecided, so that the shard need not be rebuilt.
        """
        return False


class WritingCommand(Command[ResponseT]):
    """A command that never succeeds without a record."""

    @property
    def writes(self) -> bool:
        return True


class Reply(NamedTuple):
    """Sent when all records up to and including its decision are committed. The response may be a KafkaError."""

    waiter: Waiter
    response: Any


class StartTimer(NamedTuple):
    """Runs `command` after `delay_ms`, unless the timer is cancelled or restarted under the same key before."""

    key: Hashable
    delay_ms: int
    command: Command[Any]


class CancelTimer(NamedTuple):
    key: Hashable


TimerChange = StartTimer | CancelTimer


class Producer(NamedTuple):
    """The producer in whose transaction records are written."""

    producer_id: int
    producer_epoch: int


class Replay(Protocol[KeyT_contra, ValueT_contra]):
    def __call__(
        self, key: KeyT_contra, value: ValueT_contra | None, producer_id: int = NO_PRODUCER_ID
    ) -> None: ...


class PackedRecords(NamedTuple):
    """Records that are already encoded: the payload of a batch of `count` records."""

    count: int  # type: ignore[assignment]  # hides tuple.count, which is not needed here
    payload: bytes


class Decision(Generic[KeyT, ValueT]):
    """The outcome of a command: collected while the shard decides, performed by the runtime afterwards.

    If `producer` is set, which must be done before the first record, all records belong to that producer's
    transaction.
    """

    def __init__(self, replay: Replay[KeyT, ValueT]) -> None:
        self._replay = replay
        self.producer: Producer | None = None
        self.records: list[tuple[KeyT, ValueT | None]] = []  # all or none of them are written
        self.packed: PackedRecords | None = None  # instead of `records`
        self.replies: list[Reply] = []
        self.timer_changes: list[TimerChange] = []
        self.effects: list[Any] = []

    def write(self, key: KeyT, value: ValueT | None) -> None:
        """Adds a record and replays it at once. Without a value it is a tombstone."""
        self.records.append((key, value))
        if self.producer is None:
            self._replay(key, value)
        else:
            self._replay(key, value, self.producer.producer_id)

    def write_without_replay(self, key: KeyT, value: ValueT | None) -> None:
        """Adds a record for a change that the shard has already made to its state."""
        self.records.append((key, value))

    def write_packed(self, count: int, payload: bytes) -> None:
        """As `write_without_replay`, for encoded records. A decision cannot have other records beside them."""
        assert not self.records, "packed records must be the only records of a decision"
        self.packed = PackedRecords(count, payload)

    def reply(self, waiter: Waiter, response: Any) -> None:
        if waiter is not None:
            self.replies.append(Reply(waiter, response))

    def perform(self, effect: Any) -> None:
        """Asks the runtime for an effect that is specific to this coordinator, once the records are committed."""
        self.effects.append(effect)

    def start_timer(self, key: Hashable, delay_ms: int, command: Command[Any]) -> None:
        self.timer_changes.append(StartTimer(key, delay_ms, command))

    def cancel_timer(self, key: Hashable) -> None:
        self.timer_changes.append(CancelTimer(key))


class CoordinatorMachine(Protocol[KeyT, ValueT]):
    """One shard of a coordinator."""

    def decide(self, command: Command[Any], waiter: Waiter, now_ms: int) -> Decision[KeyT, ValueT]:
        """Raises KafkaError if the whole command is rejected. The state is unchanged then."""
        ...

    def replay(self, key: KeyT, value: ValueT | None, producer_id: int = NO_PRODUCER_ID) -> None:
        """Applies one record of the log, in the log's order. `producer_id` is that of a transactional batch."""
        ...

    def replay_marker(self, producer_id: int, committed: bool) -> None:
        """Applies the end of a producer's transaction in this partition."""
        ...

    def on_loaded(self, now_ms: int) -> Decision[KeyT, ValueT]:
        """The whole log has been replayed. The decision starts the timers."""
        ...

    def validate(self) -> None:
        """Raises AssertionError if the state is inconsistent. Called after every event in tests."""
        ...
