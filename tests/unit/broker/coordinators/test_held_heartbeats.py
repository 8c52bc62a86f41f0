"""Heartbeats without news wait for some: with real requests on a simulated broker."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.consumer_group_heartbeat.v1.request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.join_group.v9.request import JoinGroupRequest, JoinGroupRequestProtocol
from kio.schema.sync_group.v5.request import SyncGroupRequest, SyncGroupRequestAssignment
from tests.unit.broker.bench import Bench, on_broker

from ottla.model.errors import ErrorCode
from ottla.sim.client import SimClient

SESSION_S = 45
HELD_S = SESSION_S / 9


def join(member_id: str) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout=timedelta(seconds=SESSION_S),
        rebalance_timeout=timedelta(seconds=60),
        member_id=member_id,
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=b""),),
    )


def heartbeat(member_id: str, generation_id: int) -> HeartbeatRequest:
    return HeartbeatRequest(group_id="g", generation_id=generation_id, member_id=member_id)


async def joined(client: SimClient) -> tuple[str, int]:
    """A member of a stable group of one: its id and generation."""
    await client.request(FindCoordinatorRequest(key_type=0, coordinator_keys=("g",)))
    asked: Any = await client.request(join(""))
    response: Any = await client.request(join(asked.member_id))
    assert response.error_code is ErrorCode.none
    synced: Any = await client.request(
        SyncGroupRequest(
            group_id="g",
            generation_id=response.generation_id,
            member_id=response.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=(SyncGroupRequestAssignment(member_id=response.member_id, assignment=b"all"),),
        )
    )
    assert synced.error_code is ErrorCode.none
    return response.member_id, response.generation_id


@on_broker(group_initial_rebalance_delay_ms="0")
async def test_a_heartbeat_without_news_is_answered_after_a_ninth_of_the_session(bench: Bench) -> None:
    member_id, generation_id = await joined(bench.client)
    loop = asyncio.get_running_loop()
    for _ in range(20):  # longer than the session: it is a sign of life all the same
        started = loop.time()
        answer = await bench.ask(heartbeat(member_id, generation_id))
        assert answer.error_code is ErrorCode.none
        assert loop.time() - started == pytest.approx(HELD_S, abs=0.1)


@on_broker(group_initial_rebalance_delay_ms="0")
async def test_a_held_heartbeat_tells_of_a_rebalance_when_it_begins(bench: Bench) -> None:
    member_id, generation_id = await joined(bench.client)
    loop = asyncio.get_running_loop()
    held = asyncio.ensure_future(bench.ask(heartbeat(member_id, generation_id)))
    await asyncio.sleep(1)
    assert not held.done()
    other = bench.new_client("other")
    asked: Any = await other.request(join(""))
    joining = asyncio.ensure_future(other.request(join(asked.member_id)))
    started = loop.time()
    assert (await held).error_code is ErrorCode.rebalance_in_progress
    assert loop.time() - started < 0.1
    assert not joining.done(), "the others have not rejoined yet"
    joining.cancel()


@on_broker(group_initial_rebalance_delay_ms="0")
async def test_a_held_heartbeat_never_keeps_another_request_of_its_connection_waiting(bench: Bench) -> None:
    member_id, generation_id = await joined(bench.client)
    loop = asyncio.get_running_loop()
    held = asyncio.ensure_future(bench.ask(heartbeat(member_id, generation_id)))
    await asyncio.sleep(1)
    started = loop.time()
    await bench.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=("g",)))
    assert (await held).error_code is ErrorCode.none
    assert loop.time() - started < 0.1


@on_broker(group_initial_rebalance_delay_ms="0")
async def test_a_closed_connection_leaves_no_held_heartbeat_behind(bench: Bench) -> None:
    member_id, generation_id = await joined(bench.client)
    await asyncio.sleep(1)
    before = len(bench.broker.waiting_room)  # the timers of the shards and of the session
    held = asyncio.ensure_future(bench.ask(heartbeat(member_id, generation_id)))
    await asyncio.sleep(1)
    assert len(bench.broker.waiting_room) == before + 1
    held.cancel()
    bench.client.close()
    await asyncio.sleep(1)
    assert len(bench.broker.waiting_room) == before


def consumer_heartbeat(member: str, epoch: int, **fields: Any) -> ConsumerGroupHeartbeatRequest:
    fields.setdefault("topic_partitions", None)
    return ConsumerGroupHeartbeatRequest(group_id="g", member_id=member, member_epoch=epoch, **fields)


def joining(member: str) -> ConsumerGroupHeartbeatRequest:
    return consumer_heartbeat(
        member,
        0,
        rebalance_timeout=timedelta(seconds=60),
        subscribed_topic_names=("t",),
        topic_partitions=(),
    )


@on_broker(group_consumer_assignment_interval_ms="0")
async def test_a_member_of_the_consumer_protocol_is_told_of_its_new_assignment_at_once(bench: Bench) -> None:
    topic_id = await bench.create("t", 2)
    await bench.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=("g",)))
    first = await bench.ask(joining("first"))
    owned = (TopicPartitions(topic_id=topic_id, partitions=(0, 1)),)
    epoch = first.member_epoch
    confirmed = asyncio.ensure_future(bench.ask(consumer_heartbeat("first", epoch, topic_partitions=owned)))
    await asyncio.sleep(0.5)
    other = bench.new_client("other")
    second: Any = await other.request(joining("second"))
    assert second.assignment.topic_partitions == ()
    told: Any = await confirmed
    if told.assignment is None:  # the first answer may confirm what the member said
        told = await bench.ask(consumer_heartbeat("first", epoch))
    assert [len(each.partitions) for each in told.assignment.topic_partitions] == [1], "one is to be given up"
    loop = asyncio.get_running_loop()
    waiting = asyncio.ensure_future(other.request(consumer_heartbeat("second", second.member_epoch)))
    await asyncio.sleep(0.01)
    started = loop.time()
    await bench.ask(consumer_heartbeat("first", epoch, topic_partitions=told.assignment.topic_partitions))
    given: Any = await waiting
    assert loop.time() - started < 0.1
    assert [len(each.partitions) for each in given.assignment.topic_partitions] == [1]
