"""A simulation fails if the broker waits for the disk on its event loop."""

from collections.abc import Callable

import pytest

from ottla.env import Env
from ottla.sim.env import World, simulate
from ottla.sim.loop import SimulationError
from ottla.sim.loop_watch import READ_BYTES_MAX


def serve(work: Callable[[Env], object], *, in_thread: bool) -> None:
    async def main(world: World) -> None:
        disk = world.new_disk()
        disk.open("/data/file", create=True).write_at(0, [bytes(READ_BYTES_MAX + 1)])
        process = world.process("broker", disk)

        async def run(env: Env) -> None:
            work(env)  # before the broker serves
            with disk.watched_loop():
                if in_thread:
                    await env.threads.run(lambda: work(env))
                else:
                    work(env)

        await process.run(run)

    simulate(main, 1)


def read(env: Env, size: int) -> None:
    file = env.disk.open("/data/file")
    for position in range(0, size, 1024):
        file.read_at(position, min(1024, size - position))


BLOCKING: list[Callable[[Env], object]] = [
    lambda env: env.disk.open("/data/file").sync(),
    lambda env: env.disk.sync_dir("/data"),
    lambda env: env.disk.write_atomically("/data/new", b"text"),
    lambda env: read(env, READ_BYTES_MAX + 1),
]


@pytest.mark.parametrize("work", BLOCKING)
def test_a_sync_or_a_large_read_on_the_event_loop_fails_the_simulation(work: Callable[[Env], object]) -> None:
    with pytest.raises(SimulationError, match="event loop"):
        serve(work, in_thread=False)


@pytest.mark.parametrize("work", BLOCKING)
def test_threads_may_wait_for_the_disk(work: Callable[[Env], object]) -> None:
    serve(work, in_thread=True)


def test_the_event_loop_may_read_a_little() -> None:
    serve(lambda env: read(env, READ_BYTES_MAX), in_thread=False)
