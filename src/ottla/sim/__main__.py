"""`python -m ottla.sim --seed N --workload NAME`: runs one seed of a simulation; on failure, its last events."""

import argparse
import logging
import sys
import traceback

from ottla.sim.env import World, simulate
from ottla.sim.group_workload import groups
from ottla.sim.node import PROFILE
from ottla.sim.single_broker import single_broker
from ottla.sim.topic_workload import topics
from ottla.sim.transaction_workload import transactions

WORKLOADS = {"produce": single_broker, "groups": groups, "transactions": transactions, "topics": topics}


class _ToTrace(logging.Handler):
    """The broker's own log lines stand between the events of the trace."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        self._world.trace.remark(f"{record.levelname} {record.name}: {record.getMessage()}")


def replay(workload: str, seed: int, lines: int) -> int:
    """The exit code: 0 where the run keeps every promise."""
    worlds: list[World] = []

    async def main(world: World) -> None:
        worlds.append(world)
        logger = logging.getLogger("ottla")
        logger.addHandler(_ToTrace(world))
        logger.setLevel(logging.INFO)
        logger.propagate = False
        await WORKLOADS[workload](world)

    try:
        simulate(main, seed, profile=PROFILE)
    except Exception:
        for line in worlds[0].trace.tail(lines):
            print(line)
        traceback.print_exc(file=sys.stdout)
        print(f"seed {seed} failed: replay with `python -m ottla.sim --workload {workload} --seed {seed}`")
        return 1
    trace = worlds[0].trace
    print(f"seed {seed}: every promise kept, {trace.lines} events, trace {trace.digest()}")
    return 0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m ottla.sim", description="Replay a simulation.")
    parser.add_argument("--seed", type=int, required=True, metavar="N", help="the seed to run")
    parser.add_argument(
        "--workload", choices=WORKLOADS, default="produce", help="what runs (default: produce)"
    )
    parser.add_argument(
        "--lines", type=int, default=100, help="events to show of a run that fails (default: 100)"
    )
    options = parser.parse_args(arguments)
    return replay(options.workload, options.seed, options.lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
