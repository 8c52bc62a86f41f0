"""A cluster over virtual hours: see `ottla.sim.long_cluster_workload`. `--hours` runs more of them."""

from ottla.sim.env import World, simulate
from ottla.sim.long_cluster_workload import run_long_cluster_workload
from ottla.sim.node import PROFILE

_HOURS = 0.5


def test_a_calm_stretch_and_a_round_of_load_break_no_guarantee() -> None:
    rounds_s: list[float] = []

    async def main(world: World) -> None:
        await run_long_cluster_workload(world, _HOURS, lambda: rounds_s.append(world.trace.now_s))
        assert world.operations > 1000
        assert world.faults.total() > 0

    simulate(main, 0, profile=PROFILE)
    assert rounds_s[-1] >= _HOURS * 3600
