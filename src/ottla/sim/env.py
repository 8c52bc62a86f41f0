"""A world from one seed: one network, and for each process an `Env` of its own on its own disk."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import copy_context
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from ottla.env import Env
from ottla.sim.clock import SimClock
from ottla.sim.disk import SimDisk
from ottla.sim.loop import NODE, STEP_LIMIT, VirtualTimeLoop, run
from ottla.sim.network import NetworkProfile, SimHost, SimNetwork
from ottla.sim.processes import SimProcesses
from ottla.sim.threads import SimThreads
from ottla.sim.trace import Trace

T = TypeVar("T")


class World:
    """Made on the running event loop. Everything random in it derives from `Random(seed)`."""

    def __init__(self, seed: int, profile: NetworkProfile | None = None) -> None:
        loop = asyncio.get_running_loop()
        self.seed = seed
        self.random = Random(seed)
        self.clock = SimClock(loop.time)
        self.trace = Trace(loop.time)
        self.network = SimNetwork(self.derive(), profile, self.trace.note)
        self.acknowledged = (
            asyncio.Event()
        )  # set by a client that was just told that something is done for good

    def derive(self) -> Random:
        return Random(self.random.getrandbits(64))

    def new_disk(self, *mounts: str) -> SimDisk:
        return SimDisk(self.derive(), self.clock.now_ms, mounts=mounts or ("/data",), note=self.trace.note)

    def process(self, host: str, disk: SimDisk) -> "SimProcess":
        """A process that runs on `host`; the name of a host may be used again once its process is dead."""
        random = self.derive()
        door = self.network.host(host)
        env = Env(self.clock, disk, door, SimThreads(self.derive()), random, SimProcesses())
        process = SimProcess(f"{host}#{random.getrandbits(32):08x}", env, disk, door)
        disk.on_power_loss = process.on_power_loss
        return process


class ProcessKilled(Exception):
    """The process was killed while its code ran."""


@dataclass(frozen=True, slots=True)
class SimProcess:
    """What runs inside one `Env`, as a thing that can be killed."""

    name: str
    env: Env
    disk: SimDisk
    door: SimHost

    async def run(self, main: Callable[[Env], Coroutine[Any, Any, T]]) -> T:
        """Runs `main` as this process's code: the tasks, timers and connections it starts die with it."""
        context = copy_context()
        context.run(NODE.set, self.name)
        task = asyncio.get_running_loop().create_task(main(self.env), context=context)
        try:
            return await task
        except BaseException as error:
            if not self.disk.is_alive and not _is_cancelled():
                raise ProcessKilled(f"{self.name} was killed") from error
            raise

    async def kill(self) -> None:
        """kill -9: the page cache stays, peers see their connections reset."""
        self.disk.kill()
        self.door.kill(silent=False)
        await self._end()

    async def lose_power(self) -> None:
        """The machine stops: unsynced bytes are at risk, peers hear nothing."""
        self.disk.crash()
        await self._end()

    def on_power_loss(self) -> None:
        """Also where the disk loses it by itself, in the midst of an operation: nothing more is said or done."""
        self.door.kill(silent=True)
        self._cancel()

    async def _end(self) -> None:
        while tasks := self._cancel():
            await asyncio.wait(tasks)

    def _cancel(self) -> list[asyncio.Task[Any]]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        return [task for task in loop.kill(self.name) if not task.done()]


def sim_env(seed: int, profile: NetworkProfile | None = None) -> Env:
    """The environment of a single process called `sim`; to be called on a running `VirtualTimeLoop`."""
    world = World(seed, profile)
    return world.process("sim", world.new_disk()).env


def simulate(
    main: Callable[[World], Awaitable[T]],
    seed: int,
    *,
    profile: NetworkProfile | None = None,
    step_limit: int = STEP_LIMIT,
) -> T:
    """Runs `main` in a world made from `seed`, on a virtual-time event loop."""

    async def inside() -> T:
        return await main(World(seed, profile))

    return run(inside(), step_limit=step_limit)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
