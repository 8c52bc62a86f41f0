"""The commands that a person waits for need no Spark: they answer where no Java can be started."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest
from pyspark.sql import SparkSession
from tests.interop.brokers import RunningBroker
from tests.pipeline.archiving import make_topic, produce, run_all, sink, some_records
from tests.pipeline.pipeline_command import COMMAND, TIMEOUT_S, asked_spark
from tests.pipeline.written_archive import ROWS, Written

from ottla.pipeline.archive import engine
from ottla.pipeline.archive.engine import why_not_duckdb
from ottla.pipeline.stage import Context

RECORDS = 20
# It notes that it was asked for, and fails.
JAVA = '#!/bin/sh\necho "$@" >> "$(dirname "$0")/asked"\nexit 1\n'


@dataclass
class WithoutJava:
    """An environment whose only Java cannot be started."""

    home: Path

    def asked(self) -> str:
        noted = self.home / "bin" / "asked"
        return noted.read_text() if noted.exists() else ""

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        path = f"{self.home / 'bin'}:{os.environ['PATH']}"
        return subprocess.run(
            [*COMMAND, *arguments],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
            env={**os.environ, "JAVA_HOME": str(self.home), "PATH": path},
        )

    def answer(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def without_java(tmp_path: Path) -> WithoutJava:
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(JAVA)
    java.chmod(0o755)
    return WithoutJava(tmp_path / "java")


def write_pipeline(folder: Path, topic: str, bootstrap: str = "127.0.0.1:1", name: str = "pipeline") -> None:
    (folder / "pipeline.toml").write_text(
        f'name = "{name}"\ncluster = {{ bootstrap = "{bootstrap}" }}\n'
        f'[sinks.archive]\ntopics = ["{topic}"]\npath = "archive"\n'
    )


def test_status_verify_ranges_and_sql_start_no_java(
    spark: SparkSession,
    broker: RunningBroker,
    context: Context,
    topic_name: str,
    without_java: WithoutJava,
) -> None:
    make_topic(broker.bootstrap, topic_name, partitions=2)
    produce(broker.bootstrap, topic_name, some_records(RECORDS))
    run_all(spark, sink(context, topic_name))
    write_pipeline(context.folder, topic_name, broker.bootstrap, context.pipeline)
    at = ("--file", str(context.folder))

    status = json.loads(without_java.answer("pipeline", "status", "--json", *at))
    assert (status["batch"], status["state"], status["behind"]) == (0, "all batches committed", 0)
    verified = without_java.answer("pipeline", "verify", "--ranges", *at)
    assert "The archive is whole (by ranges of offsets; no file was read)." in verified
    counted = without_java.answer("pipeline", "sql", "--json", "select count(*) as n from archive", *at)
    assert json.loads(counted) == {"n": RECORDS}
    assert without_java.asked() == ""

    # All of `verify` reads the files, with Spark: the environment does not let it start.
    done = without_java.run("pipeline", "verify", *at)
    assert done.returncode == 1
    assert "is not a Java that runs" in done.stderr
    assert "-version" in without_java.asked()


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """The folder of a pipeline whose archive was written without Spark."""
    archive = Written(tmp_path / "archive")
    archive.batch()
    write_pipeline(tmp_path, "raw")
    return tmp_path


def test_sql_says_that_duckdb_answers_and_an_error_names_the_other_engine(
    written: Path, without_java: WithoutJava
) -> None:
    done = without_java.run(
        "pipeline", "sql", "select max(raw.offset) as last from raw", "--file", str(written)
    )
    assert done.stdout.split() == ["last", str(ROWS - 1)]
    assert done.stderr == "DuckDB answers, in its SQL. For Spark's: --engine spark\n"
    done = without_java.run("pipeline", "sql", "select max(offset) from raw", "--file", str(written))
    assert done.returncode == 1
    assert "DuckDB rejects the query: " in done.stderr
    assert "add `--engine spark`" in done.stderr
    done = without_java.run("pipeline", "sql", "select 1", "--engine", "spark", "--file", str(written))
    assert "DuckDB" not in done.stderr
    assert without_java.asked()
    both = ("--engine", "duckdb", "--master", "local[1]")
    done = without_java.run("pipeline", "sql", "select 1", *both, "--file", str(written))
    assert "--master is for Spark" in done.stderr


def test_sql_asks_spark_where_duckdb_cannot_answer(spark: SparkSession, written: Path) -> None:
    # DuckDB rejects `offset` without quotes.
    ask = ("pipeline", "sql", "select max(offset) as last from raw", "--json", "--file", str(written))
    with mock.patch.object(engine, "find_spec", return_value=None):
        done = asked_spark(spark, *ask)
    assert json.loads(done.stdout) == {"last": ROWS - 1}
    because = "Spark answers, in its SQL, after its start: "
    assert done.stderr == f"{because}DuckDB is not installed (pip install 'ottla[sql]').\n"
    done = asked_spark(spark, *ask, "--master", "local[2]")
    assert json.loads(done.stdout) == {"last": ROWS - 1}
    assert done.stderr == f"{because}--master is given.\n"


def test_why_duckdb_cannot_answer(written: Path) -> None:
    local = str(written / "archive")
    assert why_not_duckdb([local, f"file://{local}", str(written / "missing")], {}) is None
    away = {
        "fs.s3a.endpoint": "http://127.0.0.1:1",
        "fs.s3a.access.key": "key",
        "fs.s3a.secret.key": "secret",
        "fs.s3a.endpoint.region": "us-east-1",
    }
    assert why_not_duckdb([local, "s3a://bucket/archive"], away) == "Python cannot read s3a://bucket/archive"
    assert why_not_duckdb(["elsewhere://archive"], {}) == "Python cannot read elsewhere://archive"
    with mock.patch.object(engine, "find_spec", return_value=None):
        assert why_not_duckdb([local], {}) == "DuckDB is not installed (pip install 'ottla[sql]')"
