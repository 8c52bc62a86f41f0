"""The whole pipeline end to end, with Ottla and with Apache Kafka as its cluster, and how it grows with partitions.

Orders in a spool folder go into a raw topic, from there transformed into another, and the raw topic into an archive of
Parquet, each step exactly once: `ottla pipeline run --once`, from the start of the command to its end.
"""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from confluent_kafka.admin import AdminClient
from tests.interop.brokers import RunningBroker

from bench.pipeline_client import LINE_BYTES, Topics, check, run_once, write_pipeline
from bench.scenario import Metric, Scenario, Sizes
from bench.sides import ADMIN_TIMEOUT_S, Side
from ottla.pipeline.spark.sink.marker_topic import marker_topic_name

PARTITIONS = 4
WRITING_STAGES = ("files", "orders")


def with_partitions(partitions: int) -> Callable[[Side, Sizes], dict[str, float]]:
    def run(side: Side, sizes: Sizes) -> dict[str, float]:
        records = sizes.of(500_000, 20_000)
        broker = side.running()
        with (
            pipeline_topics(side, broker, partitions) as topics,
            tempfile.TemporaryDirectory(dir=side.scratch) as scratch,
        ):
            # The pipeline has the name of its topic: with a name that was used before, it would find its batches done.
            folder = Path(scratch) / "pipeline"
            write_pipeline(folder, topics.raw, broker.bootstrap, topics, records)
            ready_s, all_s = run_once(folder)
            check(folder, broker.bootstrap, topics, records)
        return {"records": records / all_s, "once ready": records / (all_s - ready_s), "ready": ready_s}

    return run


@contextlib.contextmanager
def pipeline_topics(side: Side, broker: RunningBroker, partitions: int) -> Iterator[Topics]:
    """The topics of one run, deleted after it with those in which its sinks keep their markers."""
    with (
        side.topic(broker, partitions) as raw,
        side.topic(broker, partitions) as transformed,
        side.topic(broker) as dead_letters,
    ):
        yield Topics(raw, transformed, dead_letters)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        markers = [marker_topic_name(f"{raw}.{stage}") for stage in WRITING_STAGES]
        for deleted in admin.delete_topics(markers).values():
            deleted.result(ADMIN_TIMEOUT_S)


METRICS = (
    Metric("records", "1/s"),
    Metric("once ready", "1/s"),
    Metric("ready", "s", higher_is_better=False),
)

SCENARIOS = (
    Scenario(
        "pipeline",
        f"lines of {LINE_BYTES} bytes from files through raw ({PARTITIONS} partitions) into transformed and archive, "
        "exactly once, on Spark's local[2]; ready: until the first stage runs, without which once ready counts",
        METRICS,
        with_partitions(PARTITIONS),
        rounds_max=3,
    ),
    *(
        Scenario(
            f"pipeline-partitions-{n}",
            f"the whole pipeline, raw and transformed with {n} partition{'s' if n > 1 else ''} each",
            METRICS,
            with_partitions(n),
            rounds_max=1,
        )
        for n in (1, 2, 4, 8)
    ),
)
