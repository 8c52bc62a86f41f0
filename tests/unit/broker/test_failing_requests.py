"""A request that meets an unexpected error closes its connection, wherever that is: no client waits for nothing."""

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.broker.bench import Bench, fetch_request, fetched, on_broker, produce_request
from tests.unit.broker.group_bench import message, with_groups
from tests.unit.broker.transaction_bench import on_small_broker, with_transactions

from ottla.broker.delayed_produce import DelayedProduce
from ottla.broker.fetching import FetchReader
from ottla.broker.handlers import k12_heartbeat, k22_init_producer_id
from ottla.broker.pending import Pending, completed, gather
from ottla.core.partition.leader import PartitionLeader
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.api_keys import ApiKey

MINUTE_S = 60


def broken(*_: object, **__: object) -> Any:
    raise ZeroDivisionError("a bug")


async def is_closed_by(bench: Bench, request: Any, act: Callable[[], Any] | None = None) -> bool:
    """Whether the connection closes instead of an answer; False where the request is still there after a minute."""
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
async def test_an_error_in_what_makes_a_response_of_a_decision(bench: Bench) -> None:
    """The decision is there at once or later: a handler has both ways."""
    heartbeat = message(ApiKey.HEARTBEAT, 4, group_id="g", generation_id=1, member_id="m")
    with_groups(bench, None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(k12_heartbeat, "_response", broken)
        assert await is_closed_by(bench, heartbeat)
        later: Pending[Any] = Pending()
        bench.broker.groups.submit = lambda *_: later  # type: ignore[method-assign, assignment, return-value]

        async def decide() -> None:
            later.complete(None)

        assert await is_closed_by(bench, heartbeat, decide)


@on_small_broker()
async def test_an_error_in_work_beside_a_request(bench: Bench) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(k22_init_producer_id, "_response", broken)
        request = message(
            ApiKey.INIT_PRODUCER_ID, 5, transactional_id=None, transaction_timeout=timedelta(seconds=1)
        )
        assert await is_closed_by(bench, request)
        with_transactions(bench, None)
        patch.setattr(bench.broker.groups.shards, "find", broken)
        fields = {"transactional_id": "tx", "producer_id": 12, "producer_epoch": 3, "group_id": "g"}
        assert await is_closed_by(bench, message(ApiKey.ADD_OFFSETS_TO_TXN, 4, **fields))


@on_broker()
async def test_an_error_in_a_fetch_that_waits(bench: Bench) -> None:
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
async def test_an_error_in_a_produce_that_waits(bench: Bench) -> None:
    await bench.create("journal")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PartitionLeader, "_advance_high_watermark", lambda *_: False)
        patch.setattr(DelayedProduce, "try_complete", broken)

        async def tell() -> None:
            hosted = bench.broker.partitions.find("journal", None, 0)
            bench.broker.waiting_room.notify(hosted.topic_partition)

        assert await is_closed_by(bench, produce_request("journal", bench.batch(b"a")), tell)


@on_small_broker()
async def test_an_error_while_a_coordinator_writes_is_answered_and_it_goes_on(bench: Bench) -> None:
    await bench.broker.groups.find("g")
    await bench.create("orders")
    partition = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
    fields = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": ""}
    commit = message(
        ApiKey.OFFSET_COMMIT, 9, topics=[{"name": "orders", "partitions": [partition]}], **fields
    )

    def code(response: Any) -> ErrorCode:
        found: ErrorCode = response.topics[0].partitions[0].error_code
        return found

    shard = bench.broker.groups.shards.shard_of("g")
    assert shard is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shard, "_batches", broken)
        assert code(await bench.ask(commit)) is ErrorCode.unknown_server_error
    assert shard.machine.offsets.durable_state() == ({}, {}), "what was not written has not happened"
    assert code(await bench.ask(commit)) is ErrorCode.none


def test_the_log_says_what_failed_and_whose_request_it_was(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "ottla"):
        test_an_error_in_work_beside_a_request()  # type: ignore[call-arg]
    failed = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.getMessage().rpartition(":")[0] for record in failed] == ["a request of victim"] * 2
    assert all(record.exc_info and record.exc_info[0] is ZeroDivisionError for record in failed)


# -- Pending


def test_a_failure_goes_through_all_that_waits_for_it() -> None:
    seen: list[object] = []
    source: Pending[int] = Pending()
    gather([completed(1), source.then(lambda value: value + 1)]).then(sum).subscribe(seen.append, seen.append)
    error = ZeroDivisionError("a bug")
    source.fail(error)
    assert seen == [error]


def test_the_first_of_several_failures_counts() -> None:
    seen: list[object] = []
    first: Pending[int] = Pending()
    second: Pending[int] = Pending()
    gather([first, second]).subscribe(seen.append, seen.append)
    error = KafkaError(ErrorCode.unknown_server_error, "a bug")
    second.fail(error)
    first.fail(ZeroDivisionError("another"))
    assert seen == [error]


def test_who_subscribes_after_a_failure_is_told() -> None:
    seen: list[object] = []
    failed = completed(0).then(lambda value: 1 // value)
    failed.subscribe(seen.append, seen.append)
    assert [type(error) for error in seen] == [ZeroDivisionError]


def test_an_answer_that_nobody_waits_for_may_fail() -> None:
    seen: list[object] = []
    pending: Pending[int] = Pending()
    pending.subscribe(seen.append, seen.append)
    pending.abandon()
    pending.fail(ZeroDivisionError("a bug"))
    assert seen == []
