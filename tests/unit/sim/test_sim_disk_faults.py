"""Slow and torn operations of a simulated disk."""

import asyncio
import errno

import pytest
from tests.unit.sim.test_sim_network import in_world

from ottla.sim.disk import DiskSpeed
from ottla.sim.env import World


def test_the_operations_of_a_slow_disk_take_virtual_time_in_a_thread() -> None:
    async def main(world: World) -> None:
        disk = world.new_disk()
        env = world.process("one", disk).env
        disk.speed = DiskSpeed(operation_ms=10, sync_ms=500)
        file = disk.open("/data/a", create=True)

        def work() -> None:
            file.write_at(0, [b"x"])
            file.sync()

        before = asyncio.get_running_loop().time()
        await env.threads.run(work)
        assert 0.51 <= asyncio.get_running_loop().time() - before <= 1.02

    in_world(main)


def test_the_disk_of_another_node_is_not_slow() -> None:
    async def main(world: World) -> None:
        slow, fast = world.new_disk(), world.new_disk()
        world.process("one", slow)
        env = world.process("other", fast).env
        slow.speed = DiskSpeed(sync_ms=5_000)
        before = asyncio.get_running_loop().time()
        await env.threads.run(lambda: fast.sync_dir("/data"))
        assert asyncio.get_running_loop().time() - before <= 0.01

    in_world(main)


def test_a_power_loss_can_come_before_and_after_a_slow_sync() -> None:
    async def contents(world: World) -> bytes:
        disk = world.new_disk()
        process = world.process("one", disk)
        file = disk.open("/data/a", create=True)
        file.sync()
        disk.sync_dir("/data")
        disk.speed = DiskSpeed(sync_ms=1_000)
        file.write_at(0, [b"x"])
        running = asyncio.create_task(process.run(lambda env: env.threads.run(file.sync)))
        await asyncio.sleep(0.5)
        await process.lose_power()
        await asyncio.wait([running])
        assert running.exception() is not None
        return disk.reopen().read_bytes("/data/a")

    assert {in_world(contents, seed=seed) for seed in range(20)} == {b"", b"x"}


def test_a_torn_write_leaves_a_part_of_its_bytes() -> None:
    async def main(world: World) -> None:
        disk = world.new_disk()
        file = disk.open("/data/a", create=True)
        file.write_at(0, [b"0123456789"])
        disk.fail("/data", errno.ENOSPC, operations=frozenset({"write"}), times=1, is_torn=True)
        with pytest.raises(OSError, match="No space"):
            file.write_at(10, [bytes(1000)])
        assert 10 <= file.size() < 1010
        file.write_at(10, [b"abc"])
        assert file.read_at(0, 13) == b"0123456789abc"

    in_world(main)


def test_a_checker_reads_the_files_of_a_dead_process_and_counts_no_operation() -> None:
    async def main(world: World) -> None:
        disk = world.new_disk()
        disk.open("/data/a", create=True).write_at(0, [b"x"])
        disk.kill()
        before = dict(disk.stats.operations)
        assert disk.peek_names("/data") == ["a"]
        assert disk.peek("/data/a") == b"x"
        assert (disk.peek_names("/none"), disk.peek("/none")) == ([], b"")
        assert disk.stats.operations == before

    in_world(main)
