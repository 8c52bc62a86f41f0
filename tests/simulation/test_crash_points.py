"""A power loss at every single disk operation, and a start of the broker after each."""

import asyncio
from itertools import count

import pytest

from ottla.model.errors import ErrorCode
from ottla.records.records import Record, build_batch, read_batches
from ottla.sim.client import SimClient
from ottla.sim.env import ProcessKilled, World, simulate
from ottla.sim.node import HOST, PORT, BrokerNode

TOPIC_CONFIG = {"flush.messages": "1"}


class Progress:
    """What the client of a run has been acknowledged so far."""

    def __init__(self) -> None:
        self.topic_created = False
        self.attempts = 0
        self.acknowledged: list[bytes] = []


async def use(world: World, progress: Progress) -> None:
    client = SimClient(world.network.host("client"), (HOST, PORT), "client", timeout_s=1.0)
    created = await client.create_topic("journal", 1, TOPIC_CONFIG)
    assert created in (ErrorCode.none, ErrorCode.topic_already_exists)
    progress.topic_created = True
    topic_id = (await client.metadata("journal")).topics[0].topic_id
    assert topic_id is not None
    for _ in range(3):
        progress.attempts += 1
        value = str(progress.attempts).encode()
        response = await client.produce(
            topic_id, 0, build_batch([Record(0, world.clock.now_ms(), None, value)])
        )
        assert response.error_code == ErrorCode.none
        progress.acknowledged.append(value)


async def check(world: World, progress: Progress) -> None:
    client = SimClient(world.network.host("client"), (HOST, PORT), "client")
    topic = (await client.metadata("journal")).topics[0]
    if progress.topic_created:
        assert topic.error_code == ErrorCode.none
        assert topic.topic_id is not None
        response = await client.fetch(topic.topic_id, 0, 0)
        batches = read_batches(response.records or b"")
        values = [record.value for batch in batches for record in batch.records]
        # A record in flight at the power loss may be there too.
        assert [value for value in values if value in progress.acknowledged] == progress.acknowledged


def crash_at(operation: int) -> bool:
    """Returns False if the run ended before disk operation `operation`."""

    async def main(world: World) -> bool:
        node, progress = BrokerNode(world), Progress()
        node.disk.crash_after(operation)
        try:
            await node.start()
            await use(world, progress)
        except (OSError, ProcessKilled):
            assert not node.disk.is_alive, "an operation failed before the power loss"
        crashed = not node.disk.is_alive
        await node.lose_power()
        await node.start()
        await check(world, progress)
        await use(world, progress)
        await node.stop()
        await node.start()
        await check(world, progress)
        await node.stop()
        return crashed

    async def bounded(world: World) -> bool:
        async with asyncio.timeout(600):
            return await main(world)

    return simulate(bounded, operation)


@pytest.mark.slow
def test_a_broker_starts_after_a_power_loss_at_any_disk_operation() -> None:
    crashes = 0
    for operation in count():
        try:
            if not crash_at(operation):
                break
        except Exception as error:
            error.add_note(f"the power loss was at disk operation {operation}")
            raise
        crashes += 1
    assert crashes > 50
