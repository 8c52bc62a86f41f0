"""An unexpected exception closes the connection of its request, wherever it is raised: no client waits forever."""

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.broker.broker_bench import Bench, fetch_request, fetched, on_broker, produce_request
from tests.unit.broker.group_bench import message, with_groups
from tests.unit.broker.transaction_bench import on_small_broker, with_transactions

from ottla.broker.delayed_produce import DelayedProduce
from ottla.broker.fair_scheduler import FairScheduler
from ottla.broker.fetch_reader import FetchReader
from ottla.broker.handlers import k12_heartbeat, k22_init_producer_id
from ottla.broker.promise import Promise, completed
from ottla.core.partition.leader import PartitionLeader
from ottla.env.clock import SystemClock
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.api_keys import ApiKey

MINUTE_S = 60


def broken(*_: object, **__: object) -> Any:
    raise ZeroDivisionError("a bug")


async def is_closed_by(bench: Bench, request: Any, act: Callable[[], Any] | None = None) -> bool:
    """Whether the connection closes without a response; False if the request still waits after a minute."""
    asked = asyncio.ensure_future(bench.new_client("victim").request(request))
    if act is not None:
        await asyncio.sleep(1)
        await act()
    await asyncio.wait([asked], timeout=MINUTE_S)
    if not asked.done():
        asked.cancel()
        return False
    return isinstance(asked.exception(), ConnectionError)


@on_broker()
async def test_an_exception_while_a_response_is_built_closes_the_connection(bench: Bench) -> None:
    """For a decision that is complete at once, and for one that is complete later."""
    heartbeat = message(ApiKey.HEARTBEAT, 4, group_id="g", generation_id=1, member_id="m")
    with_groups(bench, None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(k12_heartbeat, "_response", broken)
        assert await is_closed_by(bench, heartbeat)
        later: Promise[Any] = Promise()
        bench.services.groups.get().submit = lambda *_: later  # type: ignore[method-assign]

        async def decide() -> None:
            later.complete(None)

        assert await is_closed_by(bench, heartbeat, decide)


@on_small_broker()
async def test_an_exception_in_a_background_task_of_a_request_closes_the_connection(bench: Bench) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(k22_init_producer_id, "_response", broken)
        request = message(
            ApiKey.INIT_PRODUCER_ID, 5, transactional_id=None, transaction_timeout=timedelta(seconds=1)
        )
        assert await is_closed_by(bench, request)
        with_transactions(bench, None)
        patch.setattr(bench.services.groups.get().runtimes, "find_coordinator", broken)
        fields = {"transactional_id": "tx", "producer_id": 12, "producer_epoch": 3, "group_id": "g"}
        assert await is_closed_by(bench, message(ApiKey.ADD_OFFSETS_TO_TXN, 4, **fields))


@on_broker()
async def test_an_exception_in_a_delayed_fetch_closes_the_connection(bench: Bench) -> None:
    topic_id = await bench.create("journal")
    request = fetch_request(topic_id, fetched(), max_wait=timedelta(seconds=5))
    with pytest.MonkeyPatch.context() as patch:

        async def break_and_produce() -> None:
            patch.setattr(FetchReader, "read", broken)
            await bench.produce("journal", b"a")

        assert await is_closed_by(bench, request, break_and_produce)
        patch.undo()

        async def break_and_wait() -> None:
            patch.setattr(FetchReader, "read", broken)

        late = fetch_request(topic_id, fetched(1), max_wait=timedelta(seconds=5))
        assert await is_closed_by(bench, late, break_and_wait)


@on_broker()
async def test_an_exception_in_a_delayed_produce_closes_the_connection(bench: Bench) -> None:
    await bench.create("journal")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PartitionLeader, "_advance_high_watermark", lambda *_: False)
        patch.setattr(DelayedProduce, "try_complete", broken)

        async def tell() -> None:
            hosted = bench.services.partitions.find_replica("journal", None, 0)
            bench.services.delayed_operations.notify(hosted.topic_partition)

        assert await is_closed_by(bench, produce_request("journal", bench.batch(b"a")), tell)


@on_small_broker()
async def test_an_exception_while_a_coordinator_appends_is_an_error_and_it_continues(bench: Bench) -> None:
    await bench.services.groups.get().find_coordinator("g")
    await bench.create("orders")
    partition = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
    fields = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": ""}
    commit = message(
        ApiKey.OFFSET_COMMIT, 9, topics=[{"name": "orders", "partitions": [partition]}], **fields
    )

    def code(response: Any) -> ErrorCode:
        found: ErrorCode = response.topics[0].partitions[0].error_code
        return found

    runtime = bench.services.groups.get().runtimes.for_key("g")
    assert runtime is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runtime, "_batches", broken)
        assert code(await bench.ask(commit)) is ErrorCode.unknown_server_error
    assert runtime.shard.offsets.durable_state() == ({}, {}), "what was not written has not happened"
    assert code(await bench.ask(commit)) is ErrorCode.none


def test_the_exception_and_the_client_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "ottla"):
        test_an_exception_in_a_background_task_of_a_request_closes_the_connection()
    failed = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.getMessage().rpartition(":")[0] for record in failed] == ["a request of victim"] * 2
    assert all(record.exc_info and record.exc_info[0] is ZeroDivisionError for record in failed)


# -- Promise


def gather(*promises: Promise[int]) -> Promise[list[int]]:
    return FairScheduler(SystemClock()).run(promises, lambda promise: promise)


def test_a_failed_promise_fails_all_that_wait_for_it() -> None:
    seen: list[object] = []
    source: Promise[int] = Promise()
    gather(completed(1), source.then(lambda value: value + 1)).then(sum).subscribe(seen.append, seen.append)
    error = ZeroDivisionError("a bug")
    source.fail(error)
    assert seen == [error]


def test_the_first_of_several_failures_is_reported() -> None:
    seen: list[object] = []
    first: Promise[int] = Promise()
    second: Promise[int] = Promise()
    gather(first, second).subscribe(seen.append, seen.append)
    error = KafkaError(ErrorCode.unknown_server_error, "a bug")
    second.fail(error)
    first.fail(ZeroDivisionError("another"))
    assert seen == [error]


def test_a_subscriber_after_the_failure_gets_it() -> None:
    seen: list[object] = []
    failed = completed(0).then(lambda value: 1 // value)
    failed.subscribe(seen.append, seen.append)
    assert [type(error) for error in seen] == [ZeroDivisionError]


def test_an_abandoned_promise_may_fail() -> None:
    seen: list[object] = []
    promise: Promise[int] = Promise()
    promise.subscribe(seen.append, seen.append)
    promise.abandon()
    promise.fail(ZeroDivisionError("a bug"))
    assert seen == []
