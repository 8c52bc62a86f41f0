"""The broker of a simulation, and the faults that hit it: in its process, its power, its connections, the network."""

import asyncio
from collections.abc import Sequence
from random import Random

from ottla.broker.node import Broker
from ottla.env import Env
from ottla.model.config import BrokerConfig
from ottla.sim.disk import SimDisk
from ottla.sim.env import ProcessKilled, SimProcess, World
from ottla.sim.network import NetworkProfile

HOST, PORT = "broker", 9092
_BROKER_CONFIG = {
    "node.id": "1",
    "listeners": f"PLAINTEXT://{HOST}:{PORT}",
    "log.dirs": "/data",
    # A simulated disk has no sparse files: each index takes its whole size, for each segment that is open.
    "log.index.size.max.bytes": "4096",
    "internal.metadata.log.segment.bytes": "1048576",
    "log.flush.offset.checkpoint.interval.ms": "2000",
    "metadata.log.max.record.bytes.between.snapshots": "3000",
}
_ACKNOWLEDGED_WITHIN_S = 2.0
_FAULTS = (
    "kill",
    "power loss",
    "power loss in a disk operation",
    "stop",
    "connections reset",
    "connections reset",
    "client cut off",
    "client cut off",
    "power loss",
)
PROFILE = NetworkProfile(reset_probability=0.002, refuse_probability=0.02)


class BrokerNode:
    """A broker on one disk, which can be started, stopped and killed, and can lose its power."""

    def __init__(self, world: World, config: dict[str, str] | None = None) -> None:
        self._config = _BROKER_CONFIG | (config or {})
        self.disk: SimDisk = world.new_disk(*self._config["log.dirs"].split(","))
        self._world = world
        self.broker: Broker | None = None  # while it serves
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
        """A clean shutdown, as after SIGTERM."""
        self._world.trace.note("broker stop")
        self._stop.set()
        await self._running
        await self._process.kill()
        self.broker = None
        self.disk = self.disk.reopen()

    async def kill(self) -> None:
        self._world.trace.note("broker kill")
        await self._process.kill()
        await self._reopen_disk()

    async def lose_power(self) -> None:
        self._world.trace.note("broker power loss")
        await self._process.lose_power()
        await self._reopen_disk()

    async def _reopen_disk(self) -> None:
        try:
            await self._running
        except ProcessKilled:
            pass
        self.broker = None
        self.disk = self.disk.reopen()

    async def _serve(self, env: Env) -> None:
        async with await Broker.start(BrokerConfig(self._config), env) as broker:
            self.broker = broker
            self._ready.set()
            with self.disk.watched_loop():
                await self._stop.wait()


class Chaos:
    """Injects a fault every few seconds and repairs it. `clients` are the hosts that network partitions cut off."""

    def __init__(self, world: World, node: BrokerNode, clients: Sequence[str], *, flushes: bool) -> None:
        self._random: Random = world.derive()
        self._world = world
        self._node = node
        self._clients = clients
        self._flushes = flushes
        self.is_over = False

    async def run(self) -> None:
        """Runs until `is_over` is set. All faults are repaired when it returns."""
        while not self.is_over:
            await asyncio.sleep(self._random.uniform(0.5, 5.0))
            await self._inject_fault()

    async def _inject_fault(self) -> None:
        fault = self._random.randrange(9)
        kind = _FAULTS[fault]
        self._world.faults[kind if self._flushes or "power" not in kind else "kill"] += 1
        match fault:
            case 0:
                await self._node.kill()
                await self._restart()
            case 1 | 8:
                await self._wait_for_acknowledgement()
                await (self._node.lose_power() if self._flushes else self._node.kill())
                await self._restart()
            case 2:
                await (self._lose_power_in_operation() if self._flushes else self._node.kill())
                await self._restart()
            case 3:
                await self._node.stop()
                await self._restart()
            case 4 | 5:
                self._world.network.reset_streams(HOST)
            case _:
                client = self._clients[self._random.randrange(len(self._clients))]
                self._world.network.partition(client, HOST)
                await asyncio.sleep(self._random.uniform(0.1, 20.0))
                self._world.network.heal()

    async def _wait_for_acknowledgement(self) -> None:
        """Waits for an acknowledgement, because a fault right after it is the most likely to show an error."""
        self._world.acknowledged.clear()
        try:
            async with asyncio.timeout(_ACKNOWLEDGED_WITHIN_S):
                await self._world.acknowledged.wait()
        except TimeoutError:
            pass

    async def _restart(self) -> None:
        await asyncio.sleep(self._random.uniform(0.0, 3.0))
        await self._node.start()

    async def _lose_power_in_operation(self) -> None:
        """Loses power at a random disk operation."""
        self._node.disk.crash_after(self._random.randrange(60))
        await asyncio.sleep(5.0)
        await self._node.lose_power()
