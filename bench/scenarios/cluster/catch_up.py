"""A node that was down while records were produced: how long until it is in all ISRs again."""

import time

from confluent_kafka.admin import NewTopic

from bench.scenario import Metric, Scenario, Sizes
from bench.sides import Side

PARTITIONS = 12
VALUE_BYTES = 1_000
CHUNK_MB = 1_000  # of one client: its queue must hold it


def run(side: Side, sizes: Sizes) -> dict[str, float]:
    megabytes = sizes.of(sizes.catch_up_mb, sizes.catch_up_mb // 10)
    with side.cluster() as cluster:
        cluster.create_topic(NewTopic("catch-up", PARTITIONS, 3, config={"min.insync.replicas": "2"}))
        controller = cluster.active_controller()
        down = next(node_id for node_id in cluster.nodes if node_id != controller)
        cluster.nodes[down].stop()
        size = {"value_bytes": VALUE_BYTES, "partitions": PARTITIONS}
        for filled in range(0, megabytes, CHUNK_MB):
            chunk = min(CHUNK_MB, megabytes - filled)
            records, end = chunk * 1_000, (filled + chunk) * 1_000
            side.client("produce", cluster, "catch-up", records=records, expected_end=end, **size)
        began = time.monotonic()
        cluster.start()
        cluster.wait_for_replicas(restarted=down)
        seconds = time.monotonic() - began
        return {"back in all ISRs": seconds, "catch-up": megabytes / seconds}


SCENARIOS = (
    Scenario(
        "cluster-catch-up",
        f"a node stops, 5 GB (quick: a tenth) go to {PARTITIONS} partitions of replication 3, and it is started again: "
        "until it is in all ISRs",
        (
            Metric("back in all ISRs", "s", higher_is_better=False),
            Metric("catch-up", "MB/s"),
        ),
        run,
    ),
)
