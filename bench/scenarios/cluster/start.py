"""Three nodes from cold, and their memory before they have any partition."""

import time

from bench.scenario import Metric, Scenario, Sizes
from bench.sides import Side

SETTLE_S = 5.0


def ready(side: Side, sizes: Sizes) -> dict[str, float]:
    with side.cluster() as cluster:
        time.sleep(SETTLE_S)
        return {"start": cluster.start_seconds, "memory, idle": cluster.memory_mb()}


SCENARIOS = (
    Scenario(
        "cluster-ready",
        "three formatted nodes started at once, until each has all three in its metadata; then the largest node",
        (
            Metric("start", "s", higher_is_better=False, target=10.0),
            Metric("memory, idle", "MB", higher_is_better=False, limit=80.0),
        ),
        ready,
    ),
)
