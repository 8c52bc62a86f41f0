"""Commands at all nodes of a quorum under all faults, checked by name (see `quorum_checkers`)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ottla.broker.quorum.settings import QuorumSettings
from ottla.core.controller.image import MetadataImage
from ottla.sim.env import World
from ottla.sim.quorum_checkers import PROGRESS, STATE_MACHINE_SAFETY, QuorumViolation
from ottla.sim.quorum_clients import CommandClient, change_voters, register_broker
from ottla.sim.quorum_cluster import QuorumCluster
from ottla.sim.quorum_nemesis import QuorumNemesis
from ottla.sim.workload import run_within_time_limit

_VOTERS = (3, 3, 3, 3, 5, 5, 4, 2, 1)
_OBSERVERS_MAX = 2
_FIRST_VOTERS_MAX = 3
_CHANGING_NODES = 5
_CLIENTS = 2
_STRANDS_MAX = 3
_FAULTS_S = (20.0, 45.0)
# An election takes some seconds, and the longest log of a seed is fetched in less than one.
_PROGRESS_S = 30.0
# Small, so that snapshots replace the log and followers fetch them.
_SETTINGS = QuorumSettings(snapshot_bytes=3_000, retention_bytes=6_000, segment_bytes=4_000)


async def run_quorum_workload(world: World) -> None:
    """Raises QuorumViolation if the quorum breaks a guarantee."""
    await run_within_time_limit(_run(world))


async def run_voters_workload(world: World) -> None:
    """Likewise, with voters that are added and removed (KIP-853)."""
    await run_within_time_limit(_run(world, has_changing_voters=True))


async def run_upgrade_workload(world: World) -> None:
    """Likewise, with static voters until kraft.version is raised under the faults."""
    await run_within_time_limit(_run(world, has_changing_voters=True, begins_static=True))


async def _run(world: World, *, has_changing_voters: bool = False, begins_static: bool = False) -> None:
    random = world.derive()
    voters = tuple(range(1, random.choice(_VOTERS) + 1))
    observers = tuple(range(len(voters) + 1, len(voters) + 1 + random.randrange(_OBSERVERS_MAX + 1)))
    if has_changing_voters:
        voters = voters[:_FIRST_VOTERS_MAX]
        observers = tuple(range(len(voters) + 1, _CHANGING_NODES + 1))
    world.trace.note(f"seed {world.seed}, voters {voters}, observers {observers}")
    cluster = QuorumCluster(
        world,
        voters,
        observers,
        settings=_SETTINGS,
        has_changing_voters=has_changing_voters,
        begins_static=begins_static,
    )
    await cluster.start()
    async with _progress_within_bound(cluster, "after the start"):
        await register_broker(cluster, random)
    clients = [CommandClient(cluster, f"c{number}", world.derive()) for number in range(_CLIENTS)]
    nemesis = QuorumNemesis(cluster, world.derive())
    until_s = asyncio.get_running_loop().time() + random.uniform(*_FAULTS_S)
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(client.run(until_s)) for client in clients]
        if has_changing_voters:
            group.create_task(change_voters(cluster, world.derive(), until_s))
        await nemesis.run(random.randint(1, _STRANDS_MAX), until_s)
        cluster.checkers.raise_violation()
        await _check_progress(cluster, clients, running)
    image = await _agree(cluster)
    world.operations += sum(client.check(image) + client.acknowledged for client in clients)
    world.operations += cluster.checkers.observations
    cluster.checkers.raise_violation()


async def _check_progress(
    cluster: QuorumCluster, clients: list[CommandClient], running: "list[asyncio.Task[None]]"
) -> None:
    """All faults are repaired: there must be a leader that commits commands within a bounded time."""
    last = CommandClient(cluster, "last", cluster.world.derive())
    clients.append(last)
    async with _progress_within_bound(cluster, "after the last fault"):
        while not last.acknowledged:
            await last.step()
        await asyncio.wait(running)


@asynccontextmanager
async def _progress_within_bound(cluster: QuorumCluster, when: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(_PROGRESS_S):
            yield
    except TimeoutError:
        cluster.checkers.raise_violation()
        leaders = [node.node_id for node in cluster.active_nodes()]
        raise QuorumViolation(
            PROGRESS, f"no command was committed within {_PROGRESS_S} s {when}; active controllers: {leaders}"
        ) from None


async def _agree(cluster: QuorumCluster) -> MetadataImage:
    """The image of all nodes, once they have applied the same records."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + _PROGRESS_S
    while True:
        cluster.checkers.raise_violation()
        images = [node.quorum.image for node in cluster.nodes.values() if node.quorum is not None]
        offsets = [image.offset for image in images]
        if len(images) == len(cluster.nodes) and len(set(offsets)) == 1:
            break
        if loop.time() > until_s:
            raise QuorumViolation(PROGRESS, f"{_PROGRESS_S} s after the last command, nodes are at {offsets}")
        await asyncio.sleep(0.1)
    if any(image != images[0] for image in images):
        raise QuorumViolation(STATE_MACHINE_SAFETY, f"nodes have different metadata at offset {offsets[0]}")
    return images[0]
