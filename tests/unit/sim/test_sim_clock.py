"""The clocks of simulated hosts: skew and drift of the wall time, and the monotonic time that has neither."""

import asyncio

from tests.unit.sim.test_sim_network import in_world

from ottla.env.clock import SystemClock
from ottla.sim.env import World


def test_a_skewed_clock_affects_its_own_host_and_only_its_wall_time() -> None:
    async def main(world: World) -> None:
        one, other = world.clock_of("one"), world.clock_of("other")
        one.jump(-3_600_000)
        await asyncio.sleep(5)
        assert other.now_ms() - one.now_ms() == 3_600_000
        assert one.monotonic_ms() == other.monotonic_ms() == 5_000
        assert world.process("one", world.new_disk()).env.clock.now_ms() == one.now_ms()
        one.correct()
        assert one.now_ms() == other.now_ms() == world.clock.now_ms()

    in_world(main)


def test_a_drifting_clock_runs_faster_and_does_not_jump() -> None:
    async def main(world: World) -> None:
        clock = world.clock_of("one")
        await asyncio.sleep(10)
        before_ms = clock.now_ms()
        clock.drift(1.5)
        assert clock.now_ms() == before_ms
        await asyncio.sleep(10)
        assert clock.now_ms() == before_ms + 15_000
        clock.drift(0.5)
        await asyncio.sleep(10)
        assert clock.now_ms() == before_ms + 20_000
        assert clock.monotonic_ms() == 30_000

    in_world(main)


def test_files_have_the_times_of_their_hosts_clock() -> None:
    async def main(world: World) -> None:
        disk = world.new_disk()
        env = world.process("one", disk).env
        world.clock_of("one").jump(1_000_000)
        env.disk.open("/data/a", create=True).write_at(0, [b"x"])
        assert env.disk.modified_ms("/data/a") == world.clock.now_ms() + 1_000_000

    in_world(main)


def test_the_monotonic_time_of_the_system_does_not_go_back() -> None:
    clock = SystemClock()
    times = [clock.monotonic_ms() for _ in range(1000)]
    assert times == sorted(times)
