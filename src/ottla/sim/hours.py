"""Many virtual hours of simulated clusters: `python -m ottla.sim --workload cluster --hours H`.

Each seed has up to `HOURS_PER_SEED` hours and runs in a process of its own, so that a run of any length needs no more
memory than one of its seeds for each process. A violation does not end the run: the other seeds are still worth it.
"""

import logging
import multiprocessing
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from ottla.sim.env import World, simulate
from ottla.sim.long_cluster_workload import run_long_cluster_workload
from ottla.sim.node import PROFILE
from ottla.sim.trace_log import TraceHandler

HOUR_S = 3600.0
# Offsets and transactional ids expire after 2 hours, and are checked up to 80 minutes later.
HOURS_PER_SEED = 8.0


@dataclass(frozen=True, slots=True)
class LongSeed:
    """A run of `hours` virtual hours. If it fails, the report has the last `lines` events."""

    seed: int
    hours: float
    lines: int

    @property
    def command(self) -> str:
        return f"python -m ottla.sim --workload cluster --hours {self.hours:g} --seed {self.seed}"


@dataclass(slots=True)
class LongResult:
    """`failure` is empty, or the report of a violation."""

    seed: int
    failure: str = ""
    virtual_s: float = 0.0
    processor_s: float = 0.0
    operations: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    digest: str = ""


@dataclass
class _Totals:
    hours: float
    seeds: int = 0
    violations: int = 0
    virtual_s: float = 0.0
    processor_s: float = 0.0
    operations: int = 0
    faults: Counter[str] = field(default_factory=Counter)

    def add(self, result: LongResult) -> None:
        self.seeds += 1
        self.violations += bool(result.failure)
        self.virtual_s += result.virtual_s
        self.processor_s += result.processor_s
        self.operations += result.operations
        self.faults += result.faults

    def __str__(self) -> str:
        hours = self.virtual_s / HOUR_S
        per_hour_s = self.processor_s / hours if hours else 0.0
        return (
            f"{hours:.1f} of {self.hours:g} virtual hours, {self.seeds} seeds, {self.faults.total()} faults, "
            f"{self.operations} operations checked, {self.violations} violations, "
            f"{per_hour_s:.1f} s of processor time per hour"
        )


def split_hours(hours: float, first_seed: int, lines: int) -> list[LongSeed]:
    whole, rest = divmod(hours, HOURS_PER_SEED)
    lengths = [HOURS_PER_SEED] * int(whole) + ([rest] if rest else [])
    return [LongSeed(seed, length, lines) for seed, length in enumerate(lengths, first_seed)]


def report(hours: float, results: Iterable[LongResult]) -> int:
    """Prints a line for each result, and a summary. Returns the exit code: 0 if there is no violation."""
    totals = _Totals(hours)
    for result in results:
        totals.add(result)
        if result.failure:
            print(result.failure)
        print(f"{totals}; seed {result.seed} is done, trace {result.digest}", flush=True)
    for kind, count in totals.faults.most_common():
        print(f"{count:8d} {kind}")
    print(f"{'violations found' if totals.violations else 'all checks passed'}: {totals}")
    return 1 if totals.violations else 0


def run_long_seed(task: LongSeed) -> LongResult:
    """In this process."""
    handler = TraceHandler()
    result = LongResult(task.seed)

    async def main(world: World) -> None:
        handler.world = world
        await run_long_cluster_workload(world, task.hours, lambda: None)

    before_s = time.process_time()
    with handler.attached(logging.getLogger("ottla")):
        try:
            simulate(main, task.seed, profile=PROFILE)
        except Exception:
            events = handler.world.trace.tail(task.lines) if handler.world is not None else []
            replay = f"seed {task.seed} failed: replay with `{task.command}`"
            result.failure = "\n".join([*events, traceback.format_exc(), replay])
    result.processor_s = time.process_time() - before_s
    if handler.world is not None:
        world = handler.world
        result.virtual_s, result.operations, result.faults = (
            world.trace.now_s,
            world.operations,
            world.faults,
        )
        result.digest = world.trace.digest()
    return result


def run_in_processes(
    run: Callable[[LongSeed], LongResult], seeds: Sequence[LongSeed], processes: int
) -> Iterator[LongResult]:
    """Up to `processes` seeds at a time, each in a new process. Yields the results as they come."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])  # so that only one process imports everything
    waiting = iter(seeds)
    running: dict[Connection, tuple[LongSeed, BaseProcess]] = {}
    while True:
        while len(running) < processes and (task := next(waiting, None)) is not None:
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=_send_result, args=(run, task, sender), daemon=True)
            process.start()
            sender.close()  # so that the end of the process is the end of the pipe
            running[receiver] = task, process
        if not running:
            return
        for ready in wait(list(running)):
            assert isinstance(ready, Connection)
            yield _receive(ready, *running.pop(ready))


def _send_result(run: Callable[[LongSeed], LongResult], task: LongSeed, sender: Connection) -> None:
    sender.send(run(task))


def _receive(receiver: Connection, task: LongSeed, process: BaseProcess) -> LongResult:
    """A process that was killed, for example because memory ran out, has failed too."""
    try:
        result = receiver.recv()
    except EOFError:
        process.join()
        result = LongResult(
            task.seed,
            f"the process of seed {task.seed} ended with exit code {process.exitcode}: replay with `{task.command}`",
        )
    receiver.close()
    process.join()
    assert isinstance(result, LongResult)
    return result
