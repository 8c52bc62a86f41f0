"""`python -m bench [--quick] [--rounds N] [--only NAME]...`: runs the scenarios and writes the results."""

import argparse
import contextlib
import datetime
import sys
import tempfile
from pathlib import Path
from statistics import mean

from tests.interop.kafka_jars import ensure_jars, why_no_jars

from bench.plot import draw
from bench.report import as_text, setting, write
from bench.runner import run_scenarios
from bench.scenario import Scenario, Sizes
from bench.scenarios import (
    compaction,
    footprint,
    groups,
    growth,
    latency,
    one_record,
    pipeline,
    spark,
    throughput,
    transactions,
)
from bench.sides import OTTLA, Side

RESULTS = Path(__file__).parent / "results"
ALL: tuple[Scenario, ...] = (
    *throughput.SCENARIOS,
    *one_record.SCENARIOS,
    *latency.SCENARIOS,
    *footprint.SCENARIOS,
    *compaction.SCENARIOS,
    *groups.SCENARIOS,
    *transactions.SCENARIOS,
    *growth.SCENARIOS,
    *spark.SCENARIOS,
    *pipeline.SCENARIOS,
)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes: a look, not numbers to quote")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each scenario (default: 3)")
    names = [scenario.name for scenario in ALL]
    parser.add_argument("--only", action="append", choices=names, help="run this scenario; may be repeated")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    if not OTTLA.exists():
        print(f"{OTTLA} is not there: `make bench` installs Ottla without the test tools", file=sys.stderr)
        return 2
    if ensure_jars() is None:
        print(f"Apache Kafka cannot run here: {why_no_jars()}", file=sys.stderr)
        return 2
    chosen = [scenario for scenario in ALL if options.only is None or scenario.name in options.only]
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as scratch, contextlib.ExitStack() as stack:
        sides = [Side(name, Path(scratch), stack) for name in ("ottla", "kafka")]
        found = run_scenarios(chosen, sides, Sizes(options.quick), options.rounds, print)
        cores = {side.name: mean(side.client_cores) for side in sides if side.client_cores}
    print(f"\n{as_text(found)}\n")
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    target = RESULTS / (f"{day}-quick" if options.quick else day)
    write(target, found, setting(options.rounds, options.quick), cores)
    drawn = draw(target, found)
    print(f"written: {target}.md, .json{' and .png' if drawn else ' (no plot: matplotlib is not installed)'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
