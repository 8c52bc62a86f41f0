"""With `flush.messages=1`, consumers see flushed records only."""

import asyncio

from ottla.records.records import Record, build_batch
from ottla.sim.client import SimClient
from ottla.sim.env import World, simulate
from ottla.sim.node import HOST, PORT, BrokerNode


def test_with_flush_messages_1_a_power_loss_takes_no_record_that_a_consumer_saw() -> None:
    async def main(world: World) -> None:
        node = BrokerNode(world)
        await node.start()
        consumer, producer, observer = (
            SimClient(world.network.host(name), (HOST, PORT), name) for name in ("one", "two", "three")
        )
        await consumer.create_topic("journal", 1, {"flush.messages": "1"})
        topic_id = (await consumer.metadata("journal")).topics[0].topic_id
        assert topic_id is not None
        waiting = asyncio.create_task(consumer.fetch(topic_id, 0, 0, max_wait_ms=5000))
        await asyncio.sleep(1)
        batch = build_batch([Record(0, world.clock.now_ms(), None, b"seen")])
        producing = asyncio.create_task(producer.produce(topic_id, 0, batch))
        seen = (await waiting).records
        await node.lose_power()
        await node.start()
        assert (await observer.fetch(topic_id, 0, 0)).records == seen
        await asyncio.gather(producing, return_exceptions=True)
        await node.stop()

    for seed in range(20):
        simulate(main, seed)
