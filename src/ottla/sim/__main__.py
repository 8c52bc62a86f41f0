"""`python -m ottla.sim --seed N --workload NAME` runs a simulation, and prints its last events if it fails."""

import argparse
import logging
import sys
import traceback

from ottla.sim.env import World, simulate
from ottla.sim.group_workload import run_group_workload
from ottla.sim.node import PROFILE
from ottla.sim.produce_workload import run_produce_workload
from ottla.sim.topic_workload import run_topic_workload
from ottla.sim.transaction_workload import run_transaction_workload

WORKLOADS = {
    "produce": run_produce_workload,
    "groups": run_group_workload,
    "transactions": run_transaction_workload,
    "topics": run_topic_workload,
}


class _TraceHandler(logging.Handler):
    """Adds the broker's log messages to the trace."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        self._world.trace.remark(f"{record.levelname} {record.name}: {record.getMessage()}")


def _replay(workload: str, seed: int, lines: int) -> int:
    """Returns the exit code: 0 if the broker breaks no guarantee."""
    worlds: list[World] = []

    async def main(world: World) -> None:
        worlds.append(world)
        logger = logging.getLogger("ottla")
        logger.addHandler(_TraceHandler(world))
        logger.setLevel(logging.INFO)
        logger.propagate = False
        await WORKLOADS[workload](world)

    try:
        simulate(main, seed, profile=PROFILE)
    except Exception:
        for line in worlds[0].trace.tail(lines):
            print(line)
        traceback.print_exc(file=sys.stdout)
        print(f"seed {seed} failed: _replay with `python -m ottla.sim --workload {workload} --seed {seed}`")
        return 1
    trace = worlds[0].trace
    print(f"seed {seed}: all checks passed, {trace.lines} events, trace {trace.digest()}")
    return 0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m ottla.sim", description="Runs a simulation from a seed.")
    parser.add_argument("--seed", type=int, required=True, metavar="N", help="the seed")
    parser.add_argument(
        "--workload", choices=WORKLOADS, default="produce", help="the workload to run (default: produce)"
    )
    parser.add_argument(
        "--lines",
        type=int,
        default=100,
        help="how many of the last events to print if the run fails (default: 100)",
    )
    options = parser.parse_args(arguments)
    return _replay(options.workload, options.seed, options.lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
