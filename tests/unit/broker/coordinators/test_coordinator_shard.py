"""The shard runtime, with a machine that only counts: what holds here holds for every coordinator."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from tests.unit.broker.bench import Bench, on_broker, until

from ottla.broker.coordinators.shard import CoordinatorShard, ShardSettings, ShardState
from ottla.core.coordination import Command, Decision, Waiter
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_PRODUCER_ID


@dataclass(frozen=True, slots=True)
class Add(Command[int]):
    key: str
    amount: int = 1
    padding: int = 0
    times: int = 1


@dataclass(frozen=True, slots=True)
class Read(Command[dict[str, int]]):
    pass


@dataclass(frozen=True, slots=True)
class AnswerIn(Command[str]):
    """Answered by a timer."""

    delay_ms: int


@dataclass(frozen=True, slots=True)
class TimeOver(Command[None]):
    pass


@dataclass(frozen=True, slots=True)
class Perform(Command[str]):
    """Answered, and then done."""

    effect: str


@dataclass(frozen=True, slots=True)
class Refused(Command[None]):
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
            case AnswerIn():
                self.waiting.append(waiter)
                decision.start_timer(("t",), command.delay_ms, TimeOver())
            case TimeOver():
                for each in self.waiting:
                    decision.reply(each, "time is over")
                self.waiting.clear()
            case Perform():
                decision.perform(command.effect)
                decision.reply(waiter, "decided")
            case Refused():
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


def shard_of(
    bench: Bench, topic: str = "counters", perform: Callable[[Any], None] | None = None
) -> CoordinatorShard[Counters]:
    broker = bench.broker
    shard = CoordinatorShard(
        broker.partitions.find(topic, None, 0),
        Counters,
        Codec,
        broker.env,
        broker.waiting_room,
        broker.spawn,
        ShardSettings(),
        perform=perform,
    )
    shard.start()
    return shard


async def asked(shard: CoordinatorShard[Counters], command: Command[Any]) -> Any:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    shard.submit(command).subscribe(future.set_result, future.set_exception)
    return await future


async def until_active(shard: CoordinatorShard[Counters]) -> None:
    await until(lambda: shard.state is ShardState.ACTIVE)


@on_broker()
async def test_a_decision_is_written_and_a_rebuilt_shard_equals_the_one_that_wrote(bench: Bench) -> None:
    await bench.create("counters")
    shard = shard_of(bench)
    assert shard.state is ShardState.ACTIVE, "an empty log is loaded at once"
    assert [await asked(shard, Add("a")), await asked(shard, Add("a", 4)), await asked(shard, Add("b"))] == [
        1,
        5,
        1,
    ]
    again = shard_of(bench)
    await until_active(again)
    assert again.machine.counts == shard.machine.counts == {"a": 5, "b": 1}
    assert again.machine.was_loaded


@on_broker()
async def test_a_shard_that_loads_says_so(bench: Bench) -> None:
    await bench.create("counters")
    await asked(shard_of(bench), Add("a"))
    loading = shard_of(bench)
    refusal = await asked(loading, Read())
    assert refusal.code is ErrorCode.coordinator_load_in_progress
    await until_active(loading)
    assert await asked(loading, Read()) == {"a": 1}


@on_broker()
async def test_nothing_is_answered_before_it_is_committed_not_even_a_read(bench: Bench) -> None:
    await bench.create("counters", flush_messages="1")
    shard = shard_of(bench)
    written = asyncio.ensure_future(asked(shard, Add("a")))
    read = asyncio.ensure_future(asked(shard, Read()))
    refused = asyncio.ensure_future(asked(shard, Refused()))
    leader = shard.hosted.leader
    await asyncio.sleep(0)
    assert leader.high_watermark < leader.log_end_offset
    assert not written.done()
    assert not read.done()
    assert not refused.done()
    assert await written == 1
    assert await read == {"a": 1}
    assert (await refused).code is ErrorCode.invalid_request
    assert leader.high_watermark == leader.log_end_offset == 1


@on_broker()
async def test_what_is_to_be_performed_follows_the_answer_and_precedes_the_next_decision(
    bench: Bench,
) -> None:
    await bench.create("counters")
    performed: list[str] = []
    shard = shard_of(bench, perform=performed.append)
    assert shard.submit(Perform("a")).value == "decided"
    assert performed == []
    assert shard.submit(Perform("b")).value == "decided"
    assert performed == ["a"]
    await asyncio.sleep(0)
    assert performed == ["a", "b"]


@on_broker()
async def test_a_decision_on_the_heels_of_a_failure_to_perform_is_refused(bench: Bench) -> None:
    await bench.create("counters")

    def fail(effect: str) -> None:
        shard.submit(Broken())

    shard = shard_of(bench, perform=fail)
    await asked(shard, Add("a"))
    assert shard.submit(Perform("x")).value == "decided"
    assert shard.submit(Add("a")).value.code is ErrorCode.coordinator_load_in_progress
    await until_active(shard)
    assert await asked(shard, Read()) == {"a": 1}


@on_broker()
async def test_where_something_cannot_be_performed_the_shard_is_loaded_again(bench: Bench) -> None:
    await bench.create("counters")

    def fail(effect: str) -> None:
        raise ValueError(effect)

    shard = shard_of(bench, perform=fail)
    await asked(shard, Add("a"))
    machine = shard.machine
    assert shard.submit(Perform("x")).value == "decided"
    assert shard.submit(Add("a")).value.code is ErrorCode.coordinator_load_in_progress
    await until_active(shard)
    assert shard.machine is not machine
    assert await asked(shard, Read()) == {"a": 1}


@on_broker()
async def test_a_timer_that_is_started_anew_fires_once(bench: Bench) -> None:
    await bench.create("counters")
    shard = shard_of(bench)
    loop = asyncio.get_running_loop()
    first = asyncio.ensure_future(asked(shard, AnswerIn(1000)))
    await asyncio.sleep(0.5)
    started = loop.time()
    assert await asked(shard, AnswerIn(2000)) == "time is over"
    assert loop.time() - started == pytest.approx(2, abs=0.01)
    assert await first == "time is over"


@on_broker()
async def test_a_failed_append_gives_the_machine_up_and_loads_it_again(bench: Bench) -> None:
    await bench.create("counters", max_message_bytes="1000")
    shard = shard_of(bench)
    await asked(shard, Add("a"))
    waiting = asyncio.ensure_future(asked(shard, AnswerIn(1000)))
    await asyncio.sleep(0)
    refusal = await asked(shard, Add("a", padding=5000))
    assert refusal.code is ErrorCode.unknown_server_error
    assert "max.message.bytes" in refusal.message
    assert (await waiting).code is ErrorCode.not_coordinator, "who waits is not forgotten"
    await until_active(shard)
    assert await asked(shard, Read()) == {"a": 1}
    assert await asked(shard, Add("a")) == 2


@on_broker()
async def test_a_machine_that_fails_half_way_is_loaded_again(bench: Bench) -> None:
    await bench.create("counters")
    shard = shard_of(bench)
    await asked(shard, Add("a"))
    refusal = await asked(shard, Broken())
    assert refusal.code is ErrorCode.unknown_server_error
    await until_active(shard)
    assert await asked(shard, Read()) == {"a": 1}


@on_broker()
async def test_a_shard_whose_records_cannot_be_replayed_is_no_coordinator(bench: Bench) -> None:
    await bench.create("counters")
    await bench.produce("counters", b"not a number")
    shard = shard_of(bench)
    await until(lambda: shard.state is not ShardState.LOADING)
    assert shard.state is ShardState.CLOSED
    assert (await asked(shard, Read())).code is ErrorCode.not_coordinator


@on_broker()
async def test_a_decision_larger_than_a_batch_is_written_as_several(bench: Bench) -> None:
    await bench.create("counters", max_message_bytes="1000")
    shard = shard_of(bench)
    assert await asked(shard, Add("a", padding=200, times=20)) == 20
    assert shard.hosted.leader.log_end_offset == 20
    again = shard_of(bench)
    await until_active(again)
    assert again.machine.counts == {"a": 20}


@on_broker()
async def test_a_closed_shard_answers_everybody_and_is_no_coordinator(bench: Bench) -> None:
    await bench.create("counters")
    shard = shard_of(bench)
    waiting = asyncio.ensure_future(asked(shard, AnswerIn(1000)))
    await asyncio.sleep(0)
    shard.close()
    assert (await waiting).code is ErrorCode.not_coordinator
    assert (await asked(shard, Read())).code is ErrorCode.not_coordinator
    await asyncio.sleep(2)
    assert shard.machine.waiting, "its timers are gone with it"
