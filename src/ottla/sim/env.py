"""A simulated world from one seed: a network, and an `Env` and a disk for each process."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from ottla.env import Env
from ottla.sim.clock import SimClock
from ottla.sim.disk import SimDisk
from ottla.sim.loop import NODE, STEP_LIMIT, VirtualTimeLoop, run
from ottla.sim.loop_watch import LoopWatch
from ottla.sim.network import NetworkProfile, SimHost, SimNetwork
from ottla.sim.processes import SimProcesses
from ottla.sim.threads import SimThreads
from ottla.sim.trace import Trace

T = TypeVar("T")

_CANCEL_AGAIN_S = 5.0


class World:
    """Created on the running event loop. All its randomness comes from `Random(seed)`."""

    def __init__(self, seed: int, profile: NetworkProfile | None = None) -> None:
        loop = asyncio.get_running_loop()
        self.seed = seed
        self.random = Random(seed)
        self.clock = SimClock(loop.time)  # the right time
        self.trace = Trace(loop.time)
        self.network = SimNetwork(self.derive(), profile, self.trace.note)
        self._clocks: dict[str, SimClock] = {}
        self.faults: Counter[str] = Counter()  # injected, by kind
        self.operations = 0  # that were checked
        self.bootstrap: Sequence[tuple[str, int]] = ()  # the brokers of a cluster, if there is one
        self.reconnect_backoff_s_max = 0.0  # of the clients of a cluster
        # A client sets it when a request was acknowledged that must survive every failure.
        self.acknowledged = asyncio.Event()

    def derive(self) -> Random:
        return Random(self.random.getrandbits(64))

    def clock_of(self, host: str) -> SimClock:
        """The clock of a host, which a fault may change. It outlives the processes of the host."""
        return self._clocks.setdefault(host, SimClock(asyncio.get_running_loop().time))

    def new_disk(self, *mounts: str) -> SimDisk:
        return SimDisk(self.derive(), self.clock.now_ms, mounts=mounts or ("/data",), note=self.trace.note)

    def process(self, host: str, disk: SimDisk) -> "SimProcess":
        """A process on `host`. The name can be used again once the process is dead."""
        random = self.derive()
        network = self.network.host(host)
        clock = self.clock_of(host)
        disk.set_clock(clock.now_ms)
        env = Env(clock, disk, network, SimThreads(self.derive(), disk), random, SimProcesses())
        process = SimProcess(f"{host}#{random.getrandbits(32):08x}", env, disk, network)
        disk.on_power_loss = process.on_power_loss
        loop = _loop()
        disk.loop_watch = LoopWatch(lambda: loop.turn, loop.failures.append)
        return process


class ProcessKilled(Exception):
    """The process was killed while its code ran."""


@dataclass(frozen=True, slots=True)
class SimProcess:
    """A process with its own `Env`, which can be killed."""

    name: str
    env: Env
    disk: SimDisk
    network: SimHost

    async def run(self, main: Callable[[Env], Coroutine[Any, Any, T]]) -> T:
        """Runs `main` in this process. Its tasks, timers and connections end with the process."""
        context = copy_context()
        context.run(NODE.set, self.name)
        task = asyncio.get_running_loop().create_task(main(self.env), context=context)
        try:
            return await task
        except BaseException as error:
            if not self.disk.is_alive and not _is_cancelled():
                raise ProcessKilled(f"{self.name} was killed") from error
            raise

    def pause(self) -> None:
        """SIGSTOP: no code of the process runs. Its connections stay open, and buffer what arrives."""
        _loop().pause(self.name)

    def resume(self) -> None:
        """SIGCONT. Timers that are overdue fire."""
        _loop().resume(self.name)

    async def kill(self) -> None:
        """kill -9: the page cache survives, and peers see their connections reset."""
        self.disk.kill()
        self.network.kill(silent=False)
        await self._end()

    async def lose_power(self) -> None:
        """The machine stops: unsynced bytes may be lost, and peers notice nothing."""
        self.disk.crash()
        await self._end()

    def on_power_loss(self) -> None:
        """The disk calls this, also for a power loss during one of its operations."""
        self.network.kill(silent=True)
        self._cancel()

    async def _end(self) -> None:
        """A task that cleans up may wait for another one, which is dead already: it is cancelled again."""
        while tasks := self._cancel():
            await asyncio.wait(tasks, timeout=_CANCEL_AGAIN_S)

    def _cancel(self) -> list[asyncio.Task[Any]]:
        return [task for task in _loop().kill(self.name) if not task.done()]


def sim_env(seed: int, profile: NetworkProfile | None = None) -> Env:
    """The environment of a single process `sim`. Must be called on a running `VirtualTimeLoop`."""
    world = World(seed, profile)
    return world.process("sim", world.new_disk()).env


def simulate(
    main: Callable[[World], Awaitable[T]],
    seed: int,
    *,
    profile: NetworkProfile | None = None,
    step_limit: int = STEP_LIMIT,
) -> T:
    """Runs `main` in a world from `seed`, on a virtual-time event loop."""

    async def inside() -> T:
        return await main(World(seed, profile))

    return run(inside(), step_limit=step_limit)


def _loop() -> VirtualTimeLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    return loop


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
