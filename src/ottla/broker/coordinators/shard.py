"""One shard of a coordinator: a pure machine on a partition of an internal topic.

A command is decided, the records of the decision are appended, and the answers leave when all that was written up to
then is committed: also those of reads, so that nobody is told what a crash could take back. What else a decision wants
done is done right behind them. What the machine cannot undo it need not: where an append fails the machine is given up
and rebuilt from the log.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from enum import Enum
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from ottla.broker.coordinators.loading import load
from ottla.broker.coordinators.shard_timers import ShardTimers
from ottla.broker.hosted_partition import HostedPartition
from ottla.broker.housekeeping import flush
from ottla.broker.pending import Pending, completed
from ottla.broker.waiting_room import WaitingRoom
from ottla.core.coordination import (
    Command,
    CoordinatorMachine,
    Decision,
    KeyT,
    Reply,
    ResponseT,
    ValueT,
)
from ottla.core.partition.leader import AppendPlan, TransactionMarker
from ottla.core.purgatory import Operation
from ottla.env import Env
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ottla.records.header import BatchHeader
from ottla.records.records import build_keyed_batch, build_packed_batch
from ottla.storage.disk_errors import RETRY_S, is_disk_failure

logger = logging.getLogger("ottla.coordinator")

MachineT = TypeVar("MachineT", bound=CoordinatorMachine[Any, Any])

EncodedRecord = tuple[bytes, bytes | None]

# A batch has the header and, beside each key and value, a few varints: room for them below max.message.bytes.
_BATCH_OVERHEAD = 128
_RECORD_OVERHEAD = 32

# What goes wrong with the coordinator's own partition means something else to a client, which knows nothing of it.
_TOLD_TO_CLIENTS = {
    ErrorCode.unknown_topic_or_partition: ErrorCode.coordinator_not_available,
    ErrorCode.not_enough_replicas: ErrorCode.coordinator_not_available,
    ErrorCode.request_timed_out: ErrorCode.coordinator_not_available,
    ErrorCode.not_leader_or_follower: ErrorCode.not_coordinator,
    ErrorCode.kafka_storage_error: ErrorCode.not_coordinator,
    ErrorCode.message_too_large: ErrorCode.unknown_server_error,
    ErrorCode.record_list_too_large: ErrorCode.unknown_server_error,
}


class RecordCodec(Protocol[KeyT, ValueT]):
    """How keys and values lie in the internal topic (a module does)."""

    def encode_key(self, key: KeyT, /) -> bytes: ...

    def encode_value(self, value: ValueT, /) -> bytes: ...

    def decode_record(self, key: bytes, value: bytes | None, /) -> tuple[KeyT, ValueT | None] | None:
        """None for a record of a kind that this coordinator does not keep."""
        ...


class ShardState(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    CLOSED = "closed"


class ShardSettings(NamedTuple):
    """`commit_timeout_ms`: how long an answer waits for its records to be committed."""

    commit_timeout_ms: int = 5000
    compression: int = 0
    load_buffer_bytes: int = 5 << 20


class CoordinatorShard(Generic[MachineT]):
    def __init__(
        self,
        hosted: HostedPartition,
        new_machine: Callable[[], MachineT],
        codec: RecordCodec[Any, Any],
        env: Env,
        waiting_room: WaitingRoom,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        settings: ShardSettings,
        perform: Callable[[Any], None] | None = None,
    ) -> None:
        """`perform` does what the machine's decisions ask for beyond records, answers and timers."""
        self.hosted = hosted
        self.settings = settings
        self.state = ShardState.LOADING
        self.machine = new_machine()
        self._new_machine = new_machine
        self._codec = codec
        self._env = env
        self._waiting_room = waiting_room
        self._spawn = spawn
        self._perform = perform
        self._timers = ShardTimers(waiting_room, self._timer_fired, self.fail)
        self._waiting: dict[Pending[Any], None] = {}  # who is answered by a later decision
        self._due: list[Any] = []  # to be performed when the answers of this turn have left

    # -- life

    def start(self) -> None:
        """Rebuilds the machine from the log: at once where that is empty, else beside the requests."""
        self.state = ShardState.LOADING
        log = self.hosted.log
        if log.log_start_offset == log.log_end_offset:
            self._loaded()
        else:
            self._spawn(self._load())

    async def _load(self) -> None:
        machine = self.machine
        try:
            await load(self._env, self.hosted, machine, self._codec, self.settings.load_buffer_bytes)
        except OSError as error:
            if machine is not self.machine or self.state is not ShardState.LOADING:
                return
            refusal = self.hosted.storage_failed(error)
            logger.error("%s cannot be loaded: %s", self.hosted.topic_partition, refusal.message)
            if is_disk_failure(error):
                self.close()
                return
            await asyncio.sleep(RETRY_S)
            if machine is self.machine and self.state is ShardState.LOADING:
                self.machine = self._new_machine()
                self.start()
            return
        except Exception as error:
            if machine is self.machine and self.state is ShardState.LOADING:
                trace = None if isinstance(error, KafkaError) else error
                logger.error("%s cannot be loaded: %s", self.hosted.topic_partition, error, exc_info=trace)
                self.close()
            return
        if machine is self.machine and self.state is ShardState.LOADING:  # not given up meanwhile
            self._loaded()

    def _loaded(self) -> None:
        self.state = ShardState.ACTIVE
        self.run(self.machine.on_loaded)

    def close(self) -> None:
        """The partition is led elsewhere from now on, or gone."""
        self._give_up(
            KafkaError(ErrorCode.not_coordinator, f"{self.hosted.topic_partition} is no longer served here")
        )
        self.state = ShardState.CLOSED

    def _reload(self, reason: KafkaError, waiter: Pending[Any] | None) -> None:
        """`waiter` is told what happened; the others, who have nothing to do with it, are to ask again."""
        if waiter is not None:
            self.send([Reply(waiter, reason)])
        if self.hosted.failure is not None:
            self.close()
            return
        logger.error("%s is loaded again: %s", self.hosted.topic_partition, reason.message)
        self._give_up(
            KafkaError(ErrorCode.not_coordinator, f"{self.hosted.topic_partition} is loaded again; ask again")
        )
        self.machine = self._new_machine()
        self.start()

    def fail(self, error: Exception) -> None:
        """Something that the shard waited for failed unexpectedly: all who wait are told, and the log is read again."""
        if self.state is ShardState.ACTIVE:
            self._reload(KafkaError(ErrorCode.unknown_server_error, f"a step failed: {error!r}"), None)

    def _give_up(self, reason: KafkaError) -> None:
        self._timers.clear()
        self._due.clear()
        waiting, self._waiting = self._waiting, {}
        for pending in waiting:
            if not pending.done:
                pending.complete(reason)

    # -- commands

    def submit(self, command: Command[ResponseT]) -> "Pending[ResponseT | KafkaError]":
        """Never raises: a refusal is a KafkaError in the place of the response."""
        if self._due:
            self._perform_due()
        if self.state is not ShardState.ACTIVE:
            return completed(self._not_active())
        pending: Pending[ResponseT | KafkaError] = Pending()
        self._waiting[pending] = None
        self._decide(command, pending)
        return pending

    def _decide(self, command: Command[Any], waiter: Pending[Any] | None) -> None:
        self.run(partial(self.machine.decide, command, waiter), waiter)

    def run(
        self,
        decide: "Callable[[int], Decision[Any, Any]]",
        waiter: Pending[Any] | None = None,
    ) -> None:
        """Takes a decision (given the time) and performs it; what goes wrong in it is told to `waiter`."""
        now_ms = self._env.clock.now_ms()
        try:
            decision = decide(now_ms)
        except KafkaError as error:  # refused, and nothing has changed
            if waiter is not None:
                self._answer([Reply(waiter, error)])
            return
        except Exception:
            logger.exception("a decision of %s failed", self.hosted.topic_partition)
            self._reload(_bug(), waiter)
            return
        if decision.timer_changes:
            self._timers.keep(decision.timer_changes)
        if decision.records or decision.packed is not None:
            try:
                self._append(decision, now_ms)
            except KafkaError as error:
                code = _TOLD_TO_CLIENTS.get(error.code, error.code)
                self._reload(KafkaError(code, error.message), waiter)
                return
            except Exception:
                logger.exception("what %s has decided cannot be written", self.hosted.topic_partition)
                self._reload(_bug(), waiter)
                return
        if decision.replies or decision.effects:
            self._answer(decision.replies, decision.effects)

    @property
    def can_be_read(self) -> bool:
        """Whether what the machine says now stands: a reader need not wait, nor ask by a command."""
        leader = self.hosted.leader
        return (
            self.state is ShardState.ACTIVE
            and not self._due
            and leader.high_watermark >= leader.log_end_offset
        )

    def append_marker(self, marker: TransactionMarker) -> AppendPlan:
        """Ends a producer's transaction in this partition, which the machine sees at once.

        Raises KafkaError, and then nothing has changed.
        """
        if self.state is not ShardState.ACTIVE:
            raise self._not_active()
        plan = self.hosted.append_marker(marker, self._env.clock.now_ms())
        self.machine.replay_marker(marker.producer_id, marker.commit)
        return plan

    def _not_active(self) -> KafkaError:
        if self.state is ShardState.LOADING:
            return KafkaError(
                ErrorCode.coordinator_load_in_progress,
                f"{self.hosted.topic_partition} is being loaded; try again in a moment",
            )
        return KafkaError(ErrorCode.not_coordinator, f"{self.hosted.topic_partition} is not served here")

    # -- what a decision wants done

    def _append(self, decision: Decision[Any, Any], now_ms: int) -> None:
        hosted = self.hosted
        hosted.append_internally(self._batches(decision, now_ms), now_ms)
        if hosted.needs_flush:
            self._spawn(flush(self._env, hosted))

    def _batches(self, decision: Decision[Any, Any], now_ms: int) -> list[tuple[BatchHeader, bytes]]:
        """One batch, or several where one would be larger than the topic allows."""
        codec = self.settings.compression
        if decision.packed is not None:
            number, payload = decision.packed
            return [build_packed_batch(payload, number, now_ms, codec=codec)]
        encode_key, encode_value = self._codec.encode_key, self._codec.encode_value
        pairs = [
            (encode_key(key), None if value is None else encode_value(value))
            for key, value in decision.records
        ]
        producer_id, producer_epoch = decision.producer or (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        limit = self.hosted.leader.settings.max_message_bytes - _BATCH_OVERHEAD
        return [
            build_keyed_batch(
                records,
                now_ms,
                codec=codec,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                transactional=decision.producer is not None,
            )
            for records in _split(pairs, limit)
        ]

    def _answer(self, replies: list[Reply], effects: Sequence[Any] = ()) -> None:
        leader = self.hosted.leader
        if leader.high_watermark >= leader.log_end_offset:
            self.send(replies, effects)
        else:
            self.await_commit(leader.log_end_offset, replies, effects)

    def await_commit(self, offset: int, replies: list[Reply], effects: Sequence[Any]) -> None:
        """Sends and performs when all before `offset` is committed. What is performed waits as long as it takes."""
        self._waiting_room.wait(
            AwaitCommit(self, offset, replies, effects),
            (self.hosted.topic_partition,),
            self.settings.commit_timeout_ms,
        )

    def send(self, replies: Iterable[Reply], effects: Sequence[Any] = ()) -> None:
        for reply in replies:
            waiter: Any = reply.waiter  # a Pending, but the machine does not know
            self._waiting.pop(waiter, None)
            if not waiter.done:
                try:
                    waiter.complete(reply.response)
                except (
                    Exception
                ):  # a bug of whoever makes a response of it, which the other waiters must not feel
                    logger.exception("an answer of %s cannot be given", self.hosted.topic_partition)
        if effects:
            if not self._due:
                asyncio.get_running_loop().call_soon(self._perform_due)
            self._due += effects

    def _perform_due(self) -> None:
        """A turn of the event loop later, when the answers have left: nobody waits for more than the decision itself.
        Before the next decision all the same, which finds it done.
        """
        due, self._due = self._due, []
        try:
            for effect in due:
                assert self._perform is not None, "a machine asks for what its shell cannot do"
                self._perform(effect)
        except Exception:
            # The log knows what is still to be done: whoever loads it asks for it again.
            logger.exception("what %s has decided cannot be done", self.hosted.topic_partition)
            if self.state is ShardState.ACTIVE:
                self._reload(KafkaError(ErrorCode.unknown_server_error, "what it decided failed"), None)

    def _timer_fired(self, command: Command[Any]) -> None:
        if self._due:
            self._perform_due()
        if self.state is ShardState.ACTIVE:
            self._decide(command, None)


def _bug() -> KafkaError:
    return KafkaError(ErrorCode.unknown_server_error, "the coordinator met an error; see the broker's log")


def _split(pairs: list[EncodedRecord], limit: int) -> list[list[EncodedRecord]]:
    if len(pairs) == 1:
        return [pairs]
    sizes = [len(key) + len(value or b"") + _RECORD_OVERHEAD for key, value in pairs]
    if sum(sizes) <= limit:
        return [pairs]
    batches: list[list[EncodedRecord]] = []
    left = 0
    for pair, size in zip(pairs, sizes, strict=True):
        if size > left:
            batches.append([])
            left = limit
        batches[-1].append(pair)
        left -= size
    return batches


class AwaitCommit(Operation):
    """Answers that wait until what was written before them is committed."""

    def __init__(
        self,
        shard: CoordinatorShard[Any],
        required_offset: int,
        replies: list[Reply],
        effects: Sequence[Any],
    ) -> None:
        super().__init__()
        self._shard = shard
        self._required_offset = required_offset
        self._replies = replies
        self._effects = effects

    def try_complete(self, now_ms: int) -> bool:
        hosted = self._shard.hosted
        failure = hosted.failure
        if failure is None and hosted.leader.high_watermark < self._required_offset:
            return False
        if failure is None:
            self._shard.send(self._replies, self._effects)
        else:
            self._shard.send([Reply(reply.waiter, failure) for reply in self._replies])
        return True

    def on_expire(self, now_ms: int) -> None:
        # As Kafka: the change may still be committed, and the client is to ask again.
        error = KafkaError(
            ErrorCode.coordinator_not_available,
            f"{self._shard.hosted.topic_partition} was not replicated to offset {self._required_offset} in time",
        )
        self._shard.send([Reply(reply.waiter, error) for reply in self._replies])
        if self._effects and self._shard.state is ShardState.ACTIVE:
            self._shard.await_commit(self._required_offset, [], self._effects)

    def on_error(self, error: Exception) -> None:
        self._shard.fail(error)
