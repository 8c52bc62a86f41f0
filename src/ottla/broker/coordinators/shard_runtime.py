"""Runs one shard of a coordinator on its partition of the internal topic.

The shard in `core` is a pure state machine. Its runtime rebuilds it from the log, submits commands to it, appends the
records of each decision, and sends the responses when everything that was appended so far is committed. Responses to
reads wait too, so that no client sees a state that a crash could undo. Other effects of a decision are performed right
after its responses. If an append fails, the runtime discards the shard and rebuilds it from the log: a shard never has
to undo anything. While too few replicas are in sync, appends would fail for as long as that lasts, so the runtime does
not even decide what has to be written: requests get COORDINATOR_NOT_AVAILABLE, as in Kafka, and timers wait.

A runtime serves one leadership of its partition. When that ends, the runtime closes: responses that wait get
NOT_COORDINATOR, even if other records reach their offset later.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from enum import Enum
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from ottla.broker.coordinators.shard_loader import load_shard
from ottla.broker.coordinators.shard_timers import ShardTimers
from ottla.broker.delayed_operations import DelayedOperations
from ottla.broker.hosted_partition import Appended, HostedPartition
from ottla.broker.partition_flush import flush_partition
from ottla.broker.promise import Promise, completed
from ottla.core.coordination import (
    Command,
    CoordinatorMachine,
    Decision,
    KeyT,
    Reply,
    ResponseT,
    ValueT,
)
from ottla.core.partition.in_sync_replicas import NEVER_MS
from ottla.core.partition.leader import AppendPlan, TransactionMarker
from ottla.core.purgatory import Operation
from ottla.env import Env
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ottla.records.header import BatchHeader
from ottla.records.records import build_keyed_batch, build_packed_batch
from ottla.storage.disk_errors import RETRY_S, is_disk_failure

logger = logging.getLogger("ottla.coordinator")

ShardT = TypeVar("ShardT", bound=CoordinatorMachine[Any, Any])

EncodedRecord = tuple[bytes, bytes | None]

# Room below max.message.bytes for the batch header, and for the varints of each record.
_BATCH_OVERHEAD = 128
_RECORD_OVERHEAD = 32

# Errors of the internal topic's partition, as errors that a client of the coordinator understands.
_CLIENT_ERRORS = {
    ErrorCode.unknown_topic_or_partition: ErrorCode.coordinator_not_available,
    ErrorCode.not_enough_replicas: ErrorCode.coordinator_not_available,
    ErrorCode.request_timed_out: ErrorCode.coordinator_not_available,
    ErrorCode.not_leader_or_follower: ErrorCode.not_coordinator,
    ErrorCode.kafka_storage_error: ErrorCode.not_coordinator,
    ErrorCode.message_too_large: ErrorCode.unknown_server_error,
    ErrorCode.record_list_too_large: ErrorCode.unknown_server_error,
}
# The next append would fail too, often that of `on_loaded`: the log must not be read again and again until then. Nor
# may a client make the broker do so, with requests whose records cannot be written.
_RELOAD_PAUSE_S = 0.5
_RELOAD_INTERVAL_MS = 10_000


class RecordCodec(Protocol[KeyT, ValueT]):
    """Encodes the keys and values of the internal topic. Implemented by modules."""

    def encode_key(self, key: KeyT, /) -> bytes: ...

    def encode_value(self, value: ValueT, /) -> bytes: ...

    def decode_record(self, key: bytes, value: bytes | None, /) -> tuple[KeyT, ValueT | None] | None:
        """None for a type of record that this coordinator does not use."""
        ...


class RuntimeState(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    CLOSED = "closed"


class RuntimeSettings(NamedTuple):
    """`commit_timeout_ms`: how long a response waits for its records to be committed."""

    commit_timeout_ms: int = 5000
    compression: int = 0
    load_buffer_bytes: int = 5 << 20


class ShardRuntime(Generic[ShardT]):
    def __init__(
        self,
        hosted: HostedPartition,
        new_shard: Callable[[], ShardT],
        codec: RecordCodec[Any, Any],
        env: Env,
        delayed_operations: DelayedOperations,
        start_task: Callable[[Coroutine[Any, Any, None]], None],
        settings: RuntimeSettings,
        perform: Callable[[Any], None] | None = None,
    ) -> None:
        """Serves the present leadership of `hosted`. Raises KafkaError if this broker does not lead it.

        `perform` carries out the effects of the shard's decisions, beyond records, responses and timers.
        """
        self.hosted = hosted
        self.leader = hosted.leader
        self.settings = settings
        self.state = RuntimeState.LOADING
        self.shard = new_shard()
        self._new_shard = new_shard
        self._codec = codec
        self._env = env
        self._delayed_operations = delayed_operations
        self._start_task = start_task
        self._perform = perform
        self._timers = ShardTimers(delayed_operations, self._timer_fired, self.fail, self._takes_records)
        self._last_reload_ms = NEVER_MS
        self._waiting: dict[Promise[Any], None] = {}  # responses that a later decision completes
        self._effects: list[Any] = []  # to be performed when the responses of this turn have been sent

    @property
    def epoch(self) -> int:
        """The coordinator epoch: the leader epoch in which the shard was loaded."""
        return self.leader.leader_epoch

    @property
    def has_leadership(self) -> bool:
        return self.hosted.role is self.leader and not self.hosted.is_closed

    # -- start and end

    def start(self) -> None:
        """Rebuilds the shard from the log: at once if it is empty, else in the background."""
        self.state = RuntimeState.LOADING
        log = self.hosted.log
        if log.log_start_offset == log.log_end_offset:
            self._loaded()
        else:
            self._start_task(self._load())

    async def _load(self) -> None:
        shard = self.shard
        try:
            await load_shard(
                self._env,
                self.hosted,
                shard,
                self._codec,
                self.settings.load_buffer_bytes,
                lambda: self._is_loading(shard),
            )
        except OSError as error:
            if not self._is_loading(shard):
                return
            reason = self.hosted.storage_failed(error).message
            logger.error("%s cannot be loaded: %s", self.hosted.topic_partition, reason)
            if is_disk_failure(error):
                self.close()
                return
            await self._start_after(RETRY_S)
            return
        except Exception as error:
            if self._is_loading(shard):
                trace = None if isinstance(error, KafkaError) else error
                logger.error("%s cannot be loaded: %s", self.hosted.topic_partition, error, exc_info=trace)
                self.close()
            return
        if self._is_loading(shard):
            self._loaded()

    async def _start_after(self, pause_s: float) -> None:
        """Loads a new shard after a pause, unless this one was discarded meanwhile."""
        shard = self.shard
        await asyncio.sleep(pause_s)
        if self._is_loading(shard):
            self.shard = self._new_shard()
            self.start()

    def _is_loading(self, shard: ShardT) -> bool:
        """Whether `shard` is still the one to load: it may have been discarded, or the leadership lost, meanwhile."""
        return shard is self.shard and self.state is RuntimeState.LOADING and self.has_leadership

    def _loaded(self) -> None:
        self.state = RuntimeState.ACTIVE
        self.run(self.shard.on_loaded)

    def close(self) -> None:
        """The partition is deleted, or another broker leads it now."""
        self._close(())

    def _close(self, caused: Sequence[Reply]) -> None:
        self.state = RuntimeState.CLOSED
        self._discard(
            KafkaError(ErrorCode.not_coordinator, f"{self.hosted.topic_partition} is no longer served here"),
            caused,
        )

    def _reload(self, reason: KafkaError, waiter: Promise[Any] | None) -> None:
        """`waiter` gets the reason. The other requests, which did not cause it, get an error that they retry."""
        partition, caused = self.hosted.topic_partition, () if waiter is None else (Reply(waiter, reason),)
        if self.hosted.failure is not None or not self.has_leadership:
            self._close(caused)
            return
        logger.error("%s is loaded again: %s", partition, reason.message)
        self.state = RuntimeState.LOADING
        self.shard = shard = self._new_shard()
        self._discard(
            KafkaError(ErrorCode.not_coordinator, f"{partition} is loaded again; try again"), caused
        )
        if not self._is_loading(shard):  # it was closed by a request that followed one of the responses
            return
        now_ms = self._env.clock.monotonic_ms()
        is_repeated = now_ms - self._last_reload_ms < _RELOAD_INTERVAL_MS
        self._last_reload_ms = now_ms
        if self.leader.is_under_min_isr or is_repeated:
            self._start_task(self._start_after(_RELOAD_PAUSE_S))
        else:
            self.start()

    def fail(self, error: Exception) -> None:
        """An operation of this shard failed unexpectedly: ends all requests that wait, and loads the shard again."""
        if self.state is RuntimeState.ACTIVE:
            self._reload(KafkaError(ErrorCode.unknown_server_error, f"a step failed: {error!r}"), None)

    def _discard(self, reason: KafkaError, caused: Sequence[Reply]) -> None:
        """Stops the timers, sends the replies in `caused`, and completes the other requests that wait with `reason`.

        The state must have changed before: with a response, a connection may submit its next request in this very
        call, and the shard that is given up must not take it.
        """
        assert self.state is not RuntimeState.ACTIVE
        self._timers.clear()
        self._effects.clear()
        waiting, self._waiting = self._waiting, {}
        self.send(caused)
        self.send([Reply(promise, reason) for promise in waiting])

    # -- commands

    def submit(self, command: Command[ResponseT]) -> "Promise[ResponseT | KafkaError]":
        """Never raises: if the command is rejected, the response is a KafkaError."""
        if self._effects:
            self._perform_effects()
        if self.state is not RuntimeState.ACTIVE:
            return completed(self._not_active())
        if command.writes and not self._takes_records():
            return completed(
                KafkaError(
                    ErrorCode.coordinator_not_available,
                    f"{self.hosted.topic_partition} has fewer replicas in sync than min.insync.replicas; try again",
                )
            )
        promise: Promise[ResponseT | KafkaError] = Promise()
        self._waiting[promise] = None
        self._decide(command, promise)
        return promise

    def _takes_records(self) -> bool:
        return not self.leader.is_under_min_isr

    def _decide(self, command: Command[Any], waiter: Promise[Any] | None) -> None:
        self.run(partial(self.shard.decide, command, waiter), waiter)

    def run(
        self,
        decide: "Callable[[int], Decision[Any, Any]]",
        waiter: Promise[Any] | None = None,
    ) -> None:
        """Calls `decide` with the time and carries out its decision. `waiter` gets any error."""
        now_ms = self._env.clock.now_ms()
        try:
            decision = decide(now_ms)
        except KafkaError as error:  # the shard has rejected the command and is unchanged
            if waiter is not None:
                self._send_when_committed([Reply(waiter, error)])
            return
        except Exception:
            logger.exception("a decision of %s failed", self.hosted.topic_partition)
            self._reload(_unexpected_error(), waiter)
            return
        if decision.timer_changes:
            self._timers.update(decision.timer_changes)
        if decision.records or decision.packed is not None:
            try:
                self._append(decision, now_ms)
            except KafkaError as error:
                code = _CLIENT_ERRORS.get(error.code, error.code)
                self._reload(KafkaError(code, error.message), waiter)
                return
            except Exception:
                logger.exception("a decision of %s cannot be appended", self.hosted.topic_partition)
                self._reload(_unexpected_error(), waiter)
                return
        if decision.replies or decision.effects:
            self._send_when_committed(decision.replies, decision.effects)

    @property
    def can_be_read(self) -> bool:
        """Whether all of the shard's state is committed: a reader needs no command, and no wait."""
        hosted = self.hosted
        return (
            self.state is RuntimeState.ACTIVE
            and not self._effects
            and hosted.role is self.leader
            and self.leader.high_watermark >= hosted.log.offsets.end
        )

    def complete_transaction(self, marker: TransactionMarker) -> AppendPlan:
        """Appends the marker that ends a producer's transaction in this partition, and applies it to the shard.

        Raises KafkaError; nothing has changed then.
        """
        if self.state is not RuntimeState.ACTIVE or not self.has_leadership:
            raise self._not_active()
        plan = self.hosted.append_marker(marker, self._env.clock.now_ms())
        self.shard.replay_marker(marker.producer_id, marker.commit)
        return plan

    def _not_active(self) -> KafkaError:
        if self.state is RuntimeState.LOADING and self.has_leadership:
            return KafkaError(
                ErrorCode.coordinator_load_in_progress,
                f"{self.hosted.topic_partition} is being loaded; try again in a moment",
            )
        return KafkaError(ErrorCode.not_coordinator, f"{self.hosted.topic_partition} is not served here")

    # -- decisions

    def _append(self, decision: Decision[Any, Any], now_ms: int) -> None:
        hosted = self.hosted
        hosted.append_for_coordinator(self._batches(decision, now_ms), now_ms, self.leader)
        if hosted.needs_flush:
            self._start_task(flush_partition(self._env, hosted))

    def _batches(self, decision: Decision[Any, Any], now_ms: int) -> list[tuple[BatchHeader, bytes]]:
        """One batch, or several if one would be larger than the topic allows."""
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
        limit = self.leader.settings.max_message_bytes - _BATCH_OVERHEAD
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

    def _send_when_committed(self, replies: list[Reply], effects: Sequence[Any] = ()) -> None:
        hosted = self.hosted
        end_offset = hosted.log.offsets.end
        if hosted.role is self.leader and self.leader.high_watermark >= end_offset:
            self.send(replies, effects)
        else:
            self.delay_until_committed(Appended(hosted, self.leader, end_offset), replies, effects)

    def delay_until_committed(self, appended: Appended, replies: list[Reply], effects: Sequence[Any]) -> None:
        """Sends and performs once `appended` is committed. Replies may time out, effects do not.

        Effects are dropped if the shard is discarded before: the one that replaces it asks for them when it is loaded.
        """
        operation = DelayedCommit(self, appended, replies, effects)
        if operation.try_complete(0):  # the leadership has ended already
            return
        self._delayed_operations.watch(
            operation,
            (self.hosted.topic_partition,),
            self.settings.commit_timeout_ms,
        )

    def send(self, replies: Iterable[Reply], effects: Sequence[Any] = ()) -> None:
        if effects:  # before the replies: the request that follows one of them is decided after the effects
            if not self._effects:
                asyncio.get_running_loop().call_soon(self._perform_effects)
            self._effects += effects
        for reply in replies:
            waiter: Any = reply.waiter  # a Promise, which the shard does not know
            self._waiting.pop(waiter, None)
            if not waiter.done:
                try:
                    waiter.complete(reply.response)
                except Exception:  # a bug of one handler must not affect the other requests
                    logger.exception("a response of %s cannot be sent", self.hosted.topic_partition)

    def _perform_effects(self) -> None:
        """Performs the effects one turn of the event loop after the responses, so that no client waits for them.

        The next decision comes after them in any case: it relies on their result.
        """
        effects, self._effects = self._effects, []
        shard = self.shard
        try:
            for effect in effects:
                if self.shard is not shard:  # an effect before this one has failed: the new shard asks for it
                    return
                assert self._perform is not None, "the shard has an effect that its runtime cannot perform"
                self._perform(effect)
        except Exception:
            # The log has what remains to be done: the shard asks for it again when it is loaded.
            logger.exception("an effect of %s failed", self.hosted.topic_partition)
            if self.state is RuntimeState.ACTIVE:
                self._reload(KafkaError(ErrorCode.unknown_server_error, "an effect of it failed"), None)

    def _timer_fired(self, command: Command[Any]) -> None:
        if self._effects:
            self._perform_effects()
        if self.state is RuntimeState.ACTIVE:
            self._decide(command, None)


