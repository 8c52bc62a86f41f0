"""A lone controller raises kraft.version, and stops at any moment of it (KIP-853)."""

import asyncio
import contextlib
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest
from tests.examples import scaled
from tests.unit.broker.quorum.test_handlers_of_voters import Controllers, wait_until

from ottla.broker.quorum.kraft_upgrade import upgrade_quorum
from ottla.broker.quorum.quorum import Quorum
from ottla.core.controller.commands import WriteNoOp
from ottla.env import Env
from ottla.model.errors import KafkaError
from ottla.sim.env import ProcessKilled, World, simulate

COMMANDS = 3
TURNS_MAX = 40  # of the event loop: some flushes end in them
OPERATIONS_OF_UPGRADE = 16  # of the disk, with those of the commands
OPERATIONS_OF_START = 60


class LoneController:
    def __init__(self, world: World) -> None:
        self.controllers = Controllers(world, is_static=True)
        self.random: Random = world.derive()

    async def start(self) -> Quorum:
        """Returns when it leads and has registered."""
        await self.controllers.start(1, controller_quorum_bootstrap_servers="node1:9093")
        quorum = self.controllers.quorum(1)
        await wait_until(lambda: quorum.is_active and 1 in quorum.image.controllers)
        return quorum

    async def upgrade_beside_commands(self, env: Env, quorum: Quorum) -> None:
        """The upgrade begins at any moment of a flush. It and the commands may fail: the node stops."""

        async def submit() -> None:
            for _ in range(COMMANDS):
                await quorum.submit(WriteNoOp())

        async def upgrade() -> None:
            for _ in range(self.random.randrange(TURNS_MAX)):
                await asyncio.sleep(0)
            await upgrade_quorum(quorum, env.clock.monotonic_ms(), validate_only=False)

        for error in await asyncio.gather(submit(), upgrade(), return_exceptions=True):
            assert error is None or isinstance(error, KafkaError | OSError), error

    async def lose_power_during(self, work: Coroutine[Any, Any, Any], operations: int) -> None:
        """After so many operations of the disk, or after the work."""
        disk = self.controllers.disks[1]
        disk.crash_after(operations)
        with contextlib.suppress(ProcessKilled, OSError, KafkaError, TimeoutError):
            async with asyncio.timeout(10):
                await work
        disk.crash()
        await self.controllers.processes.pop(1).kill()
        self.controllers.disks[1] = disk.reopen()

    async def check_it_leads(self) -> None:
        assert (await self.start()).voters == (1,)


@pytest.mark.parametrize("operations", range(OPERATIONS_OF_UPGRADE))
def test_a_lone_controller_leads_after_a_power_loss_in_the_upgrade(operations: int) -> None:
    async def check(world: World) -> None:
        node = LoneController(world)
        quorum = await node.start()
        process = node.controllers.processes[1]
        upgrade = process.run(lambda env: node.upgrade_beside_commands(env, quorum))
        await node.lose_power_during(upgrade, operations)
        await node.check_it_leads()

    for seed in range(scaled(10)):
        simulate(check, seed)


@pytest.mark.parametrize("operations", range(OPERATIONS_OF_START))
def test_a_lone_controller_leads_after_a_power_loss_in_the_start_after_an_upgrade_that_was_killed(
    operations: int,
) -> None:
    """The voters are in the log then, but not on disk."""

    async def check(world: World) -> None:
        node = LoneController(world)
        quorum = await node.start()
        node.controllers.disks[1].fail(quorum._log.directory, operations=frozenset({"sync"}))
        with pytest.raises(KafkaError):
            await upgrade_quorum(quorum, 0, validate_only=False)
        assert quorum._log.log_end_offset > (quorum.driver.node.history.latest_offset or 0)
        await node.controllers.kill(1)
        await node.lose_power_during(node.start(), operations)
        await node.check_it_leads()

    for seed in range(scaled(10)):
        simulate(check, seed)
