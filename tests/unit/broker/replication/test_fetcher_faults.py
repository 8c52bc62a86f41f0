"""A fetcher goes on after any error, and applies a response only to the replica that asked for it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.unit.broker.broker_bench import Bench, on_broker, until
from tests.unit.broker.roles import OTHER, change_partition, hosted_partition

from ottla.broker.hosted_partition import HostedPartition
from ottla.broker.partition_truncation import start_partition_again
from ottla.broker.replication import replica_fetcher
from ottla.broker.replication.replica_fetcher import FetcherSettings, ReplicaFetcher
from ottla.core.partition.follower import PartitionFollower
from ottla.core.replication_throttle import ReplicationThrottle
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.fetch_codec import (
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
    decode_fetch_request,
    encode_fetch_response,
)
from ottla.records.records import Record, build_batch

VERSION = 17


class Leader:
    """Answers the fetches of a follower. `respond` gets each request, and returns the responses of partitions."""

    def __init__(self, bench: Bench) -> None:
        self.topic_id = hosted_partition(bench).topic_id
        self.requests: list[FetchRequest] = []
        self.respond: Callable[[FetchRequest], Awaitable[list[FetchPartitionResponse]]] = self.say_nothing
        self.error_code = 0

    async def latest_version(self, *_: Any, **__: Any) -> int:
        return VERSION

    async def call_body(
        self, _node: int, _key: Any, version: int, body: bytes, _timeout: float
    ) -> memoryview:
        request = decode_fetch_request(memoryview(body), version)
        self.requests.append(request)
        await asyncio.sleep(0.1)
        topics = [FetchTopicResponse(None, self.topic_id, await self.respond(request))]
        parts = encode_fetch_response(FetchResponse(0, self.error_code, 5, topics), version)
        return memoryview(b"".join(bytes(part) for part in parts))  # type: ignore[arg-type]

    async def say_nothing(self, _: FetchRequest) -> list[FetchPartitionResponse]:
        return []

    def always(self, *responses: FetchPartitionResponse) -> None:
        async def respond(_: FetchRequest) -> list[FetchPartitionResponse]:
            return list(responses)

        self.respond = respond


async def follow(bench: Bench, **configs: str) -> tuple[Leader, ReplicaFetcher]:
    """The partitions journal-0 and journal-1 are followed, with a fetcher whose leader is a `Leader`."""
    await bench.create("journal", partitions=2, **configs)
    for index in (0, 1):
        change_partition(bench, index=index, leader=OTHER, replicas=(1, OTHER), isr=(1, OTHER))
    leader, fetcher = new_fetcher(bench)
    for index in (0, 1):
        add(fetcher, hosted_partition(bench, index=index))
    return leader, fetcher


def new_fetcher(bench: Bench) -> tuple[Leader, ReplicaFetcher]:
    leader: Any = Leader(bench)
    fetcher = ReplicaFetcher(
        bench.services.env,
        leader,
        FetcherSettings(500, 1, 1 << 20, 1 << 20, 1.0, 30.0),
        ReplicationThrottle(1, 11, 1000),
        local_id=1,
        source_id=OTHER,
        broker_epoch=lambda: 1,
    )
    return leader, fetcher


def add(fetcher: ReplicaFetcher, hosted: HostedPartition) -> None:
    assert isinstance(hosted.role, PartitionFollower)
    fetcher.add(hosted, hosted.role)


def records(index: int, offset: int, value: bytes = b"value") -> FetchPartitionResponse:
    batch = build_batch([Record(offset, 1_700_000_000_000, None, value)], leader_epoch=1)
    return FetchPartitionResponse(index, high_watermark=offset + 1, log_start_offset=0, records=batch)


@on_broker()
async def test_an_unknown_error_code_delays_only_its_partition(bench: Bench) -> None:
    leader, fetcher = await follow(bench)
    leader.always(FetchPartitionResponse(0, error_code=30_000), records(1, 0))
    await until(lambda: hosted_partition(bench, index=1).log.log_end_offset == 1)
    leader.always(records(0, 0))
    await until(lambda: hosted_partition(bench).log.log_end_offset == 1)
    await fetcher.close()


@on_broker()
async def test_an_unknown_error_code_of_the_response_is_retried(bench: Bench) -> None:
    leader, fetcher = await follow(bench)
    leader.error_code = 30_000
    await until(lambda: len(leader.requests) > 2)
    assert leader.requests[-1].session_epoch == 0
    leader.error_code = 0
    leader.always(records(0, 0))
    await until(lambda: hosted_partition(bench).log.log_end_offset == 1)
    await fetcher.close()


@on_broker()
async def test_a_bug_in_one_partition_does_not_stop_the_others(bench: Bench) -> None:
    leader, fetcher = await follow(bench)
    leader.always(records(0, 0), records(1, 0))

    def fail(*_: Any) -> None:
        raise RuntimeError("a bug")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hosted_partition(bench), "append_from_leader", fail)
        await until(lambda: hosted_partition(bench, index=1).log.log_end_offset == 1)
    await until(lambda: hosted_partition(bench).log.log_end_offset == 1)
    await fetcher.close()


@on_broker(replica_lag_time_max_ms="2000")
async def test_a_bug_in_the_isr_check_of_one_partition_does_not_end_the_check(bench: Bench) -> None:
    await bench.create("journal", partitions=2)
    for index in (0, 1):
        change_partition(bench, index=index, leader=1, leader_epoch=5, replicas=(1, OTHER), isr=(1,))
    checked: list[int] = []

    def fail(now_ms: int) -> None:
        raise RuntimeError("a bug")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hosted_partition(bench), "check_isr", fail)
        patch.setattr(hosted_partition(bench, index=1), "check_isr", checked.append)
        await until(lambda: len(checked) > 2)


@on_broker()
async def test_a_response_is_not_applied_to_the_replica_of_another_leader_epoch(bench: Bench) -> None:
    """The same leader leads on in a new epoch. Its response to a fetch of the old epoch comes after that."""
    leader, fetcher = await follow(bench)
    hosted = hosted_partition(bench)

    async def respond(request: FetchRequest) -> list[FetchPartitionResponse]:
        leader.always()
        change_partition(bench, leader=OTHER)
        add(fetcher, hosted)
        return [records(0, 0, b"of the old epoch")]

    leader.respond = respond
    before = len(leader.requests)
    await until(lambda: len(leader.requests) > before + 1)
    assert hosted.log.log_end_offset == 0
    # A full fetch: otherwise the leader would not repeat the high watermark.
    assert leader.requests[-1].session_epoch == 0
    (asked,) = (p for topic in leader.requests[-1].topics for p in topic.partitions if p.index == 0)
    assert asked.current_leader_epoch == hosted.role.leader_epoch
    leader.always(records(0, 0, b"of the new epoch"))
    await until(lambda: hosted.log.log_end_offset == 1)
    await fetcher.close()


@on_broker()
async def test_a_response_is_not_applied_if_the_log_ends_elsewhere(bench: Bench) -> None:
    leader, fetcher = await follow(bench)
    hosted = hosted_partition(bench)
    leader.always(records(0, 0), records(1, 0))
    await until(lambda: hosted.log.log_end_offset == 1)
    leader.always()

    async def respond(request: FetchRequest) -> list[FetchPartitionResponse]:
        leader.always()
        hosted.truncate(0, bench.world.clock.now_ms())
        return [FetchPartitionResponse(0, high_watermark=1, log_start_offset=0)]

    leader.respond = respond
    await until(lambda: leader.requests[-1].session_epoch == 0)
    asked = {
        partition.index: partition.fetch_offset for partition in leader.requests[-1].topics[0].partitions
    }
    assert asked == {0: 0, 1: 1}
    await fetcher.close()


def batch_inside_which_the_log_starts() -> FetchPartitionResponse:
    """Offsets 0 to 9 in one batch, of which DeleteRecords has removed the first five."""
    batch = build_batch([Record(offset, 1, None, b"value") for offset in range(10)], leader_epoch=1)
    return FetchPartitionResponse(0, high_watermark=8, log_start_offset=5, records=batch)


async def copy_batch_inside_which_the_log_starts(bench: Bench, flush_messages: str) -> HostedPartition:
    leader, fetcher = await follow(bench, flush_messages=flush_messages)
    hosted = hosted_partition(bench)
    hosted.start_again_at(5, bench.world.clock.now_ms())
    leader.always(batch_inside_which_the_log_starts())
    await until(lambda: hosted.log.log_end_offset == 10)
    leader.always()
    await until(lambda: fetched_offsets(leader.requests[-1:]) == {10})
    assert (hosted.log.log_start_offset, hosted.role.high_watermark) == (5, 8)
    with pytest.raises(KafkaError) as rejected:
        hosted.fetch(4, 1000, isolation_level=0, is_follower=False, at_least_one=True)
    assert rejected.value.code is ErrorCode.offset_out_of_range
    await fetcher.close()
    return hosted


@on_broker()
async def test_a_log_that_starts_inside_a_batch_of_its_leader_is_copied(bench: Bench) -> None:
    hosted = await copy_batch_inside_which_the_log_starts(bench, flush_messages="1000")
    assert hosted.log.recovery_point == 0


@on_broker()
async def test_a_log_that_starts_inside_a_batch_of_its_leader_is_flushed_from_there(bench: Bench) -> None:
    hosted = await copy_batch_inside_which_the_log_starts(bench, flush_messages="1")
    assert hosted.log.recovery_point == 10


@on_broker()
async def test_a_log_does_not_start_again_if_its_role_changes_meanwhile(bench: Bench) -> None:
    leader, fetcher = await follow(bench)
    hosted = hosted_partition(bench)
    hosted.start_again_at(5, bench.world.clock.now_ms())
    old_role = hosted.role

    async def lead_and_run(*arguments: Any) -> None:
        change_partition(bench, leader=1)
        await start_partition_again(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replica_fetcher, "start_partition_again", lead_and_run)
        leader.always(batch_inside_which_the_log_starts())
        await until(lambda: hosted.role is not old_role)
        await asyncio.sleep(1)
    assert (hosted.log.log_start_offset, hosted.log.log_end_offset) == (5, 5)
    await fetcher.close()


@on_broker()
async def test_a_fetch_names_no_offset_that_waits_for_a_flush_after_a_role_change(bench: Bench) -> None:
    """flush.messages is 1, and another broker becomes the leader during the flush of the first record."""
    old_leader, old_fetcher = await follow(bench, flush_messages="1")
    leader, fetcher = new_fetcher(bench)
    hosted = hosted_partition(bench)
    is_released = asyncio.Event()
    run = bench.services.env.threads.run

    async def wait_and_run(work: Callable[[], Any]) -> Any:
        await is_released.wait()
        return await run(work)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench.services.env.threads, "run", wait_and_run)
        old_leader.always(records(0, 0))
        await until(lambda: hosted.log.log_end_offset == 1)
        change_partition(bench, leader=OTHER + 1)
        old_fetcher.remove(hosted.topic_id, 0)
        add(fetcher, hosted)
        await asyncio.sleep(5)
        assert fetched_offsets(leader.requests) == set()
        is_released.set()
        await until(lambda: fetched_offsets(leader.requests) == {1})
    assert hosted.log.recovery_point == 1
    await old_fetcher.close()
    await fetcher.close()


def fetched_offsets(requests: list[FetchRequest]) -> set[int]:
    """The offsets at which the partition journal-0 is fetched."""
    return {
        partition.fetch_offset
        for request in requests
        for topic in request.topics
        for partition in topic.partitions
        if partition.index == 0
    }
