"""An operation waits for the leadership it began under, not for an offset that other records may reach later."""

import asyncio
from typing import Any

import pytest
from kio.schema.fetch.v17.request import ReplicaState
from tests.unit.broker.broker_bench import Bench, fetch_request, fetched, on_broker, until, values_in
from tests.unit.broker.group_bench import message
from tests.unit.broker.roles import (
    OTHER,
    change_partition,
    hosted_partition,
    lead_alone,
    lead_with_follower,
    register_other,
    step_down,
)
from tests.unit.broker.test_partition_roles import delete_records_request, list_offsets_request

import ottla.broker.handlers.k00_produce as produce_module
from ottla.broker.fetch_reader import FetchReader
from ottla.broker.hosted_partition import HostedPartition
from ottla.broker.partition_flush import flush_partition
from ottla.env import Env
from ottla.model.errors import ErrorCode
from ottla.protocol.api_keys import ApiKey


def usurp(bench: Bench, topic: str = "journal") -> None:
    """Steps down, loses the log, leads again in a later epoch: other records reach the same offsets, in one turn."""
    hosted = hosted_partition(bench, topic)
    end_offset = hosted.log.log_end_offset
    now_ms = bench.world.clock.now_ms()
    step_down(bench, topic)
    hosted.truncate(0, now_ms)
    lead_alone(bench, topic)
    while hosted.log.log_end_offset < end_offset + 1:
        hosted.append(bench.batch(b"other"), now_ms, required_acks=1)


async def is_waiting(bench: Bench, count: int = 1) -> None:
    await until(lambda: len(bench.services.delayed_operations) >= count)


# -- produce


@on_broker()
async def test_a_produce_is_not_acknowledged_by_other_records_under_a_later_leadership(bench: Bench) -> None:
    await bench.create("journal")
    lead_with_follower(bench)
    produce = asyncio.create_task(bench.produce("journal", b"mine"))
    await is_waiting(bench)
    usurp(bench)
    assert hosted_partition(bench).leader.high_watermark >= 1
    assert (await asyncio.wait_for(produce, 1)).error_code is ErrorCode.not_leader_or_follower


@on_broker()
async def test_a_produce_is_rejected_as_soon_as_its_leader_steps_down(bench: Bench) -> None:
    await bench.create("journal")
    lead_with_follower(bench)
    produce = asyncio.create_task(bench.produce("journal", b"mine"))
    await is_waiting(bench)
    step_down(bench)
    assert (await asyncio.wait_for(produce, 1)).error_code is ErrorCode.not_leader_or_follower


@pytest.mark.parametrize("acks", [1, -1])
def test_a_produce_that_waits_for_a_flush_waits_for_its_leadership(
    acks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        await bench.create("journal", flush_messages="1")
        flushing, may_flush = asyncio.Event(), asyncio.Event()

        async def flush_later(env: Env, hosted: HostedPartition) -> None:
            flushing.set()
            await may_flush.wait()
            await flush_partition(env, hosted)

        monkeypatch.setattr(produce_module, "flush_partition", flush_later)
        produce = asyncio.create_task(bench.produce("journal", b"mine", acks=acks))
        await flushing.wait()
        usurp(bench)
        may_flush.set()
        assert (await asyncio.wait_for(produce, 1)).error_code is ErrorCode.not_leader_or_follower

    run()


@on_broker()
async def test_a_leader_that_takes_over_unflushed_records_commits_them_after_a_flush(bench: Bench) -> None:
    topic_id = await bench.create("journal", flush_messages="1")
    hosted = hosted_partition(bench)
    hosted.append(bench.batch(b"a"), bench.world.clock.now_ms(), required_acks=1)
    assert hosted.role.high_watermark == 0
    change_partition(bench, leader=1)
    assert hosted.role.high_watermark == 0
    await until(lambda: hosted.role.high_watermark == 1)
    assert hosted.log.recovery_point == 1
    assert await bench.read(topic_id) == [b"a"]


# -- deleted records


@on_broker()
async def test_delete_records_waits_for_the_live_followers(bench: Bench) -> None:
    topic_id = await bench.create("journal")
    await bench.produce("journal", b"a", b"b")
    register_other(bench)
    lead_with_follower(bench)
    deletion = asyncio.create_task(bench.ask(delete_records_request(1)))
    await is_waiting(bench)
    follower = ReplicaState(replica_id=OTHER, replica_epoch=77)
    request = fetch_request(topic_id, fetched(2, log_start_offset=0), replica_state=follower)
    await bench.new_client("follower").request(request)
    assert not deletion.done()
    request = fetch_request(topic_id, fetched(2, log_start_offset=1), replica_state=follower)
    await bench.new_client("follower").request(request)
    (answer,) = (await asyncio.wait_for(deletion, 0.5)).topics[0].partitions
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.none, 1)


