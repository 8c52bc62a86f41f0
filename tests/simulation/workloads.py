"""Runs a workload of the simulation from a seed; a failure shows how to replay it, and its last events."""

from ottla.sim.__main__ import WORKLOADS
from ottla.sim.env import World, simulate
from ottla.sim.node import PROFILE


def run_workload(name: str, seed: int) -> None:
    worlds: list[World] = []

    async def main(world: World) -> None:
        worlds.append(world)
        await WORKLOADS[name](world)

    try:
        simulate(main, seed, profile=PROFILE)
    except Exception as error:
        replay = f"replay with `python -m ottla.sim --workload {name} --seed {seed}`"
        error.add_note("\n".join([replay, *worlds[0].trace.tail(30)]))
        raise
