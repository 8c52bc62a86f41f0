"""Idempotent producers and readers on one real broker, while its process, its power and its network fail.

The process may be killed or stopped at any time. The page cache survives that, so nothing may be lost. In half of the
runs, those with `flush.messages=1`, the power may fail too: acknowledged records, and records that a consumer has seen,
are on disk then.
"""

import asyncio

from ottla.sim.client import SimClient
from ottla.sim.env import World
from ottla.sim.history import History
from ottla.sim.node import HOST, PORT, BrokerNode, Chaos
from ottla.sim.partition_clients import IdempotentProducer, Reader, create_topic_with_retries
from ottla.sim.workload import TOPIC_CONFIG, run_within_time_limit

_TOPIC = "journal"
_PARTITIONS = 2
_PRODUCERS = 2
_BATCHES_PER_PRODUCER = 60


async def run_produce_workload(world: World) -> History:
    """Raises Violation if the broker breaks a guarantee."""
    return await run_within_time_limit(_run(world))


async def _run(world: World) -> History:
    flushes = world.seed % 2 == 1
    world.trace.note(f"seed {world.seed}, flush.messages {'1' if flushes else 'default'}")
    node = BrokerNode(world)
    await node.start()
    history = History()
    hosts = [f"client-{index}" for index in range(_PRODUCERS)]
    clients = [SimClient(world.network.host(host), (HOST, PORT), host) for host in hosts]
    configs = TOPIC_CONFIG | ({"flush.messages": "1"} if flushes else {})
    topic_id = await create_topic_with_retries(clients[0], _TOPIC, _PARTITIONS, configs)
    producers = [
        IdempotentProducer(
            client, world.derive(), world.clock.now_ms, history, f"p{index}", topic_id, partition
        )
        for index, client in enumerate(clients)
        for partition in range(_PARTITIONS)
    ]
    readers = [Reader(clients[-1], history, topic_id, partition) for partition in range(_PARTITIONS)]
    await _produce_all(Chaos(world, node, hosts, flushes=flushes), producers, readers)
    for stop in (node.stop, node.lose_power if flushes else node.kill):
        await _check(history, readers)
        await stop()
        await node.start()
    await _check(history, readers)
    await node.stop()
    return history


async def _produce_all(chaos: Chaos, producers: list[IdempotentProducer], readers: list[Reader]) -> None:
    async with asyncio.TaskGroup() as around:
        following = [around.create_task(reader.follow()) for reader in readers]
        breaking = around.create_task(chaos.run())
        async with asyncio.TaskGroup() as producing:
            for producer in producers:
                producing.create_task(producer.run(_BATCHES_PER_PRODUCER))
        chaos.is_over = True
        await breaking
        for task in following:
            task.cancel()


async def _check(history: History, readers: list[Reader]) -> None:
    for reader in readers:
        history[reader.partition].check_log(await reader.read_all())