def _unexpected_error() -> KafkaError:
    return KafkaError(
        ErrorCode.unknown_server_error, "the coordinator had an unexpected error; see the broker's log"
    )


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


class DelayedCommit(Operation):
    """Replies and effects that wait until the records before them are committed."""

    def __init__(
        self,
        runtime: ShardRuntime[Any],
        appended: Appended,
        replies: list[Reply],
        effects: Sequence[Any],
    ) -> None:
        super().__init__()
        self._runtime = runtime
        self._shard = runtime.shard
        self._appended = appended
        self._replies = replies
        self._effects = effects

    def try_complete(self, now_ms: int) -> bool:
        lost = self._appended.error
        if lost is not None:
            error = KafkaError(_CLIENT_ERRORS.get(lost.code, lost.code), lost.message)
            self._runtime.send([Reply(reply.waiter, error) for reply in self._replies])
            return True
        if not self._appended.is_committed:
            return False
        self._runtime.send(self._replies, self._effects if self._is_of_present_shard else ())
        return True

    def on_expire(self, now_ms: int) -> None:
        # As in Kafka: the change may still be committed later, and the client retries.
        hosted = self._runtime.hosted
        error = KafkaError(
            ErrorCode.coordinator_not_available,
            f"{hosted.topic_partition} was not replicated to offset {self._appended.end_offset} in time",
        )
        self._runtime.send([Reply(reply.waiter, error) for reply in self._replies])
        if self._effects and self._is_of_present_shard:
            self._runtime.delay_until_committed(self._appended, [], self._effects)

    @property
    def _is_of_present_shard(self) -> bool:
        return self._runtime.shard is self._shard and self._runtime.state is RuntimeState.ACTIVE

    def on_error(self, error: Exception) -> None:
        self._runtime.fail(error)
