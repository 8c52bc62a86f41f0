"""The exactly-once sink on Spark, with faults where they hurt: every record once, and in order per Spark partition."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.interop.brokers import RunningBroker
from tests.pipeline.sink_faults import (
    ARROW_ROWS,
    PARTITIONS,
    ROWS,
    fail_behind,
    fail_inside,
    fail_last,
    faulty_source,
    has,
    note_commit,
    numbered,
    run_once,
)
from tests.pipeline.written_topics import create_topic, is_in_order, numbers, wait_for


@pytest.fixture(autouse=True)
def small_arrow_batches(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(ARROW_ROWS, "500")
    yield
    spark.conf.unset(ARROW_ROWS)


def assert_each_once(broker: RunningBroker, topic: str, rows: int) -> None:
    assert sorted(numbers(broker.bootstrap, topic)) == list(range(rows))
    assert is_in_order(broker.bootstrap, topic, PARTITIONS)


def test_tasks_that_fail_during_and_after_their_transactions_write_each_record_once(
    spark: SparkSession, any_broker: RunningBroker, topic_name: str, tmp_path: Path
) -> None:
    create_topic(any_broker.bootstrap, topic_name)
    (tmp_path / "faults").mkdir()
    spark.dataSource.register(faulty_source("faulty-tasks", tmp_path / "faults", fail_inside, fail_behind))
    run_once(numbered(spark), any_broker.bootstrap, topic_name, tmp_path / "checkpoint", "faulty-tasks")
    assert len(list((tmp_path / "faults").iterdir())) == 4
    assert_each_once(any_broker, topic_name, ROWS)
    run_once(numbered(spark), any_broker.bootstrap, topic_name, tmp_path / "checkpoint")
    assert_each_once(any_broker, topic_name, 2 * ROWS)


DRIVER = """
import sys
from collections.abc import Iterator
from pathlib import Path
from ottla.pipeline.spark.session import spark_session
from tests.pipeline import sink_faults as faults

bootstrap, topic, folder = sys.argv[1:]
spark = spark_session("killed", "local[2]", {"spark.ui.enabled": "false", faults.ARROW_ROWS: "500"})
source = faults.faulty_source("faulty-driver", Path(folder) / "faults", faults.hang_last, faults.note_commit)
spark.dataSource.register(source)
faults.run_once(faults.numbered(spark), bootstrap, topic, Path(folder) / "checkpoint", "faulty-driver")
"""


def test_a_driver_killed_between_the_commits_of_its_tasks_resumes(
    spark: SparkSession, any_broker: RunningBroker, topic_name: str, tmp_path: Path
) -> None:
    create_topic(any_broker.bootstrap, topic_name)
    (tmp_path / "faults").mkdir()
    command = [sys.executable, "-c", DRIVER, any_broker.bootstrap, topic_name, str(tmp_path)]
    with (tmp_path / "driver.log").open("wb") as log:
        driver = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    committed = has(tmp_path / "faults", "committed 0", "committed 1", "committed 2", "inside 3")
    try:
        wait_for(lambda: committed() or driver.poll() is not None)
        assert driver.poll() is None, (tmp_path / "driver.log").read_text()
    finally:
        # The driver is Python with its JVM and the workers of that: a group of its own.
        os.killpg(driver.pid, 9)
        driver.wait()
    run_once(numbered(spark), any_broker.bootstrap, topic_name, tmp_path / "checkpoint")
    written = numbers(any_broker.bootstrap, topic_name)
    assert_each_once(any_broker, topic_name, len(written))
    assert len(written) >= ROWS


def test_a_plan_that_changes_in_the_middle_of_a_batch_is_rejected_until_it_is_accepted(
    spark: SparkSession, broker: RunningBroker, topic_name: str, tmp_path: Path
) -> None:
    create_topic(broker.bootstrap, topic_name)
    (tmp_path / "faults").mkdir()
    checkpoint = tmp_path / "checkpoint"
    spark.dataSource.register(faulty_source("faulty-plan", tmp_path / "faults", fail_last, note_commit))
    with pytest.raises(PySparkException, match="partition 3 never works"):
        run_once(numbered(spark), broker.bootstrap, topic_name, checkpoint, "faulty-plan")
    assert len(numbers(broker.bootstrap, topic_name)) == ROWS * 3 // 4
    changed = numbered(spark).where(F.length("value") > 0)
    with pytest.raises(PySparkException, match="was written in part") as rejected:
        run_once(changed, broker.bootstrap, topic_name, checkpoint)
    assert len(numbers(broker.bootstrap, topic_name)) == ROWS * 3 // 4
    old_plan = str(rejected.value).partition('acceptPlan="')[2].partition('"')[0]
    run_once(changed, broker.bootstrap, topic_name, checkpoint, acceptPlan=old_plan)
    # Between two batches any plan may come.
    run_once(numbered(spark), broker.bootstrap, topic_name, checkpoint)
    written = numbers(broker.bootstrap, topic_name)
    assert len(written) >= 2 * ROWS
    assert_each_once(broker, topic_name, len(written))
