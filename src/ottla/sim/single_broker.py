"""One real broker under idempotent producers and readers, while its process, its power and its network fail.

The process may be killed or stopped at any time: the page cache stays, so nothing is lost. In half of the
runs, those with `flush.messages=1`, the power may go too: what was acknowledged, or seen by a consumer, is on
the disk.
"""

import asyncio

from ottla.sim.client import SimClient
from ottla.sim.env import World
from ottla.sim.history import History, Violation
from ottla.sim.node import HOST, PORT, BrokerNode, Chaos
from ottla.sim.workload import IdempotentProducer, Reader, until_it_works

TOPIC = "journal"
PARTITIONS = 2
PRODUCERS = 2
BATCHES_PER_PRODUCER = 60
TIME_LIMIT_S = 3600.0
# Small enough that segments roll and indexes fill in a run of a minute.
TOPIC_CONFIG = {"segment.ms": "4000", "segment.index.bytes": "240", "index.interval.bytes": "600"}


async def single_broker(world: World) -> History:
    """Raises Violation where the broker broke a promise."""
    try:
        async with asyncio.timeout(TIME_LIMIT_S):
            return await _run(world)
    except TimeoutError:
        raise Violation(f"not done after {TIME_LIMIT_S:.0f} s of virtual time: no progress") from None


async def _run(world: World) -> History:
    flushes = world.seed % 2 == 1
    world.trace.note(f"seed {world.seed}, flush.messages {'1' if flushes else 'default'}")
    node = BrokerNode(world)
    await node.start()
    history = History()
    hosts = [f"client-{index}" for index in range(PRODUCERS)]
    clients = [SimClient(world.network.host(host), (HOST, PORT), host) for host in hosts]
    configs = TOPIC_CONFIG | ({"flush.messages": "1"} if flushes else {})
    topic_id = await until_it_works(clients[0], TOPIC, PARTITIONS, configs)
    producers = [
        IdempotentProducer(
            client, world.derive(), world.clock.now_ms, history, f"p{index}", topic_id, partition
        )
        for index, client in enumerate(clients)
        for partition in range(PARTITIONS)
    ]
    readers = [Reader(clients[-1], history, topic_id, partition) for partition in range(PARTITIONS)]
    await _until_all_is_written(Chaos(world, node, hosts, flushes=flushes), producers, readers)
    for restart in (node.stop, node.lose_power if flushes else node.kill):
        await _check(history, readers)
        await restart()
        await node.start()
    await _check(history, readers)
    await node.stop()
    return history


async def _until_all_is_written(
    chaos: Chaos, producers: list[IdempotentProducer], readers: list[Reader]
) -> None:
    try:
        async with asyncio.TaskGroup() as around:
            following = [around.create_task(reader.follow()) for reader in readers]
            breaking = around.create_task(chaos.run())
            async with asyncio.TaskGroup() as writing:
                for producer in producers:
                    writing.create_task(producer.run(BATCHES_PER_PRODUCER))
            chaos.is_over = True
            await breaking
            for task in following:
                task.cancel()
    except BaseExceptionGroup as group:
        raise first_of(group) from None


async def _check(history: History, readers: list[Reader]) -> None:
    for reader in readers:
        history[reader.partition].check_log(await reader.read_all())


def first_of(error: BaseException) -> BaseException:
    """What went wrong first in a group of tasks."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