@on_broker()
async def test_delete_records_does_not_wait_for_a_broker_that_is_fenced(bench: Bench) -> None:
    await bench.create("journal")
    await bench.produce("journal", b"a", b"b")
    register_other(bench, fenced=True)
    lead_with_follower(bench)
    (answer,) = (await bench.ask(delete_records_request(1))).topics[0].partitions
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.none, 1)


@on_broker()
async def test_delete_records_ends_with_the_last_live_follower_if_another_is_fenced(bench: Bench) -> None:
    topic_id = await bench.create("journal")
    await bench.produce("journal", b"a", b"b")
    register_other(bench)
    change_partition(
        bench, leader=1, replicas=(1, OTHER, OTHER + 1), isr=(1, OTHER)
    )  # the third is not registered
    deletion = asyncio.create_task(bench.ask(delete_records_request(1)))
    await is_waiting(bench)
    follower = ReplicaState(replica_id=OTHER, replica_epoch=77)
    request = fetch_request(topic_id, fetched(2, log_start_offset=1), replica_state=follower)
    await bench.new_client("follower").request(request)
    (answer,) = (await asyncio.wait_for(deletion, 0.5)).topics[0].partitions
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.none, 1)


@on_broker()
async def test_delete_records_ends_when_the_last_follower_is_fenced(bench: Bench) -> None:
    await bench.create("journal")
    await bench.produce("journal", b"a", b"b")
    register_other(bench)
    lead_with_follower(bench)
    deletion = asyncio.create_task(bench.ask(delete_records_request(1)))
    await is_waiting(bench)
    register_other(bench, fenced=True)
    (answer,) = (await asyncio.wait_for(deletion, 0.5)).topics[0].partitions
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.none, 1)


@on_broker()
async def test_delete_records_times_out(bench: Bench) -> None:
    await bench.create("journal")
    await bench.produce("journal", b"a", b"b")
    register_other(bench)
    lead_with_follower(bench)
    (answer,) = (await bench.ask(delete_records_request(1))).topics[0].partitions
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.request_timed_out, -1)


@on_broker()
async def test_delete_records_ends_with_its_leadership(bench: Bench) -> None:
    await bench.create("journal")
    await bench.produce("journal", b"a", b"b")
    register_other(bench)
    lead_with_follower(bench)
    deletion = asyncio.create_task(bench.ask(delete_records_request(1)))
    await is_waiting(bench)
    step_down(bench)
    lead_alone(bench)
    (answer,) = (await asyncio.wait_for(deletion, 0.5)).topics[0].partitions
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.not_leader_or_follower, -1)


# -- markers


