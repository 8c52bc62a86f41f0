"""The shard runtime, with a shard that only counts."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from tests.unit.broker.broker_bench import Bench, on_broker, until
from tests.unit.broker.roles import OTHER, change_partition

from ottla.broker.coordinators.shard_runtime import RuntimeSettings, RuntimeState, ShardRuntime
from ottla.broker.promise import Promise
from ottla.core.coordination import Command, Decision, Waiter
from ottla.core.partition.leader import PartitionLeader
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_PRODUCER_ID


@dataclass(frozen=True, slots=True)
class Add(Command[int]):
    """`is_certain`: whether the command says beforehand that it writes."""

    key: str
    amount: int = 1
    padding: int = 0
    times: int = 1
    is_certain: bool = True

    @property
    def writes(self) -> bool:
        return self.is_certain


@dataclass(frozen=True, slots=True)
class Read(Command[dict[str, int]]):
    pass


@dataclass(frozen=True, slots=True)
class RespondIn(Command[str]):
    """A timer sends the response."""

    delay_ms: int


@dataclass(frozen=True, slots=True)
class TimedOut(Command[None]):
    pass


@dataclass(frozen=True, slots=True)
class Perform(Command[str]):
    """Has a response and then an effect."""

    effect: str


@dataclass(frozen=True, slots=True)
class Rejected(Command[None]):
    pass


@dataclass(frozen=True, slots=True)
class Broken(Command[None]):
    pass


class Counters:
    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.waiting: list[Waiter] = []
        self.ended: list[tuple[int, bool]] = []
        self.was_loaded = False

    def decide(self, command: Command[Any], waiter: Waiter, now_ms: int) -> Decision[str, bytes]:
        decision: Decision[str, bytes] = Decision(self.replay)
        match command:
            case Add():
                for _ in range(command.times):
                    count = self.counts.get(command.key, 0) + command.amount
                    decision.write(command.key, str(count).encode() + b" " * command.padding)
                decision.reply(waiter, self.counts[command.key])
            case Read():
                decision.reply(waiter, dict(self.counts))
            case RespondIn():
                self.waiting.append(waiter)
                decision.start_timer(("t",), command.delay_ms, TimedOut())
            case TimedOut():
                for each in self.waiting:
                    decision.reply(each, "time is over")
                self.waiting.clear()
            case Perform():
                decision.perform(command.effect)
                decision.reply(waiter, "decided")
            case Rejected():
                raise KafkaError(ErrorCode.invalid_request, "no")
            case _:
                self.counts["half"] = 1
                raise ZeroDivisionError
        return decision

    def replay(self, key: str, value: bytes | None, producer_id: int = NO_PRODUCER_ID) -> None:
        if value is None:
            self.counts.pop(key, None)
        else:
            self.counts[key] = int(value)

    def replay_marker(self, producer_id: int, committed: bool) -> None:
        self.ended.append((producer_id, committed))

    def on_loaded(self, now_ms: int) -> Decision[str, bytes]:
        self.was_loaded = True
        return Decision(self.replay)

    def validate(self) -> None:
        pass


class Codec:
    @staticmethod
    def encode_key(key: str) -> bytes:
        return key.encode()

    @staticmethod
    def encode_value(value: bytes) -> bytes:
        return value

    @staticmethod
    def decode_record(key: bytes, value: bytes | None) -> tuple[str, bytes | None] | None:
        return None if key == b"skipped" else (key.decode(), value)


def runtime_of(
    bench: Bench, topic: str = "counters", perform: Callable[[Any], None] | None = None
) -> ShardRuntime[Counters]:
    services = bench.services
    runtime = ShardRuntime(
        services.partitions.find_replica(topic, None, 0),
        Counters,
        Codec,
        services.env,
        services.delayed_operations,
        services.tasks.start,
        RuntimeSettings(),
        perform=perform,
    )
    runtime.start()
    return runtime


async def submit(runtime: ShardRuntime[Counters], command: Command[Any]) -> Any:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    runtime.submit(command).subscribe(future.set_result, future.set_exception)
    return await future


async def until_active(runtime: ShardRuntime[Counters]) -> None:
    await until(lambda: runtime.state is RuntimeState.ACTIVE)


@on_broker()
async def test_a_shard_that_is_rebuilt_from_its_log_equals_the_one_that_wrote_it(bench: Bench) -> None:
    await bench.create("counters")
    runtime = runtime_of(bench)
    assert runtime.state is RuntimeState.ACTIVE, "an empty log is loaded at once"
    assert [
        await submit(runtime, Add("a")),
        await submit(runtime, Add("a", 4)),
        await submit(runtime, Add("b")),
    ] == [
        1,
        5,
        1,
    ]
    again = runtime_of(bench)
    await until_active(again)
    assert again.shard.counts == runtime.shard.counts == {"a": 5, "b": 1}
    assert again.shard.was_loaded


@on_broker()
async def test_a_shard_that_is_loading_rejects_commands_with_load_in_progress(bench: Bench) -> None:
    await bench.create("counters")
    await submit(runtime_of(bench), Add("a"))
    loading = runtime_of(bench)
    error = await submit(loading, Read())
    assert error.code is ErrorCode.coordinator_load_in_progress
    await until_active(loading)
    assert await submit(loading, Read()) == {"a": 1}


@on_broker()
async def test_no_response_is_sent_before_the_commit_not_even_to_a_read(bench: Bench) -> None:
    await bench.create("counters", flush_messages="1")
    runtime = runtime_of(bench)
    written = asyncio.ensure_future(submit(runtime, Add("a")))
    read = asyncio.ensure_future(submit(runtime, Read()))
    rejected = asyncio.ensure_future(submit(runtime, Rejected()))
    leader, log = runtime.hosted.leader, runtime.hosted.log
    await asyncio.sleep(0)
    assert leader.high_watermark < log.log_end_offset
    assert not written.done()
    assert not read.done()
    assert not rejected.done()
    assert await written == 1
    assert await read == {"a": 1}
    assert (await rejected).code is ErrorCode.invalid_request
    assert leader.high_watermark == log.log_end_offset == 1


@on_broker()
async def test_effects_are_performed_after_the_response_and_before_the_next_decision(
    bench: Bench,
) -> None:
    await bench.create("counters")
    performed: list[str] = []
    runtime = runtime_of(bench, perform=performed.append)
    assert runtime.submit(Perform("a")).value == "decided"
    assert performed == []
    assert runtime.submit(Perform("b")).value == "decided"
    assert performed == ["a"]
    await asyncio.sleep(0)
    assert performed == ["a", "b"]


@on_broker()
async def test_a_command_right_after_a_failed_effect_is_rejected(bench: Bench) -> None:
    await bench.create("counters")

    def fail(effect: str) -> None:
        runtime.submit(Broken())

    runtime = runtime_of(bench, perform=fail)
    await submit(runtime, Add("a"))
    assert runtime.submit(Perform("x")).value == "decided"
    error = runtime.submit(Add("a")).value
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.coordinator_load_in_progress
    await until_active(runtime)
    assert await submit(runtime, Read()) == {"a": 1}


@on_broker()
async def test_a_failed_effect_loads_the_shard_again(bench: Bench) -> None:
    await bench.create("counters")

    def fail(effect: str) -> None:
        raise ValueError(effect)

    runtime = runtime_of(bench, perform=fail)
    await submit(runtime, Add("a"))
    machine = runtime.shard
    assert runtime.submit(Perform("x")).value == "decided"
    error = runtime.submit(Add("a")).value
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.coordinator_load_in_progress
    await until_active(runtime)
    assert runtime.shard is not machine
    assert await submit(runtime, Read()) == {"a": 1}


async def with_uncommitted_record(
    bench: Bench, perform: Callable[[Any], None] | None = None
) -> ShardRuntime[Counters]:
    """Broker 2 is in sync, but has not fetched the record yet."""
    await bench.create("counters")
    change_partition(bench, "counters", replicas=(1, OTHER), isr=(1, OTHER))
    runtime = runtime_of(bench, perform=perform)
    runtime.submit(Add("a"))
    return runtime


@on_broker()
async def test_effects_of_a_discarded_shard_are_not_performed_for_the_next_one(bench: Bench) -> None:
    performed: list[str] = []
    runtime = await with_uncommitted_record(bench, performed.append)
    decided = runtime.submit(Perform("x"))
    runtime.submit(Broken())
    assert decided.value.code is ErrorCode.not_coordinator  # type: ignore[union-attr]
    await until_active(runtime)
    lose_replica(bench)  # the record is committed
    await asyncio.sleep(30)
    assert performed == []
    assert runtime.submit(Perform("y")).value == "decided"
    await asyncio.sleep(0)
    assert performed == ["y"]


@on_broker()
async def test_a_request_that_follows_a_response_is_decided_after_its_effects(bench: Bench) -> None:
    performed: list[str] = []
    runtime = await with_uncommitted_record(bench, performed.append)
    seen: list[list[str]] = []

    def submit_next(response: object) -> None:
        runtime.submit(Read())
        seen.append(list(performed))

    runtime.submit(Perform("x")).subscribe(submit_next, raise_failure)
    lose_replica(bench)
    await until(lambda: bool(seen))
    assert seen == [["x"]]


@on_broker()
async def test_a_timer_that_is_started_again_fires_once(bench: Bench) -> None:
    await bench.create("counters")
    runtime = runtime_of(bench)
    loop = asyncio.get_running_loop()
    first = asyncio.ensure_future(submit(runtime, RespondIn(1000)))
    await asyncio.sleep(0.5)
    started = loop.time()
    assert await submit(runtime, RespondIn(2000)) == "time is over"
    assert loop.time() - started == pytest.approx(2, abs=0.01)
    assert await first == "time is over"


@on_broker()
async def test_a_failed_append_discards_the_shard_and_loads_it_again(bench: Bench) -> None:
    await bench.create("counters", max_message_bytes="1000")
    runtime = runtime_of(bench)
    await submit(runtime, Add("a"))
    waiting = asyncio.ensure_future(submit(runtime, RespondIn(1000)))
    await asyncio.sleep(0)
    error = await submit(runtime, Add("a", padding=5000))
    assert error.code is ErrorCode.unknown_server_error
    assert "max.message.bytes" in error.message
    assert (await waiting).code is ErrorCode.not_coordinator, "who waits is not forgotten"
    await until_active(runtime)
    assert await submit(runtime, Read()) == {"a": 1}
    assert await submit(runtime, Add("a")) == 2


@on_broker()
async def test_a_shard_with_too_few_replicas_is_not_loaded_again_at_once(bench: Bench) -> None:
    await bench.create("counters")
    runtime = runtime_of(bench)
    await submit(runtime, Add("a"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PartitionLeader, "is_under_min_isr", True)
        error = await submit(runtime, Add("a", is_certain=False))
        assert error.code is ErrorCode.coordinator_not_available
        await asyncio.sleep(0.3)
        assert (await submit(runtime, Read())).code is ErrorCode.coordinator_load_in_progress
        await until_active(runtime)
        assert await submit(runtime, Read()) == {"a": 1}, "it can be read"
    assert await submit(runtime, Add("a")) == 2


@on_broker()
async def test_a_shard_that_raises_an_exception_is_loaded_again(bench: Bench) -> None:
    await bench.create("counters")
    runtime = runtime_of(bench)
    await submit(runtime, Add("a"))
    error = await submit(runtime, Broken())
    assert error.code is ErrorCode.unknown_server_error
    await until_active(runtime)
    assert await submit(runtime, Read()) == {"a": 1}


@on_broker()
async def test_a_shard_whose_records_cannot_be_replayed_is_closed(bench: Bench) -> None:
    await bench.create("counters")
    await bench.produce("counters", b"not a number")
    runtime = runtime_of(bench)
    await until(lambda: runtime.state is not RuntimeState.LOADING)
    assert runtime.state is RuntimeState.CLOSED
    assert (await submit(runtime, Read())).code is ErrorCode.not_coordinator


@on_broker()
async def test_a_decision_larger_than_a_batch_is_appended_as_several(bench: Bench) -> None:
    await bench.create("counters", max_message_bytes="1000")
    runtime = runtime_of(bench)
    assert await submit(runtime, Add("a", padding=200, times=20)) == 20
    assert runtime.hosted.log.log_end_offset == 20
    again = runtime_of(bench)
    await until_active(again)
    assert again.shard.counts == {"a": 20}


@on_broker()
async def test_closing_a_shard_completes_all_requests_with_not_coordinator(bench: Bench) -> None:
    await bench.create("counters")
    runtime = runtime_of(bench)
    waiting = asyncio.ensure_future(submit(runtime, RespondIn(1000)))
    await asyncio.sleep(0)
    runtime.close()
    assert (await waiting).code is ErrorCode.not_coordinator
    assert (await submit(runtime, Read())).code is ErrorCode.not_coordinator
    await asyncio.sleep(2)
    assert runtime.shard.waiting, "its timers are gone with it"


# -- a connection whose next request comes with the response to the last one


def raise_failure(error: Exception) -> None:
    raise error


def submit_after(
    runtime: ShardRuntime[Counters], command: Command[Any], following: Command[Any]
) -> list[Promise[Any]]:
    """As a client that pipelines: submits `following` in the very call that completes `command`."""
    promises: list[Promise[Any]] = [runtime.submit(command)]
    promises[0].subscribe(lambda response: promises.append(runtime.submit(following)), raise_failure)
    return promises


@on_broker()
async def test_a_closed_shard_rejects_the_request_that_follows_its_response(bench: Bench) -> None:
    await bench.create("counters")
    runtime = runtime_of(bench)
    first, *rest = promises = submit_after(runtime, RespondIn(1000), RespondIn(1000))
    assert not first.done
    assert not rest
    runtime.close()
    assert [promise.value.code for promise in promises] == [ErrorCode.not_coordinator] * 2


@on_broker()
async def test_a_discarded_shard_rejects_the_request_that_follows_its_response(bench: Bench) -> None:
    await bench.create("counters")
    runtime = runtime_of(bench)
    await submit(runtime, Add("a"))
    promises = submit_after(runtime, RespondIn(1000), RespondIn(1000))
    assert runtime.submit(Broken()).value.code is ErrorCode.unknown_server_error  # type: ignore[union-attr]
    assert [promise.value.code for promise in promises] == [
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_load_in_progress,
    ]
    await until_active(runtime)


@on_broker()
async def test_no_read_sees_what_could_not_be_appended(bench: Bench) -> None:
    await bench.create("counters", max_message_bytes="1000")
    runtime = runtime_of(bench)
    await submit(runtime, Add("a"))
    failed: Promise[Any] = Promise()
    answers: list[Promise[Any]] = []
    failed.subscribe(lambda error: answers.append(runtime.submit(Read())), raise_failure)
    runtime.run(lambda now_ms: runtime.shard.decide(Add("a", padding=5000), failed, now_ms), failed)
    assert failed.value.code is ErrorCode.unknown_server_error
    assert answers[0].value.code is ErrorCode.coordinator_load_in_progress


@on_broker()
async def test_a_shard_that_a_response_closes_is_not_loaded_again(bench: Bench) -> None:
    await bench.create("counters")
    runtime = runtime_of(bench)
    runtime.submit(RespondIn(1000)).subscribe(lambda response: runtime.close(), raise_failure)
    runtime.submit(Broken())
    await asyncio.sleep(1)
    assert runtime.state is RuntimeState.CLOSED


# -- fewer replicas in sync than min.insync.replicas


async def with_too_few_in_sync(bench: Bench) -> ShardRuntime[Counters]:
    """Broker 2 has a replica too, but is not in sync."""
    await bench.create("counters", min_insync_replicas="2")
    change_partition(bench, "counters", replicas=(1, OTHER), isr=(1, OTHER))
    runtime = runtime_of(bench)
    lose_replica(bench)
    return runtime


def lose_replica(bench: Bench) -> None:
    change_partition(bench, "counters", isr=(1,))


def regain_replica(bench: Bench) -> None:
    change_partition(bench, "counters", isr=(1, OTHER))


@on_broker()
async def test_a_write_is_rejected_without_loading_the_shard_again(bench: Bench) -> None:
    runtime = await with_too_few_in_sync(bench)
    shard = runtime.shard
    for _ in range(3):
        error = runtime.submit(Add("a")).value
        assert isinstance(error, KafkaError)
        assert error.code is ErrorCode.coordinator_not_available
        assert "min.insync.replicas" in error.message
    assert runtime.shard is shard
    assert runtime.state is RuntimeState.ACTIVE
    assert shard.counts == {}
    assert runtime.hosted.log.log_end_offset == 0


@on_broker()
async def test_reads_are_served_while_writes_are_rejected(bench: Bench) -> None:
    runtime = await with_too_few_in_sync(bench)
    assert runtime.submit(Read()).value == {}


@on_broker()
async def test_writes_go_on_when_enough_replicas_are_in_sync_again(bench: Bench) -> None:
    runtime = await with_too_few_in_sync(bench)
    shard = runtime.shard
    regain_replica(bench)
    promise = runtime.submit(Add("a"))
    assert not promise.done, "it waits for the other replica"
    assert runtime.hosted.log.log_end_offset == 1
    assert runtime.shard is shard


@on_broker()
async def test_a_timer_waits_until_enough_replicas_are_in_sync(bench: Bench) -> None:
    runtime = await with_too_few_in_sync(bench)
    promise = runtime.submit(RespondIn(1000))
    await asyncio.sleep(30)
    assert not promise.done
    regain_replica(bench)
    await asyncio.sleep(1)
    assert promise.value == "time is over"
