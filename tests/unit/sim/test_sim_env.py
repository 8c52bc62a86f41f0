import asyncio
import os
import subprocess
import sys
from typing import NoReturn

import pytest

from ottla.env import Env
from ottla.env.network import Stream
from ottla.sim.env import ProcessKilled, World, sim_env, simulate
from ottla.sim.loop import run

# It iterates over sets of strings on purpose: their order must not affect the trace.
SCENARIO = """
import asyncio
from ottla.sim.disk import DiskSpeed
from ottla.sim.env import World, simulate

class Echo:
    def __init__(self, stream):
        self.stream, self.data = stream, bytearray(100)
    def buffer(self):
        return memoryview(self.data)
    def received(self, count):
        self.stream.send([bytes(self.data[:count])])
    def drained(self): ...
    def closed(self, error): ...

class Quiet(Echo):
    def received(self, count): ...

async def main(world):
    disk = world.new_disk()
    process = world.process("server", disk)
    async def serve(env):
        await env.network.listen("server", 1, Echo)
        async def write(name):
            file = env.disk.open(f"/data/{name}", create=True)
            file.write_at(0, [env.random.randbytes(9000)])
            await env.threads.run(file.sync)
        await asyncio.gather(*(write(name) for name in "abcdef"))
        tasks = {asyncio.create_task(write(name)) for name in "ghij"}
        await asyncio.wait(tasks)
    await process.run(serve)
    async def serve_again(env):
        file = env.disk.open("/data/a")
        await env.threads.run(file.sync)
        file.write_at(0, [env.random.randbytes(9000)])
    stream = await world.network.host("client").connect("server", 1, Quiet)
    stream.send([bytes(5000)])
    await asyncio.sleep(1)
    for host in sorted({"client", "server", "other"}):
        world.network.cut(host, "server")
        world.network.slow(host, "server", 10)
        world.network.lose(host, "client", 0.5)
    process.pause()
    stream.send([bytes(50_000)])
    await asyncio.sleep(5)
    world.network.heal("client", "server")
    process.resume()
    disk.speed = DiskSpeed(1, 20)
    disk.fail("/data/a", operations=frozenset({"write"}), times=1, is_torn=True)
    try:
        await process.run(serve_again)
    except OSError:
        pass
    await asyncio.sleep(5)
    await process.lose_power()
    return world.trace.digest()

print(simulate(main, SEED))
"""


def digest(seed: int, hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    script = SCENARIO.replace("SEED", str(seed))
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.strip()


def test_a_seed_gives_the_same_trace_under_two_hash_seeds() -> None:
    first = digest(1, "1")
    assert first == digest(1, "2")
    assert first != digest(2, "1")


def test_a_kill_ends_the_tasks_and_timers_of_a_process() -> None:
    ticks: list[float] = []

    async def serve(env: Env) -> None:
        loop = asyncio.get_running_loop()

        def tick() -> None:
            ticks.append(loop.time())
            loop.call_later(1, tick)

        tick()
        asyncio.create_task(asyncio.sleep(1e9))  # noqa: RUF006
        await asyncio.sleep(1e9)

    async def main(world: World) -> None:
        process = world.process("server", world.new_disk())
        running = asyncio.create_task(process.run(serve))
        await asyncio.sleep(10.5)
        await process.kill()
        with pytest.raises(ProcessKilled, match="server"):
            await running
        await asyncio.sleep(10)

    simulate(main, 1)
    assert len(ticks) == 11


def test_the_disk_and_the_network_of_a_killed_process_raise_errors() -> None:
    errors: list[OSError] = []

    async def serve(env: Env) -> None:
        try:
            await asyncio.sleep(1e9)
        finally:
            await asyncio.sleep(1)
            try:
                env.disk.open("/data/clean-shutdown", create=True)
            except OSError as error:
                errors.append(error)
            try:
                await env.network.connect("elsewhere", 1, _never)
            except OSError as error:
                errors.append(error)

    async def main(world: World) -> None:
        disk = world.new_disk()
        process = world.process("server", disk)
        running = asyncio.create_task(process.run(serve))
        await asyncio.sleep(1)
        await process.kill()
        await asyncio.gather(running, return_exceptions=True)
        assert disk.reopen().list_dir("/data") == []

    simulate(main, 1)
    assert len(errors) == 2


def test_work_in_a_thread_returns_its_result_or_raises_its_exception() -> None:
    async def main() -> None:
        env = sim_env(3)
        before = env.clock.now_ms(), asyncio.get_running_loop().time()
        assert await env.threads.run(lambda: 42) == 42
        assert asyncio.get_running_loop().time() > before[1]
        with pytest.raises(ZeroDivisionError):
            await env.threads.run(lambda: 1 // 0)
        await asyncio.sleep(10)
        assert env.clock.now_ms() >= before[0] + 10_000

    run(main())


def _never(stream: Stream) -> NoReturn:
    raise AssertionError("a dead process got a connection")
