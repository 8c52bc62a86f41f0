"""A pipeline on a Spark cluster with two workers, while its driver, its executors and its broker are killed."""

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from tests.interop.brokers import RunningBroker
from tests.pipeline.pipeline_run import KINDS, PipelineRun
from tests.pipeline.spark_cluster import SparkCluster

from bench.client import end_offsets
from bench.numbered_records import VALUE_BYTES
from bench.scenario import Metric, Scenario, Sizes
from bench.sides import ADMIN_TIMEOUT_S, ROOT, Side

RAW, TRANSFORMED = "raw", "transformed"
PARTITIONS = 4
PATIENCE_S = 1_800
POLL_S = 2.0
RUN_TIMEOUT_S = 7_200
ROUNDS_OF_KILLS = 3

PIPELINE = """\
name = "kills"

[cluster]
bootstrap = "{bootstrap}"

[spark]
master = "{master}"
checkpoints = "checkpoints"
interval = "1 second"
[spark.conf]
"spark.ui.enabled" = false
"spark.sql.shuffle.partitions" = 2
"spark.driver.memory" = "1g"
"spark.executor.memory" = "900m"
"spark.driver.host" = "127.0.0.1"
"spark.driver.bindAddress" = "127.0.0.1"
"spark.task.maxFailures" = 20
"spark.deploy.maxExecutorRetries" = -1

[transforms.values]
from = "{raw}"
to = "{transformed}"
sql = "values.sql"
max_records_per_batch = {batch}

[sinks.archive]
kind = "archive"
topics = ["{raw}"]
path = "archive"
every = "5 seconds"
max_offsets_per_batch = {batch}
"""


def run(side: Side, sizes: Sizes) -> dict[str, float]:
    records = sizes.of(50_000_000, 500_000)
    folder = side.scratch / "kills"
    folder.mkdir()
    with side.fresh() as broker, spark_cluster(folder / "spark") as cluster:
        prepare(folder, broker, cluster, records)
        pipeline = PipelineRun(folder, broker, cluster)
        began = time.monotonic()
        kill_while_it_runs(pipeline, records)
        seconds = time.monotonic() - began
        # `ottla pipeline` has printed its stages by now, so the checks do not compete with it.
        checks = [process("check", broker, TRANSFORMED, records)]
        checks.append(process("check", broker, RAW, records, archive=str(folder / "archive")))
        for each in checks:
            finish(each)
    return {"records": records / seconds, "seconds": seconds, "kills": len(pipeline.faults)}


def kill_while_it_runs(pipeline: PipelineRun, records: int) -> None:
    """Returns when all records are transformed and archived."""
    chance = random.Random(records)

    def written() -> int:
        """With the markers of transactions: they are few."""
        return sum(end_offsets(pipeline.broker.bootstrap, TRANSFORMED, PARTITIONS))

    feeding = process("feed", pipeline.broker, RAW, records)
    try:
        pipeline.start_driver()
        kills = [kind for _ in range(ROUNDS_OF_KILLS) for kind in chance.sample(KINDS, k=len(KINDS))]
        for number, kind in enumerate(kills, 1):
            wanted = records * number // (len(kills) + 1)
            pipeline.until(
                lambda wanted=wanted: written() >= wanted,  # type: ignore[misc]
                f"{wanted} records",
                PATIENCE_S,
                POLL_S,
            )
            pipeline.fault(kind, chance)
        finish(feeding)
    finally:
        feeding.kill()
        pipeline.kill_driver()
    drained = pipeline.run("run", "--once", "--plain", timeout_s=RUN_TIMEOUT_S)
    if drained.returncode != 0:
        raise RuntimeError(f"the last run ended with code {drained.returncode}: {drained.stdout[-4_000:]}")


@contextmanager
def spark_cluster(folder: Path) -> Iterator[SparkCluster]:
    folder.mkdir()
    cluster = SparkCluster(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def prepare(folder: Path, broker: RunningBroker, cluster: SparkCluster, records: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topics = [NewTopic(name, PARTITIONS, 1) for name in (RAW, TRANSFORMED)]
    for created in admin.create_topics(topics).values():
        created.result(ADMIN_TIMEOUT_S)
    (folder / "values.sql").write_text(f"select key, value, _origin from {RAW}\n")
    text = PIPELINE.format(
        bootstrap=broker.bootstrap,
        master=cluster.url,
        raw=RAW,
        transformed=TRANSFORMED,
        batch=max(20_000, records // 50),
    )
    (folder / "pipeline.toml").write_text(text)


def process(
    role: str, broker: RunningBroker, topic: str, records: int, **spec: object
) -> "subprocess.Popen[str]":
    asked = {
        "bootstrap": broker.bootstrap,
        "topic": topic,
        "partitions": PARTITIONS,
        "records": records,
        **spec,
    }
    return subprocess.Popen(
        [sys.executable, "-m", "bench.numbered_records", role, json.dumps(asked)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(running: "subprocess.Popen[str]") -> None:
    output, _ = running.communicate(timeout=RUN_TIMEOUT_S)
    if running.returncode != 0:
        raise RuntimeError(output.strip()[-2_000:])


SCENARIOS = (
    Scenario(
        "pipeline-kills",
        f"50 million records (quick: half a million) of {VALUE_BYTES} bytes from a producer into raw, transformed into "
        "another topic and archived, exactly once, on a Spark cluster with two workers, while driver, executors and "
        "broker are killed in turn; from the first record until all is transformed and archived, and then every byte "
        "of both topics and of the archive is compared",
        (Metric("records", "1/s"), Metric("seconds", "s", higher_is_better=False), Metric("kills", "")),
        run,
        rounds_max=1,
        sides=("ottla",),
    ),
)
