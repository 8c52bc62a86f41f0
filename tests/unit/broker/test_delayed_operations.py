"""Delayed operations on a virtual-time loop, and requests that are delayed by them."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.schema.delete_records.v2.request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.fetch.v17.request import ReplicaState
from tests.unit.broker.broker_bench import Bench, fetch_request, fetched, on_broker, until, values_in

from ottla.broker.delayed_fetch import DelayedFetch
from ottla.broker.delayed_operations import DelayedOperations
from ottla.broker.partition_flush import flush_partition
from ottla.core.partition.leader import LeaderSettings, PartitionLeader
from ottla.core.purgatory import Operation
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.sim.env import World, simulate

SECONDS_8 = timedelta(seconds=8)


class RecordedOperation(Operation):
    """Completes once `is_ready` is set, and records how it ended."""

    def __init__(self, harness: "Harness", name: str) -> None:
        super().__init__()
        self.is_ready = False
        self._harness = harness
        self._name = name

    def try_complete(self, now_ms: int) -> bool:
        if self.is_ready:
            self._harness.note(f"{self._name} completed")
        return self.is_ready

    def on_expire(self, now_ms: int) -> None:
        self._harness.note(f"{self._name} expired")

    def on_error(self, error: Exception) -> None:
        self._harness.note(f"{self._name} failed: {error}")


class Harness:
    """Delayed operations, and their events with the milliseconds since the start."""

    def __init__(self, world: World) -> None:
        self.operations = DelayedOperations()
        self.events: list[tuple[int, str]] = []
        self._world = world
        self._start_ms = world.clock.now_ms()

    def note(self, event: str) -> None:
        self.events.append((self._world.clock.now_ms() - self._start_ms, event))

    def check(self, key: str) -> None:
        self.operations.notify(key)
        self.operations.check_changed()

    def wait(self, name: str, key: str, timeout_ms: int) -> RecordedOperation:
        operation = RecordedOperation(self, name)
        self.operations.watch(operation, [key], timeout_ms)
        return operation


def in_simulation(main: Callable[[Harness], Awaitable[None]]) -> None:
    async def run(world: World) -> None:
        harness = Harness(world)
        await main(harness)
        harness.operations.close()

    simulate(run, 1)


def test_operations_expire_at_their_deadlines_in_any_order() -> None:
    async def main(harness: Harness) -> None:
        harness.wait("late", "k", 90_000)
        harness.wait("early", "k", 10)
        harness.wait("middle", "k", 700)
        await asyncio.sleep(100)
        assert [event for _, event in harness.events] == ["early expired", "middle expired", "late expired"]
        for (at_ms, _), deadline_ms in zip(harness.events, (10, 700, 90_000), strict=True):
            assert deadline_ms <= at_ms <= deadline_ms + 2
        assert len(harness.operations) == 0

    in_simulation(main)


def test_a_check_completes_only_operations_that_watch_its_key_and_are_ready() -> None:
    async def main(harness: Harness) -> None:
        one, two = harness.wait("one", "k", 1000), harness.wait("two", "other", 1000)
        one.is_ready = two.is_ready = True
        harness.wait("three", "k", 1000)
        harness.check("k")
        assert harness.events == [(0, "one completed")]
        harness.check("k")
        assert len(harness.operations) == 2

    in_simulation(main)


def test_a_cancelled_operation_is_not_called_again() -> None:
    async def main(harness: Harness) -> None:
        operation = harness.wait("gone", "k", 10)
        harness.operations.cancel(operation)
        harness.check("k")
        await asyncio.sleep(1)
        assert harness.events == []

    in_simulation(main)


def test_an_operation_that_fails_is_logged_and_the_others_expire_in_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(RecordedOperation):
        def on_expire(self, now_ms: int) -> None:
            raise LookupError("broken")

    async def main(harness: Harness) -> None:
        harness.operations.watch(Broken(harness, "broken"), ["k"], 10)
        harness.wait("with it", "k", 10)
        harness.wait("later", "k", 500)
        await asyncio.sleep(1)
        assert [event for _, event in harness.events] == [
            "broken failed: broken",
            "with it expired",
            "later expired",
        ]

    in_simulation(main)
    assert "Broken failed while it waited" in caplog.text


def test_operations_of_a_changed_key_are_tried_in_the_next_turn_of_the_loop() -> None:
    async def main(harness: Harness) -> None:
        harness.wait("one", "k", 1000).is_ready = True
        harness.operations.notify("k")
        assert harness.events == []
        await asyncio.sleep(0)
        assert [event for _, event in harness.events] == ["one completed"]

    in_simulation(main)


def test_setting_the_clock_back_does_not_delay_operations() -> None:
    async def main(harness: Harness) -> None:
        harness.wait("one", "k", 1000)
        harness._world.clock.jump(-3_600_000)
        harness.wait("two", "k", 1000)
        await asyncio.sleep(2)
        assert [event for _, event in harness.events] == ["one expired", "two expired"]

    in_simulation(main)


def test_ten_thousand_operations_all_expire_and_none_too_early() -> None:
    async def main(harness: Harness) -> None:
        for index in range(10_000):
            harness.wait(str(index), "k", index % 997 + 1)
        await asyncio.sleep(2)
        assert len(harness.events) == 10_000
        assert all(at_ms >= int(event.split()[0]) % 997 + 1 for at_ms, event in harness.events)

    in_simulation(main)


@on_broker()
async def test_an_append_completes_the_long_poll_that_waits_for_it(bench: Bench) -> None:
    topic_id = await bench.create("journal")
    loop = asyncio.get_running_loop()
    started = loop.time()
    poll = asyncio.create_task(
        bench.new_client("reader").request(fetch_request(topic_id, fetched(), max_wait=SECONDS_8))
    )
    await asyncio.sleep(2)
    assert len(bench.services.delayed_operations) == 1
    await bench.produce("journal", b"news")
    response = await poll
    assert values_in(response.responses[0].partitions[0].records) == [b"news"]
    assert loop.time() - started < 3
    assert len(bench.services.delayed_operations) == 0


@on_broker()
async def test_a_long_poll_ends_empty_after_max_wait(bench: Bench) -> None:
    topic_id = await bench.create("journal")
    loop = asyncio.get_running_loop()
    started = loop.time()
    response = await bench.ask(fetch_request(topic_id, fetched(), max_wait=SECONDS_8))
    assert values_in(response.responses[0].partitions[0].records) == []
    assert 8.0 <= loop.time() - started < 8.1


@on_broker()
async def test_a_poll_waits_until_min_bytes_are_appended(bench: Bench) -> None:
    topic_id = await bench.create("journal")
    request = fetch_request(topic_id, fetched(), max_wait=SECONDS_8, min_bytes=200)
    poll = asyncio.create_task(bench.new_client("reader").request(request))
    await asyncio.sleep(1)
    await bench.produce("journal", b"small")
    await asyncio.sleep(1)
    assert not poll.done()
    await bench.produce("journal", bytes(100))
    values = values_in((await poll).responses[0].partitions[0].records)
    assert values == [b"small", bytes(100)]


@on_broker()
async def test_one_append_completes_all_polls_of_its_partition_and_no_others(bench: Bench) -> None:
    topic_id = await bench.create("journal", 2)
    polls = [
        asyncio.create_task(
            bench.new_client(f"reader{index}").request(
                fetch_request(topic_id, fetched(partition=index % 2), max_wait=SECONDS_8)
            )
        )
        for index in range(100)
    ]
    await until(lambda: len(bench.services.delayed_operations) == 100)
    await bench.produce("journal", b"news", partition=1)
    await asyncio.wait(polls, timeout=1)
    assert [poll.done() for poll in polls] == [False, True] * 50
    for poll in polls:
        await poll


@on_broker()
async def test_polls_of_a_deleted_topic_complete_at_once(bench: Bench) -> None:
    topic_id = await bench.create("journal")
    poll = asyncio.create_task(
        bench.new_client("reader").request(fetch_request(topic_id, fetched(), max_wait=SECONDS_8))
    )
    await until(lambda: len(bench.services.delayed_operations) == 1)
    wanted = (DeleteTopicState(name="journal", topic_id=None),)
    await bench.ask(DeleteTopicsRequest(topics=wanted, timeout=timedelta(seconds=1)))
    response = await asyncio.wait_for(poll, 1)
    assert response.responses[0].partitions[0].error_code is ErrorCode.unknown_topic_id


@on_broker()
async def test_a_poll_of_a_disconnected_client_does_not_affect_others(bench: Bench) -> None:
    topic_id = await bench.create("journal")
    reader = bench.new_client("reader")
    poll = asyncio.create_task(reader.request(fetch_request(topic_id, fetched(), max_wait=SECONDS_8)))
    await until(lambda: len(bench.services.delayed_operations) == 1)
    reader.close()
    with pytest.raises(OSError):
        await poll
    assert (await bench.produce("journal", b"news")).base_offset == 0
    assert await bench.read(topic_id) == [b"news"]
    assert len(bench.services.delayed_operations) == 0


@on_broker()
async def test_a_poll_is_removed_with_its_connection(bench: Bench) -> None:
    topic_id = await bench.create("journal")
    reader = bench.new_client("reader")
    forever = timedelta(days=24)
    poll = asyncio.create_task(reader.request(fetch_request(topic_id, fetched(), max_wait=forever)))
    await until(lambda: len(bench.services.delayed_operations) == 1)
    reader.close()
    with pytest.raises(OSError):
        await poll
    await until(lambda: len(bench.services.delayed_operations) == 0)


# Every change of offsets wakes the requests that wait for it, whatever caused it.


async def waiting_poll(bench: Bench, topic_id: UUID, **options: Any) -> asyncio.Task[Any]:
    """A poll at offset 0 that waits for an hour for more bytes than there are."""
    options = {"min_bytes": 1, "max_wait": timedelta(hours=1)} | options
    poll = asyncio.create_task(
        bench.new_client("reader").request(fetch_request(topic_id, fetched(), **options))
    )
    await until(lambda: len(bench.services.delayed_operations) == 1)
    return poll


@on_broker()
async def test_a_poll_below_the_new_log_start_completes_when_records_are_deleted(bench: Bench) -> None:
    topic_id = await bench.create("journal")
    await bench.produce("journal", b"a", b"b")
    poll = await waiting_poll(bench, topic_id, min_bytes=10_000)
    wanted = DeleteRecordsPartition(partition_index=0, offset=1)
    topic = DeleteRecordsTopic(name="journal", partitions=(wanted,))
    await bench.ask(DeleteRecordsRequest(topics=(topic,), timeout=timedelta(seconds=1)))
    response = await asyncio.wait_for(poll, 1)
    assert response.responses[0].partitions[0].error_code is ErrorCode.offset_out_of_range


@on_broker()
async def test_a_poll_below_the_new_log_start_completes_when_retention_moves_it(bench: Bench) -> None:
    topic_id = await bench.create("journal", retention_ms="1000", segment_ms="500")
    await bench.produce("journal", b"old")
    await asyncio.sleep(0.6)
    await bench.produce("journal", b"rolls")
    poll = await waiting_poll(bench, topic_id, min_bytes=10_000)
    await asyncio.sleep(0.6)
    bench.broker.housekeeping.enforce_retention(bench.world.clock.now_ms())
    assert bench.services.partitions.find_replica("journal", None, 0).log.log_start_offset == 1
    response = await asyncio.wait_for(poll, 1)
    assert response.responses[0].partitions[0].error_code is ErrorCode.offset_out_of_range


@on_broker()
async def test_a_flush_outside_of_a_produce_request_completes_a_poll(bench: Bench) -> None:
    topic_id = await bench.create("journal", flush_messages="1")
    poll = await waiting_poll(bench, topic_id)
    hosted = bench.services.partitions.find_replica("journal", None, 0)
    hosted.append(bench.batch(b"news"), bench.world.clock.now_ms(), required_acks=1)
    await asyncio.sleep(0.1)
    assert not poll.done()
    await flush_partition(bench.services.env, hosted)
    response = await asyncio.wait_for(poll, 1)
    assert values_in(response.responses[0].partitions[0].records) == [b"news"]


@on_broker()
async def test_a_followers_fetch_completes_the_delayed_produce(bench: Bench) -> None:
    topic_id = await bench.create("journal")
    hosted = bench.services.partitions.find_replica("journal", None, 0)
    epoch = hosted.leader.leader_epoch + 1
    hosted.lead(
        PartitionLeader(
            hosted.log.offsets, hosted.log.producers, hosted.log.epochs, leader_epoch=epoch, high_watermark=0,
            local_id=1, replica_ids=(1, 2), isr=(1, 2), settings=LeaderSettings(),
            now_ms=bench.world.clock.now_ms(),
        )
    )  # fmt: skip
    produce = asyncio.create_task(bench.produce("journal", b"news"))
    await until(lambda: len(bench.services.delayed_operations) == 1)
    follower = bench.new_client("follower")
    request = fetch_request(
        topic_id,
        fetched(1, current_leader_epoch=epoch, log_start_offset=0),
        replica_state=ReplicaState(replica_id=2, replica_epoch=-1),
    )
    await follower.request(request)
    assert (await asyncio.wait_for(produce, 1)).error_code is ErrorCode.none


@on_broker()
async def test_a_delayed_request_that_fails_closes_only_its_connection(
    bench: Bench,
) -> None:
    topic_id = await bench.create("journal")
    poll = await waiting_poll(bench, topic_id)
    other = asyncio.create_task(
        bench.new_client("other").request(fetch_request(topic_id, fetched(), max_wait=SECONDS_8))
    )
    await until(lambda: len(bench.services.delayed_operations) == 2)
    (broken, *_) = bench.services.delayed_operations._purgatory._watchers[TopicPartition("journal", 0)]
    assert isinstance(broken, DelayedFetch)
    broken._reader = None  # type: ignore[assignment]
    assert (await bench.produce("journal", b"news")).error_code is ErrorCode.none
    with pytest.raises(OSError):
        await poll
    assert values_in((await other).responses[0].partitions[0].records) == [b"news"]
