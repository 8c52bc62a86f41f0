"""A group that is too large for a record of its topic is rejected alone: other groups of its shard go on."""

import asyncio
from datetime import timedelta
from typing import Any

from tests.unit.broker.broker_bench import Bench, on_broker
from tests.unit.broker.group_bench import message

from ottla.model.errors import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.sim.client import SimClient

TIMEOUT = timedelta(seconds=10)
RECORD_BYTES_MAX = 1_048_588


async def join(client: SimClient, group: str) -> Any:
    def request(member_id: str) -> Any:
        return message(
            ApiKey.JOIN_GROUP,
            9,
            group_id=group,
            session_timeout=TIMEOUT,
            rebalance_timeout=TIMEOUT,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b"m"}],
        )

    first = await client.request(request(""))
    return await client.request(request(first.member_id))


async def sync(client: SimClient, group: str, joined: Any, assignment: bytes) -> ErrorCode:
    response = await client.request(
        message(
            ApiKey.SYNC_GROUP,
            5,
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[{"member_id": joined.member_id, "assignment": assignment}],
        )
    )
    code: ErrorCode = response.error_code
    return code


@on_broker(offsets_topic_num_partitions="1", group_initial_rebalance_delay_ms="3000")
async def test_an_assignment_that_is_too_large_harms_no_other_group(bench: Bench) -> None:
    await bench.ask(message(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=("g",)))
    large, small = bench.client, bench.new_client("small")
    joined = await join(large, "large")
    waiting = asyncio.create_task(join(small, "small"))  # during the initial rebalance delay
    await asyncio.sleep(1)
    assert await sync(large, "large", joined, bytes(RECORD_BYTES_MAX)) is ErrorCode.unknown_server_error
    assert (await waiting).error_code is ErrorCode.none
    # The leader of the group may send a smaller one.
    assert await sync(large, "large", joined, bytes(RECORD_BYTES_MAX // 2)) is ErrorCode.none


@on_broker(offsets_topic_num_partitions="1", offsets_topic_compression_codec="4")
async def test_an_assignment_that_fits_when_it_is_compressed_is_accepted(bench: Bench) -> None:
    await bench.ask(message(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=("g",)))
    joined = await join(bench.client, "large")
    assert await sync(bench.client, "large", joined, bytes(RECORD_BYTES_MAX)) is ErrorCode.none
