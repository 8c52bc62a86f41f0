"""Heartbeats of a stable group, with real requests on a simulated broker: as in Kafka, the response is sent at once.

Some clients wait for the response before they fetch or process the next record.
"""

import asyncio
from datetime import timedelta
from typing import Any

from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest, TopicPartitions
from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.join_group.v9.request import JoinGroupRequest, JoinGroupRequestProtocol
from kio.schema.sync_group.v5.request import SyncGroupRequest, SyncGroupRequestAssignment
from tests.unit.broker.broker_bench import Bench, on_broker

from ottla.model.errors import ErrorCode

SESSION_S = 45
ROUND_TRIP_S_MAX = 0.1  # of the simulated network


async def ask_timed(bench: Bench, request: Any) -> Any:
    """The response, which must come within a round trip."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    response = await bench.ask(request)
    assert loop.time() - started < ROUND_TRIP_S_MAX
    assert response.error_code is ErrorCode.none
    return response


def join(member_id: str) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout=timedelta(seconds=SESSION_S),
        rebalance_timeout=timedelta(seconds=60),
        member_id=member_id,
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=b""),),
    )


@on_broker(group_initial_rebalance_delay_ms="0")
async def test_a_classic_heartbeat_gets_its_response_at_once(bench: Bench) -> None:
    await bench.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=("g",)))
    asked = await bench.ask(join(""))
    joined = await bench.ask(join(asked.member_id))
    await bench.ask(
        SyncGroupRequest(
            group_id="g",
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=(SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all"),),
        )
    )
    for _ in range(10):
        await ask_timed(
            bench,
            HeartbeatRequest(group_id="g", generation_id=joined.generation_id, member_id=joined.member_id),
        )
        await asyncio.sleep(SESSION_S / 3)


@on_broker(group_consumer_assignment_interval_ms="0")
async def test_a_heartbeat_of_the_consumer_protocol_gets_its_response_at_once(bench: Bench) -> None:
    topic_id = await bench.create("t", 2)
    await bench.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=("g",)))

    def heartbeat(epoch: int, **fields: Any) -> ConsumerGroupHeartbeatRequest:
        fields.setdefault("topic_partitions", None)
        return ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=epoch, **fields)

    joined = await bench.ask(
        heartbeat(
            0,
            rebalance_timeout=timedelta(seconds=60),
            subscribed_topic_names=("t",),
            topic_partitions=(),
        )
    )
    owned = (TopicPartitions(topic_id=topic_id, partitions=(0, 1)),)
    await ask_timed(bench, heartbeat(joined.member_epoch, topic_partitions=owned))
    for _ in range(10):
        response = await ask_timed(bench, heartbeat(joined.member_epoch))
        await asyncio.sleep(response.heartbeat_interval.total_seconds())
