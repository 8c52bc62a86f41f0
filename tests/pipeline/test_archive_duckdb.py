"""`ottla pipeline sql --engine duckdb` asks an archive without Spark."""

import json
from pathlib import Path

import pytest
from tests.pipeline.pipeline_command import ottla
from tests.pipeline.written_archive import ROWS, Written

from ottla.pipeline.archive.embedded import query
from ottla.pipeline.archive.ownership import claim_topics
from ottla.pipeline.archive.store import Archive
from ottla.pipeline.errors import PipelineError


@pytest.fixture
def written(tmp_path: Path) -> Written:
    written = Written(tmp_path / "archive")
    written.batch()
    written.batch()
    return written


def test_an_archive_is_asked_without_spark(written: Written, tmp_path: Path) -> None:
    (tmp_path / "pipeline.toml").write_text(
        'cluster = { bootstrap = "127.0.0.1:1" }\n[sinks.kept]\nkind = "archive"\ntopics = ["raw"]\npath = "archive"\n'
    )
    sql = ("pipeline", "sql", "--engine", "duckdb", "--file", str(tmp_path))
    wanted = "select date, hour, count(*) as n, max(value) as last from raw where hour = 7 group by all"
    said = ottla(*sql, "--json", wanted, JAVA_HOME="/nowhere")
    assert json.loads(said) == {"date": "2026-01-31", "hour": 7, "n": 2 * ROWS, "last": "9"}
    assert "first" in ottla(*sql, "select distinct topicId from kept", JAVA_HOME="/nowhere")
    said = ottla(*sql, "select nothing from kept", fails_with=1, JAVA_HOME="/nowhere")
    assert "DuckDB rejects the query" in said


def rows(sql: str, **archives: Path) -> list[tuple[object, ...]]:
    return list(query(sql, {name: str(path) for name, path in archives.items()}, {})[1])


def test_all_histories_of_a_topic_are_one_table_and_a_merge_changes_nothing(
    written: Written, tmp_path: Path
) -> None:
    again = Written(written.folder, "raw@second")
    again.batch()
    count = "select topicId, topic, count(*), count(distinct value) from raw group by all order by all"
    before = rows(count, kept=written.folder)
    assert before == [("first", "raw", 2 * ROWS, 2 * ROWS), ("second", "raw", ROWS, ROWS)]
    written.merge()
    assert rows(count, kept=written.folder) == before


def test_a_sink_comes_before_a_topic_of_its_name_and_the_first_archive_before_others(
    written: Written, tmp_path: Path
) -> None:
    other = Written(tmp_path / "other")
    other.batch()
    archives = {"first": written.folder, "second": other.folder}
    assert rows("select count(*) from raw", **archives) == [(2 * ROWS,)]
    assert rows("select count(*) from raw", kept=written.folder, raw=other.folder) == [(ROWS,)]


def test_values_have_the_types_of_the_archive(written: Written) -> None:
    ((value, key, headers, timestamp),) = rows(
        'select value, key, headers, timestamp from kept where "offset" = 3', kept=written.folder
    )
    assert (value, key, headers, timestamp) == (b"3", None, [{"key": "n", "value": None}], None)


def test_an_empty_archive_is_an_empty_table_and_a_missing_one_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="is gone: it has no folder _manifests"):
        rows("select 1", kept=tmp_path)
    claim_topics(Archive.at(str(tmp_path)), ["raw"])
    assert rows("select count(*), max(partition) from kept", kept=tmp_path) == [(0, None)]


def test_a_file_that_is_missing_is_named(written: Written) -> None:
    lost = written.folder / written.small[0].path
    lost.unlink()
    with pytest.raises(PipelineError, match=rf"The archive's file .*{lost.name} cannot be read"):
        rows("select max(value) from raw", kept=written.folder)
