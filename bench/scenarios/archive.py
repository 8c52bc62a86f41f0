"""The archive: how fast it writes, and what a batch costs when many files are archived already."""

import subprocess
import sys
import tempfile
from collections.abc import Callable

from bench.scenario import Metric, Scenario, Sizes
from bench.scenarios.spark import reading
from bench.sides import CLIENT_TIMEOUT_S, ROOT, Side

TASKS = (1, 2, 4)
FILES = (100, 10_000, 100_000)
THROUGHPUT_TARGET = 0.7


def committing(files: int) -> Callable[[Side, Sizes], dict[str, float]]:
    def run(side: Side, sizes: Sizes) -> dict[str, float]:
        with tempfile.TemporaryDirectory(dir=side.scratch) as folder:
            count = sizes.of(files, max(1, files // 100))
            done = subprocess.run(
                [sys.executable, "-m", "bench.archive_client", folder, str(count)],
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=CLIENT_TIMEOUT_S,
                check=False,
            )
        if done.returncode != 0:
            raise RuntimeError(f"the archive could not be filled: {done.stderr.strip()[-2_000:]}")
        mean_ms, longest_ms, memory_mb = map(float, done.stdout.split())
        return {"batch": mean_ms, "longest batch": longest_ms, "memory": memory_mb}

    return run


SCENARIOS = (
    *(
        Scenario(
            f"archive-{tasks}",
            "a topic of 100-byte records into the archive, over a plain stream of the same source into Parquet "
            f"without any bookkeeping; Spark's local[{tasks}]",
            (Metric("rows", "rows/s", target=THROUGHPUT_TARGET),),
            reading("archive", master=f"local[{tasks}]"),
            rounds_max=3,
        )
        for tasks in TASKS
    ),
    *(
        Scenario(
            f"archive-commit-{files}",
            f"what a batch of 32 partitions costs in the archive, without its data, after {files:,} files (quick: a "
            "hundredth): the mean and the longest of 200, and the most memory of the process, which also reads the "
            "list of all files at its start and hourly",
            (
                Metric("batch", "ms", higher_is_better=False),
                Metric("longest batch", "ms", higher_is_better=False),
                Metric("memory", "MB", higher_is_better=False),
            ),
            committing(files),
            rounds_max=1,
            sides=("ottla",),
        )
        for files in FILES
    ),
)
