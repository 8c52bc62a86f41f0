"""`python -m ottla.sim --workload NAME --seed N` runs a simulation, and prints its last events if it fails.

With `--seeds COUNT`, it runs that many seeds from N on, prints its progress, and stops at the first failure. With
`--hours H`, it runs clusters over long virtual times, see `ottla.sim.hours`.
"""

import argparse
import logging
import os
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field

from ottla.sim.cluster_workload import run_cluster_workload
from ottla.sim.env import World, simulate
from ottla.sim.group_workload import run_group_workload
from ottla.sim.hours import HOURS_PER_SEED, report, run_in_processes, run_long_seed, split_hours
from ottla.sim.node import PROFILE
from ottla.sim.produce_workload import run_produce_workload
from ottla.sim.quorum_workload import run_quorum_workload, run_upgrade_workload, run_voters_workload
from ottla.sim.topic_workload import run_topic_workload
from ottla.sim.trace_log import TraceHandler
from ottla.sim.transaction_workload import run_transaction_workload

WORKLOADS = {
    "produce": run_produce_workload,
    "groups": run_group_workload,
    "transactions": run_transaction_workload,
    "topics": run_topic_workload,
    "cluster": run_cluster_workload,
    "quorum": run_quorum_workload,
    "voters": run_voters_workload,
    "upgrade": run_upgrade_workload,
}
_PROGRESS_S = 5.0


@dataclass
class _Totals:
    seeds: int = 0
    virtual_s: float = 0.0
    operations: int = 0
    faults: Counter[str] = field(default_factory=Counter)

    def add(self, world: World) -> None:
        self.seeds += 1
        self.virtual_s += world.trace.now_s
        self.operations += world.operations
        self.faults += world.faults

    def __str__(self) -> str:
        hours = self.virtual_s / 3600
        text = f"{self.seeds} seeds, {hours:.2f} virtual hours, {self.faults.total()} faults"
        return f"{text}, {self.operations} operations checked" if self.operations else text


def _run_seed(workload: str, seed: int, lines: int, handler: TraceHandler) -> World | None:
    """None if the broker breaks a guarantee: the last events and the error are printed then."""

    async def main(world: World) -> None:
        handler.world = world
        await WORKLOADS[workload](world)

    try:
        simulate(main, seed, profile=PROFILE)
    except Exception:
        for line in handler.world.trace.tail(lines) if handler.world is not None else ():
            print(line)
        traceback.print_exc(file=sys.stdout)
        print(f"seed {seed} failed: replay with `python -m ottla.sim --workload {workload} --seed {seed}`")
        return None
    return handler.world


def _run_seeds(workload: str, seeds: range, lines: int, handler: TraceHandler) -> int:
    """Returns the exit code: 0 if the broker breaks no guarantee."""
    totals, printed_s = _Totals(), time.monotonic()
    for seed in seeds:
        world = _run_seed(workload, seed, lines, handler)
        if world is None:
            return 1
        totals.add(world)
        if len(seeds) == 1:
            trace = world.trace
            print(f"seed {seed}: all checks passed, {trace.lines} events, trace {trace.digest()}")
        elif time.monotonic() - printed_s >= _PROGRESS_S:
            printed_s = time.monotonic()
            print(f"{totals}; next seed {seed + 1}", flush=True)
    if len(seeds) > 1:
        print(f"all checks passed: {totals}")
        for kind, count in totals.faults.most_common():
            print(f"{count:8d} {kind}")
    return 0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m ottla.sim", description="Runs a simulation from a seed.")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the first seed (default: 0)")
    parser.add_argument("--seeds", type=int, default=1, metavar="COUNT", help="how many seeds (default: 1)")
    parser.add_argument(
        "--workload", choices=WORKLOADS, default="produce", help="the workload to run (default: produce)"
    )
    parser.add_argument(
        "--lines",
        type=int,
        default=100,
        help="how many of the last events to print if the run fails (default: 100)",
    )
    parser.add_argument(
        "--hours",
        type=float,
        metavar="H",
        help=f"run clusters for H virtual hours, {HOURS_PER_SEED:g} for each seed: calm stretches, and rounds of load "
        "under faults (only for the cluster workload; --seeds is ignored)",
    )
    parser.add_argument(
        "--processes",
        type=int,
        default=os.cpu_count() or 1,
        help="how many seeds run at the same time (only with --hours; default: the number of processors)",
    )
    options = parser.parse_args(arguments)
    if options.hours is not None and options.workload != "cluster":
        parser.error("--hours needs --workload cluster")
    if options.hours is not None:
        long_seeds = split_hours(options.hours, options.seed, options.lines)
        if len(long_seeds) == 1:
            return report(options.hours, map(run_long_seed, long_seeds))
        return report(options.hours, run_in_processes(run_long_seed, long_seeds, options.processes))
    seeds = range(options.seed, options.seed + options.seeds)
    handler = TraceHandler()
    with handler.attached(logging.getLogger("ottla")):
        return _run_seeds(options.workload, seeds, options.lines, handler)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
