"""`python -m bench [--quick] [--rounds N] [--only NAME]...`: runs the scenarios and writes the results.

The results are written after each scenario: a run that is ended keeps what it has measured.
"""

import argparse
import contextlib
import datetime
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import mean

from tests.interop.kafka_jars import ensure_jars, why_no_jars

from bench.nodes import OTTLA
from bench.plot import draw
from bench.report import as_text, setting, write
from bench.runner import Series, run_scenarios
from bench.scenario import Scenario, Sizes
from bench.scenarios import (
    archive,
    archive_backlog,
    cluster,
    compaction,
    first_record,
    footprint,
    groups,
    growth,
    latency,
    loop_turns,
    metrics,
    one_record,
    pipeline,
    pipeline_kills,
    spark,
    throughput,
    transactions,
    workers,
)
from bench.sides import Side

RESULTS = Path(__file__).parent / "results"
PARTS: dict[str, tuple[Scenario, ...]] = {
    "throughput": throughput.SCENARIOS,
    "one-record": one_record.SCENARIOS,
    "latency": latency.SCENARIOS,
    "footprint": footprint.SCENARIOS,
    "testing": first_record.SCENARIOS,
    "metrics": metrics.SCENARIOS,
    "compaction": compaction.SCENARIOS,
    "groups": groups.SCENARIOS,
    "transactions": transactions.SCENARIOS,
    "growth": growth.SCENARIOS,
    "turns": loop_turns.SCENARIOS,
    "workers": workers.SCENARIOS,
    "spark": spark.SCENARIOS,
    "pipeline": pipeline.SCENARIOS,
    "pipeline-kills": pipeline_kills.SCENARIOS,
    "archive": (*archive.SCENARIOS, *archive_backlog.SCENARIOS),
    "cluster": cluster.SCENARIOS,
}
ALL = tuple(scenario for part in PARTS.values() for scenario in part)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="small sizes: for a first look, not for numbers to quote"
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each scenario (default: 3)")
    names = [*PARTS, *(scenario.name for scenario in ALL if scenario.name not in PARTS)]
    parser.add_argument(
        "--only", action="append", choices=names, help="run this part or this scenario; may be repeated"
    )
    parser.add_argument(
        "--scratch", type=Path, help="the folder for all data, up to 20 GB (default: the system's, /tmp)"
    )
    parser.add_argument(
        "--catch-up-mb",
        type=int,
        default=5_000,
        help="cluster-catch-up: how much is produced while a node is down (default: 5000; quick: a tenth)",
    )
    return parser.parse_args()


def scenarios_of(only: list[str] | None) -> list[Scenario]:
    if only is None:
        return list(ALL)
    wanted = {scenario.name for name in only for scenario in PARTS.get(name, ())} | set(only)
    return [scenario for scenario in ALL if scenario.name in wanted]


def results_name(only: list[str] | None, quick: bool) -> str:
    """Part of a run gets another name, so that it does not replace the results of a whole run."""
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    return "-".join([day, *(only or ()), *(["quick"] if quick else ())]).replace(" ", "-")


def main() -> int:
    options = arguments()
    if not OTTLA.exists():
        print(f"{OTTLA} does not exist: `make bench` installs Ottla without the test tools", file=sys.stderr)
        return 2
    if ensure_jars() is None:
        print(f"Apache Kafka cannot run here: {why_no_jars()}", file=sys.stderr)
        return 2
    # pip compiles what it installs. Without bytecode, a broker would compile its modules at every start.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # A run that is ended must end its brokers, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    target = RESULTS / results_name(options.only, options.quick)
    found: list[Series] = []
    cores: dict[str, float] = {}
    for series in measure(scenarios_of(options.only), options, cores):
        found += series
        write(target, found, setting(options.rounds, options.quick), cores)
    print(f"\n{as_text(found)}\n")
    drawn = draw(target, found)
    print(f"written: {target}.md, .json{' and .png' if drawn else ' (no plot: matplotlib is not installed)'}")
    return 1 if any(series.median("ottla") is None for series in found) else 0


def measure(
    scenarios: list[Scenario], options: argparse.Namespace, cores: dict[str, float]
) -> Iterator[list[Series]]:
    """The single nodes, which stay warm for several scenarios, have ended when those of the clusters begin."""
    sizes = Sizes(options.quick, options.catch_up_mb)
    for chosen in (
        [scenario for scenario in scenarios if scenario not in cluster.SCENARIOS],
        [scenario for scenario in scenarios if scenario in cluster.SCENARIOS],
    ):
        with (
            tempfile.TemporaryDirectory(prefix="ottla-bench-", dir=options.scratch) as scratch,
            contextlib.ExitStack() as stack,
        ):
            sides = [Side(name, Path(scratch), stack) for name in ("ottla", "kafka")]
            for series in run_scenarios(chosen, sides, sizes, options.rounds, partial(print, flush=True)):
                cores |= {side.name: mean(side.client_cores) for side in sides if side.client_cores}
                yield series


if __name__ == "__main__":
    sys.exit(main())
