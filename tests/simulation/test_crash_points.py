"""The power goes at each single operation of the disk in turn, and the broker starts again on what is left."""

import asyncio
from itertools import count

from ottla.model.errors import ErrorCode
from ottla.records.records import Record, build_batch, read_batches
from ottla.sim.client import SimClient
from ottla.sim.env import ProcessKilled, World, simulate
from ottla.sim.node import HOST, PORT, BrokerNode

TOPIC_CONFIG = {"flush.messages": "1"}


class Progress:
    """How far the clients of a run had come, by what they were told."""

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
        answer = await client.produce(
            topic_id, 0, build_batch([Record(0, world.clock.now_ms(), None, value)])
        )
        assert answer.error_code == ErrorCode.none
        progress.acknowledged.append(value)


async def check(world: World, progress: Progress) -> None:
    client = SimClient(world.network.host("client"), (HOST, PORT), "client")
    topic = (await client.metadata("journal")).topics[0]
    if progress.topic_created:
        assert topic.error_code == ErrorCode.none
        assert topic.topic_id is not None
        answer = await client.fetch(topic.topic_id, 0, 0)
        batches = read_batches(answer.records or b"")
        values = [record.value for batch in batches for record in batch.records]
        # One that was under way when the power went may be there too.
        assert [value for value in values if value in progress.acknowledged] == progress.acknowledged


def crash_at(operation: int) -> bool:
    """Whether the power went at all: the run may be done before it has `operation` operations."""

    async def main(world: World) -> bool:
        node, progress = BrokerNode(world), Progress()
        node.disk.crash_after(operation)
        try:
            await node.start()
            await use(world, progress)
        except (OSError, ProcessKilled):
            assert not node.disk.is_alive, "an operation failed although the power had not gone"
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


def test_a_broker_starts_again_after_a_power_loss_at_any_operation_of_its_first_minute() -> None:
    crashes = 0
    for operation in count():
        try:
            if not crash_at(operation):
                break
        except Exception as error:
            error.add_note(f"the power went at operation {operation} of the disk")
            raise
        crashes += 1
    assert crashes > 50