@on_broker()
async def test_a_marker_is_not_acknowledged_by_other_records_under_a_later_leadership(bench: Bench) -> None:
    await bench.create("journal")
    lead_with_follower(bench)
    topic = {"name": "journal", "partition_indexes": (0,)}
    marker = {
        "producer_id": 7, "producer_epoch": 0, "transaction_result": True, "coordinator_epoch": 0,
        "topics": (topic,),
    }  # fmt: skip
    request = message(ApiKey.WRITE_TXN_MARKERS, 1, markers=(marker,))
    written = asyncio.create_task(bench.ask(request))
    await is_waiting(bench)
    usurp(bench)
    (answer,) = (await asyncio.wait_for(written, 1)).markers[0].topics[0].partitions
    assert answer.error_code is ErrorCode.not_leader_or_follower


# -- fetches


class CountedFetches:
    """The fetches of followers that count."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.offsets: list[int] = []
        follower_fetched = HostedPartition.follower_fetched

        def count(hosted: HostedPartition, leader: Any, replica_id: int, fetch: Any, *rest: Any) -> None:
            follower_fetched(hosted, leader, replica_id, fetch, *rest)
            self.offsets.append(fetch.fetch_offset)

        monkeypatch.setattr(HostedPartition, "follower_fetched", count)


async def follower_fetch(
    bench: Bench,
    topic_id: Any,
    *,
    replica_id: int = OTHER,
    replica_epoch: int = -1,
    offset: int = 0,
    **wanted: Any,
) -> Any:
    state = ReplicaState(replica_id=replica_id, replica_epoch=replica_epoch)
    response = await bench.ask(fetch_request(topic_id, fetched(offset, **wanted), replica_state=state))
    (answer,) = response.responses[0].partitions
    return answer


def test_a_followers_fetch_counts_once_and_not_again_after_purgatory(monkeypatch: pytest.MonkeyPatch) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        counted = CountedFetches(monkeypatch)
        topic_id = await bench.create("journal")
        lead_with_follower(bench)
        request = fetch_request(
            topic_id,
            fetched(log_start_offset=0),
            replica_state=ReplicaState(replica_id=OTHER, replica_epoch=-1),
            max_wait=delete_records_request(0).timeout,
        )
        poll = asyncio.create_task(bench.new_client("follower").request(request))
        await is_waiting(bench)
        assert counted.offsets == [0]
        await bench.produce("journal", b"a", acks=1)
        (answer,) = (await asyncio.wait_for(poll, 0.5)).responses[0].partitions
        assert values_in(answer.records) == [b"a"]
        assert counted.offsets == [0]

    run()


def test_a_fetch_that_diverges_or_fails_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        counted = CountedFetches(monkeypatch)
        topic_id = await bench.create("journal")
        await bench.produce("journal", b"a", b"b")
        lead_with_follower(bench)
        await bench.produce("journal", b"c", acks=1)
        answer = await follower_fetch(bench, topic_id, offset=3, last_fetched_epoch=0)
        assert answer.diverging_epoch.end_offset == 2
        answer = await follower_fetch(bench, topic_id, offset=4)
        assert answer.error_code is ErrorCode.offset_out_of_range
        answer = await follower_fetch(bench, topic_id, replica_id=9)
        assert answer.error_code is ErrorCode.not_leader_or_follower
        answer = await follower_fetch(bench, topic_id, replica_id=9, current_leader_epoch=1)
        assert answer.error_code is ErrorCode.unknown_leader_epoch
        answer = await follower_fetch(bench, topic_id, replica_id=1)
        assert answer.error_code is ErrorCode.not_leader_or_follower
        assert counted.offsets == []
        assert hosted_partition(bench).leader.replicas.followers[OTHER].log_end_offset == -1
        assert (await follower_fetch(bench, topic_id, offset=3)).error_code is ErrorCode.none
        assert counted.offsets == [3]

    run()


@on_broker()
async def test_a_fetch_of_an_earlier_registration_of_a_broker_is_rejected(bench: Bench) -> None:
    topic_id = await bench.create("journal")
    register_other(bench)
    lead_with_follower(bench)
    leader = hosted_partition(bench).leader
    answer = await follower_fetch(bench, topic_id, replica_epoch=76)
    assert answer.error_code is ErrorCode.not_leader_or_follower
    assert leader.replicas.followers[OTHER].log_end_offset == -1
    answer = await follower_fetch(bench, topic_id, replica_epoch=77)
    assert answer.error_code is ErrorCode.none
    assert leader.replicas.followers[OTHER].log_end_offset == 0


@on_broker()
async def test_only_an_active_broker_is_proposed_for_the_isr(bench: Bench) -> None:
    bench.services.partitions.on_isr_proposed = lambda *proposal: (
        None
    )  # the controller does not know broker 2
    topic_id = await bench.create("journal")
    change_partition(bench, leader=1, replicas=(1, OTHER), isr=(1,))
    leader = hosted_partition(bench).leader
    register_other(bench, in_controlled_shutdown=True)
    await follower_fetch(bench, topic_id, replica_epoch=77)
    assert leader.isr_proposal is None
    register_other(bench)
    await follower_fetch(bench, topic_id, replica_epoch=77)
    assert leader.isr_proposal is not None
    assert leader.isr_proposal.isr == ((1, -1), (OTHER, 77))


@on_broker()
async def test_a_consumer_between_the_high_watermark_and_the_end_gets_an_empty_answer(bench: Bench) -> None:
    topic_id = await bench.create("journal")
    await bench.produce("journal", b"a")
    lead_with_follower(bench)
    await bench.produce("journal", b"b", b"c", acks=1)
    for offset in (1, 2, 3):
        (answer,) = (await bench.ask(fetch_request(topic_id, fetched(offset)))).responses[0].partitions
        assert (answer.error_code, answer.high_watermark) == (ErrorCode.none, 1)
        assert not answer.records
    (answer,) = (await bench.ask(fetch_request(topic_id, fetched(4)))).responses[0].partitions
    assert answer.error_code is ErrorCode.offset_out_of_range


def test_a_cold_read_counts_a_followers_fetch_once(monkeypatch: pytest.MonkeyPatch) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        counted = CountedFetches(monkeypatch)
        topic_id = await bench.create("journal")
        lead_with_follower(bench)
        read = FetchReader.read

        def read_twice(reader: FetchReader, *, may_block: bool = True) -> Any:
            read(reader, may_block=may_block)
            return read(reader, may_block=may_block)

        monkeypatch.setattr(FetchReader, "read", read_twice)
        await follower_fetch(bench, topic_id)
        assert counted.offsets == [0]

    run()


# -- list offsets (KIP-207)


@pytest.mark.parametrize("version", [4, 5, 9])
def test_offsets_are_not_available_before_the_high_watermark_reaches_the_start_of_the_epoch(
    version: int,
) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        topic_id = await bench.create("journal")
        now_ms = bench.world.clock.now_ms()
        lead_with_follower(bench)
        await bench.produce("journal", records=bench.batch(b"a", b"b", timestamp=now_ms), acks=1)
        step_down(bench)
        lead_with_follower(bench)

        async def offset(timestamp: int, replica_id: int = -1) -> tuple[ErrorCode, int]:
            response = await bench.ask(list_offsets_request(timestamp, replica_id=replica_id), version)
            (answer,) = response.topics[0].partitions
            return answer.error_code, answer.offset

        refused = ErrorCode.offset_not_available if version >= 5 else ErrorCode.leader_not_available
        assert await offset(-1) == (refused, -1)
        assert await offset(now_ms) == (refused, -1)
        assert await offset(now_ms + 1) == (refused, -1)
        assert await offset(-2) == (ErrorCode.none, 0)
        assert await offset(-1, replica_id=OTHER) == (ErrorCode.none, 2)
        assert await offset(now_ms, replica_id=OTHER) == (ErrorCode.none, 0)
        await follower_fetch(bench, topic_id, offset=2)
        assert await offset(-1) == (ErrorCode.none, 2)
        assert await offset(now_ms) == (ErrorCode.none, 0)
        assert await offset(now_ms + 1) == (ErrorCode.none, -1)

    run()
