"""One real broker under idempotent producers and readers, while its process, its power and its network fail.

The process may be killed or stopped at any time: the page cache stays, so nothing is lost. In half of the
runs, those with `flush.messages=1`, the power may go too: what was acknowledged, or seen by a consumer, is on
the disk.
"""

import asyncio
from random import Random

from ottla.broker.node import Broker
from ottla.env import Env
from ottla.model.config import BrokerConfig
from ottla.sim.client import SimClient
from ottla.sim.disk import SimDisk
from ottla.sim.env import ProcessKilled, SimProcess, World
from ottla.sim.history import History, Violation
from ottla.sim.network import NetworkProfile
from ottla.sim.workload import IdempotentProducer, Reader, until_it_works

HOST, PORT = "broker", 9092
TOPIC = "journal"
PARTITIONS = 2
PRODUCERS = 2
BATCHES_PER_PRODUCER = 60
TIME_LIMIT_S = 3600.0
BROKER_CONFIG = {
    "node.id": "1",
    "listeners": f"PLAINTEXT://{HOST}:{PORT}",
    "log.dirs": "/data",
    "log.index.size.max.bytes": "65536",
    "log.flush.offset.checkpoint.interval.ms": "2000",
    "metadata.log.max.record.bytes.between.snapshots": "3000",
}
# Small enough that segments roll and indexes fill in a run of a minute.
TOPIC_CONFIG = {"segment.ms": "4000", "segment.index.bytes": "240", "index.interval.bytes": "600"}
PROFILE = NetworkProfile(reset_probability=0.002, refuse_probability=0.02)


class BrokerNode:
    """A broker that can be started, stopped, killed and robbed of its power, on one disk."""

    def __init__(self, world: World, config: dict[str, str] | None = None) -> None:
        self._config = BROKER_CONFIG | (config or {})
        self.disk: SimDisk = world.new_disk(*self._config["log.dirs"].split(","))
        self._world = world
        self._process: SimProcess
        self._running: asyncio.Task[None]
        self._ready = asyncio.Event()
        self._stop = asyncio.Event()

    async def start(self) -> None:
        self._world.trace.note("broker start")
        self._process = self._world.process(HOST, self.disk)
        self._ready, self._stop = asyncio.Event(), asyncio.Event()
        self._running = asyncio.create_task(self._process.run(self._serve))
        ready = asyncio.create_task(self._ready.wait())
        await asyncio.wait([self._running, ready], return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if self._running.done():
            self._running.result()

    async def stop(self) -> None:
        """SIGTERM."""
        self._world.trace.note("broker stop")
        self._stop.set()
        await self._running
        await self._process.kill()
        self.disk = self.disk.reopen()

    async def kill(self) -> None:
        self._world.trace.note("broker kill")
        await self._process.kill()
        await self._buried()

    async def lose_power(self) -> None:
        self._world.trace.note("broker power loss")
        await self._process.lose_power()
        await self._buried()

    async def _buried(self) -> None:
        try:
            await self._running
        except ProcessKilled:
            pass
        self.disk = self.disk.reopen()

    async def _serve(self, env: Env) -> None:
        async with Broker(BrokerConfig(self._config), env):
            self._ready.set()
            await self._stop.wait()


class Chaos:
    """Breaks something every few seconds, and mends it."""

    def __init__(self, world: World, node: BrokerNode, *, flushes: bool) -> None:
        self._random: Random = world.derive()
        self._world = world
        self._node = node
        self._flushes = flushes
        self.is_over = False

    async def run(self) -> None:
        """Until `is_over` is set; leaves everything mended."""
        while not self.is_over:
            await asyncio.sleep(self._random.uniform(0.5, 5.0))
            await self._act()

    async def _act(self) -> None:
        match self._random.randrange(8):
            case 0:
                await self._node.kill()
                await self._restart()
            case 1:
                await (self._node.lose_power() if self._flushes else self._node.kill())
                await self._restart()
            case 2:
                await (self._die_in_an_operation() if self._flushes else self._node.kill())
                await self._restart()
            case 3:
                await self._node.stop()
                await self._restart()
            case 4 | 5:
                self._world.network.reset_streams(HOST)
            case _:
                client = f"client-{self._random.randrange(PRODUCERS)}"
                self._world.network.partition(client, HOST)
                await asyncio.sleep(self._random.uniform(0.1, 20.0))
                self._world.network.heal()

    async def _restart(self) -> None:
        await asyncio.sleep(self._random.uniform(0.0, 3.0))
        await self._node.start()

    async def _die_in_an_operation(self) -> None:
        """The power goes at some operation of the disk, in whatever the broker does then."""
        self._node.disk.crash_after(self._random.randrange(60))
        await asyncio.sleep(5.0)
        await self._node.lose_power()


async def single_broker(world: World) -> History:
    """Raises Violation where the broker broke a promise."""
    try:
        async with asyncio.timeout(TIME_LIMIT_S):
            return await _run(world)
    except TimeoutError:
        raise Violation(f"not done after {TIME_LIMIT_S:.0f} s of virtual time: no progress") from None


async def _run(world: World) -> History:
    random = world.derive()
    flushes = random.random() < 0.5
    world.trace.note(f"seed {world.seed}, flush.messages {'1' if flushes else 'default'}")
    node = BrokerNode(world)
    await node.start()
    history = History()
    clients = [
        SimClient(world.network.host(f"client-{index}"), (HOST, PORT), f"client-{index}")
        for index in range(PRODUCERS)
    ]
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
    await _until_all_is_written(Chaos(world, node, flushes=flushes), producers, readers)
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
        raise _first(group) from None


async def _check(history: History, readers: list[Reader]) -> None:
    for reader in readers:
        history[reader.partition].check_log(await reader.read_all())


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
