"""The examples of docs/pipeline/archive.md that read an archive, each run as it is on the page."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.pipeline.archive_jars import jars_for
from tests.pipeline.duckdb_delta import duckdb_with_delta
from tests.pipeline.pipeline_command import ottla
from tests.pipeline.written_archive import ROWS, Written

from ottla.pipeline.archive.embedded import query
from ottla.pipeline.archive.table import register_views

PAGE = (Path(__file__).parents[2] / "docs" / "pipeline" / "archive.md").read_text()
SECTION = PAGE.partition("\n## Reading an archive\n")[2].partition("\n## ")[0]
# the examples by their heading and language
EXAMPLES = {
    (heading, language): text
    for part in SECTION.split("\n### ")[1:]
    for heading, text_of_part in [part.split("\n", 1)]
    for language, text in re.findall(r"^```(\w+)\n(.*?)^```", text_of_part, re.M | re.S)
}
DAY, HOUR = "2026-01-31", 7
TOPICS = ("raw", "my-topic")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: a pipeline whose archive has two topics, as tables of Delta too."""
    for topic in TOPICS:
        written = Written(tmp_path / "archive", topic)
        written.batch()
        written.batch()
    (tmp_path / "pipeline.toml").write_text(
        'cluster = { bootstrap = "127.0.0.1:1" }\n'
        f'[sinks.archive]\ntopics = {json.dumps(TOPICS)}\npath = "archive"\nformat = "delta"\n'
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_python(text: str, **names: Any) -> dict[str, Any]:
    """The names that the example has made."""
    exec(compile(text, "the example", "exec"), names)
    return names


def by_sql(spark: SparkSession, text: str, capfd: pytest.CaptureFixture[str]) -> None:
    command = shlex.split(text)
    assert command[0] == "ottla"
    assert ottla(*command[1:]).split() == ["date", "hour", "count_star()", DAY, str(HOUR), str(4 * ROWS)]


def by_spark(spark: SparkSession, text: str, capfd: pytest.CaptureFixture[str]) -> None:
    made = run_python(text)
    assert made["raw"].count() == 2 * ROWS
    assert f"|        0|   {2 * ROWS}|" in capfd.readouterr().out


def by_pandas(spark: SparkSession, text: str, capfd: pytest.CaptureFixture[str]) -> None:
    frame = run_python(text)["frame"]
    assert [*frame.columns] == ["partition", "offset", "value"]
    assert sorted(frame["offset"]) == [*range(2 * ROWS)]
    assert capfd.readouterr().out == f"{2 * ROWS - 1}\n"


def by_duckdb_and_delta_rs(spark: SparkSession, text: str, capfd: pytest.CaptureFixture[str]) -> None:
    run_python(text)
    assert re.search(rf"{DAY} +│ +{HOUR} +│ +{2 * ROWS} +│", capfd.readouterr().out)


def by_duckdb_alone(spark: SparkSession, text: str, capfd: pytest.CaptureFixture[str]) -> None:
    environment = duckdb_with_delta()
    if isinstance(environment, str):
        pytest.skip(environment)
    program = f"import duckdb; print(duckdb.connect().execute({text!r}).fetchall())"
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == f"[(datetime.date(2026, 1, 31), {HOUR}, {2 * ROWS})]\n", done.stderr


def by_spark_and_delta(spark: SparkSession, text: str, capfd: pytest.CaptureFixture[str]) -> None:
    jars = jars_for("delta")
    if isinstance(jars, str):
        pytest.skip(jars)
    spark.conf.set("spark.databricks.delta.requiredSparkConfsCheck.enabled", "false")
    # Delta's 50 tasks for the state of a small table take most of the time.
    spark.conf.set("spark.databricks.delta.snapshotPartitions", "2")
    # Spark's own current folder is that of the tests.
    run_python(text.replace("archive/raw", str(Path("archive/raw").absolute())), spark=spark)
    assert f"|{DAY}|   {HOUR}|   {2 * ROWS}|" in capfd.readouterr().out


RUN: dict[tuple[str, str], Callable[[SparkSession, str, pytest.CaptureFixture[str]], None]] = {
    ("With `ottla pipeline sql`", "sh"): by_sql,
    ("In a program with Spark", "python"): by_spark,
    ("With pandas and delta-rs", "python"): by_pandas,
    ("With DuckDB and delta-rs", "python"): by_duckdb_and_delta_rs,
    ("With DuckDB alone", "sql"): by_duckdb_alone,
    ("With Spark and Delta", "python"): by_spark_and_delta,
}
# Settings, which name a jar that Spark would download.
NOT_RUN = {("With Spark and Delta", "toml")}


def test_every_example_of_the_page_is_run() -> None:
    assert EXAMPLES.keys() == RUN.keys() | NOT_RUN


@pytest.mark.parametrize("example", RUN, ids=lambda example: example[0].replace("`", ""))
def test_an_example_reads_the_archive(
    spark: SparkSession, folder: Path, capfd: pytest.CaptureFixture[str], example: tuple[str, str]
) -> None:
    RUN[example](spark, EXAMPLES[example], capfd)


def cells(row: str) -> list[str]:
    """Of code only the text between its marks."""
    return [re.sub(r"^(`+) ?(.*?) ?\1$", r"\2", cell.strip()) for cell in row.strip("|").split("|")]


def test_the_two_dialects_are_as_the_page_says(spark: SparkSession, folder: Path) -> None:
    archives = {"archive": str(folder / "archive")}
    register_views(spark, archives)

    def duckdb(sql: str) -> Any:
        return [tuple(row) for row in query(sql, archives, {})[1]]

    def sparks(sql: str) -> Any:
        return [tuple(row) for row in spark.sql(sql).collect()]

    table = {one[0]: one[1:] for one in map(cells, re.findall(r"^\|.*\|$", SECTION, re.M)[2:])}
    ours, theirs, both = table.pop("the column `offset`")
    for ask, cell in ((duckdb, ours), (sparks, theirs), (duckdb, both), (sparks, both)):
        assert ask(f"select max({cell}) from raw") == [(2 * ROWS - 1,)]
    ours, theirs, both = table.pop("a value as text")
    for ask, cell in ((duckdb, ours), (sparks, theirs), (duckdb, both), (sparks, both)):
        assert ask(f"select {cell} from raw where raw.offset = 12") == [("12",)]
    ours, theirs, _ = table.pop("a field of JSON")
    for ask, cell, kind in ((duckdb, ours, "blob"), (sparks, theirs, "binary")):
        value = f"""cast('{{"id": 7}}' as {kind})"""
        assert ask(f"select {cell.replace('value', value)} from raw where raw.offset = 1") == [("7",)]
    ours, theirs, _ = table.pop("the first header")
    for ask, cell in ((duckdb, ours), (sparks, theirs)):
        assert ask(f"select distinct {cell} from raw") == [("n",)]
    ours, theirs, _ = table.pop("a topic with a dash")
    for ask, cell in ((duckdb, ours), (sparks, theirs)):
        assert ask(f"select distinct topic from {cell}") == [("my-topic",)]
    assert [*table] == ["timestamp"]
    assert duckdb("select distinct typeof(timestamp) from raw") == [("TIMESTAMP",)]
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
