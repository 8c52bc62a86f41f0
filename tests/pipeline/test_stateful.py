"""Windows, joins of streams and de-duplication, exactly once.

The executors of a cluster, and then the driver, are killed in a batch that is half written. After that Python processes
of Spark exit inside and behind their transactions.
"""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from tests.interop.brokers import RunningBroker
from tests.pipeline.connector_topics import Topics
from tests.pipeline.sink_faults import ARROW_ROWS, faulty_source
from tests.pipeline.spark_cluster import SparkCluster
from tests.pipeline.stateful import (
    AGAIN_AFTER,
    BEGIN_MS,
    EVENTS,
    MINUTE_MS,
    QUERIES,
    STEP_MS,
    exit_behind,
    exit_inside,
    sent_events,
    start,
)
from tests.pipeline.written_topics import records, wait_for

from ottla.pipeline.spark.checkpoint import Checkpoint
from ottla.pipeline.stage import ClusterSettings, Context

QUERY_TIMEOUT_S = 280
WINDOW_MS = 5 * MINUTE_MS
LAST_MS = BEGIN_MS + (EVENTS - 1) * STEP_MS

# Spark starts no query in the update mode.
KILLED = [name for name in QUERIES if name != "windows-update"]

Written = list[tuple[str, str]]


@pytest.fixture
def small_arrow_batches(spark: SparkSession) -> Iterator[None]:
    """So that a fault can come between two of them."""
    spark.conf.set(ARROW_ROWS, "10")
    yield
    spark.conf.unset(ARROW_ROWS)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    """With a core for each query that hangs, and more."""
    (tmp_path / "spark").mkdir()
    cluster = SparkCluster(tmp_path / "spark", cores=4)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("small_arrow_batches")
def test_queries_with_state_write_each_result_once_through_kills(
    spark: SparkSession, cluster: SparkCluster, broker: RunningBroker, tmp_path: Path, topic_name: str
) -> None:
    topics = Topics(broker.bootstrap)
    # The records are older than a topic keeps them by default.
    topics.create(topic_name, 2, retention_ms="-1")
    for name in KILLED:
        topics.create(f"{topic_name}-{name}", 2)
        (tmp_path / "faults" / name).mkdir(parents=True)
    topics.produce(topic_name, sent_events())
    kill_executors_and_driver(cluster, broker, tmp_path, topic_name)
    context = Context(topic_name, ClusterSettings(broker.bootstrap), tmp_path, "checkpoints")
    for name in KILLED:
        source, marks = f"exits-{name}", tmp_path / "faults" / name
        spark.dataSource.register(faulty_source(source, marks, exit_inside, exit_behind))
        query = start(spark, context, topic_name, name, source)
        try:
            assert query.awaitTermination(QUERY_TIMEOUT_S)
        finally:
            query.stop()
        assert (marks / "exited behind").exists()

    found = {
        name: [
            ((message.key() or b"").decode(), (message.value() or b"").decode())
            for message in records(broker.bootstrap, f"{topic_name}-{name}")
        ]
        for name in KILLED
    }
    assert any((tmp_path / "faults" / name / "exited inside").exists() for name in KILLED)
    check_windows_append(found["windows-append"])
    last_batch = Checkpoint.at(context.checkpoint("windows-complete")).last_committed()
    assert last_batch is not None
    check_windows_complete(found["windows-complete"], last_batch + 1)
    assert sorted(int(value) for _, value in found["once"]) == list(range(EVENTS))
    check_joined(found["joined"])


@pytest.mark.slow
def test_spark_rejects_the_update_mode(
    spark: SparkSession, broker: RunningBroker, tmp_path: Path, topic_name: str
) -> None:
    """As of every sink in Python. docs/exactly-once-sink.md says what to use instead."""
    topics = Topics(broker.bootstrap)
    topics.create(topic_name)
    topics.create(f"{topic_name}-windows-update")
    context = Context(topic_name, ClusterSettings(broker.bootstrap), tmp_path, "checkpoints")
    query = start(spark, context, topic_name, "windows-update", "ottla")
    with pytest.raises(StreamingQueryException, match="ottla does not support Update mode"):
        query.awaitTermination(QUERY_TIMEOUT_S)


def kill_executors_and_driver(cluster: SparkCluster, broker: RunningBroker, folder: Path, raw: str) -> None:
    """When each query has committed a part of its second batch. Between the two, all tasks run again."""
    command = [
        sys.executable,
        "-m",
        "tests.pipeline.stateful",
        cluster.url,
        broker.bootstrap,
        str(folder),
        raw,
        *KILLED,
    ]
    log = folder / "driver.log"
    with log.open("wb") as output:
        driver = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
    marks = [folder / "faults" / name / "committed 0" for name in KILLED]
    try:
        wait_until_half_written(driver, marks, log)
        for mark in marks:
            mark.unlink()
        for executor in cluster.executors():
            os.kill(executor, signal.SIGKILL)
        wait_until_half_written(driver, marks, log)
    finally:
        os.killpg(driver.pid, 9)
        driver.wait()


def wait_until_half_written(driver: "subprocess.Popen[bytes]", marks: list[Path], log: Path) -> None:
    wait_for(lambda: all(mark.exists() for mark in marks) or driver.poll() is not None, QUERY_TIMEOUT_S)
    assert driver.poll() is None, log.read_text(errors="replace")[-5000:]


def true_windows() -> dict[int, int]:
    """The records of each window, by its start."""
    return dict(Counter(sent.timestamp_ms // WINDOW_MS * WINDOW_MS for sent in sent_events()))


def check_windows_append(written: Written) -> None:
    """A window is written when it is complete: those that the watermark has passed, each once."""
    closed = {
        start: count for start, count in true_windows().items() if start + WINDOW_MS <= LAST_MS - MINUTE_MS
    }
    assert sorted((int(start), int(count)) for start, count in written) == sorted(closed.items())


def check_windows_complete(written: Written, batches: int) -> None:
    """Each batch writes all windows that there are so far: the first window as often as there are batches."""
    grown: dict[int, list[int]] = {}
    for start_ms, count in written:
        grown.setdefault(int(start_ms), []).append(int(count))
    assert {start_ms: counts[-1] for start_ms, counts in grown.items()} == true_windows()
    assert len(grown[min(grown)]) == batches
    for counts in grown.values():
        assert counts == sorted(counts)
        assert len(counts) <= batches


def check_joined(written: Written) -> None:
    """Each record with those that come within 20 seconds; a record without one when the watermark has passed it."""
    assert max(Counter(written).values()) == 1
    seconds = AGAIN_AFTER * STEP_MS
    times = {number: {BEGIN_MS + number * STEP_MS} for number in range(EVENTS)}
    for number in range(EVENTS - AGAIN_AFTER):
        times[number].add(BEGIN_MS + number * STEP_MS + seconds)
    matched = {
        (f"{number}@{at}", str(number))
        for number, at_all in times.items()
        if number % 3 == 0
        for at in at_all
    }
    assert {row for row in written if row[1] != "none"} == matched
    alone = {
        (f"{number}@{at}", "none"): at for number, at_all in times.items() if number % 3 for at in at_all
    }
    found = {row for row in written if row[1] == "none"}
    assert found <= alone.keys()
    # All of them that are far enough behind the newest record
    assert {row for row, at in alone.items() if at < LAST_MS - 3 * MINUTE_MS} <= found
