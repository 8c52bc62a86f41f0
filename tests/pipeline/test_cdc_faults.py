# ruff: noqa: F401, F811
"""What can be wrong with a captured server: told before the start, and again where it happens while running."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.capturing import Batches, captured, database, mariadb, settings_of
from tests.pipeline.mariadb import CAPTURED, MariaDb

from ottla.pipeline.errors import PassingError, PipelineError
from ottla.pipeline.ingest.cdc.checks import problems_of
from ottla.pipeline.ingest.cdc.settings import Capture, capture_of
from ottla.pipeline.ingest.cdc.stage import MySqlSource
from ottla.pipeline.stage import Context, Problem

TABLE = "CREATE TABLE {}.orders (id INT PRIMARY KEY, name VARCHAR(40))"


@contextmanager
def set_global(server: MariaDb, name: str, value: str) -> Iterator[None]:
    before = server.run(f"SELECT @@GLOBAL.{name}")[0][0]
    server.run(f"SET GLOBAL {name} = {value}")
    try:
        yield
    finally:
        server.run(
            f"SET GLOBAL {name} = '{before}'" if isinstance(before, str) else f"SET GLOBAL {name} = {before}"
        )


def purge(server: MariaDb) -> None:
    """All binlogs but the newest go, as soon as no reader of before holds one."""
    until = time.monotonic() + 60
    while len(logs := server.run("SHOW BINARY LOGS")) > 1:
        assert time.monotonic() < until
        server.run(f"PURGE BINARY LOGS TO '{logs[-1][0]}'")


@pytest.fixture
def problems(context: Context) -> Any:
    """Those of a capture, all in one text."""
    made = replace(context, topics=frozenset({"raw"}))

    def ask(capture: Capture) -> str:
        return "\n".join(f"{p.what} {p.remedy}" for p in problems_of(capture, "[sources.orders]", made))

    return ask


def test_a_server_that_is_as_documented_has_no_problems(
    mariadb: MariaDb, database: str, tmp_path: Path, problems: Any
) -> None:
    mariadb.run(TABLE.format(database))
    with set_global(mariadb, "sync_binlog", "1"):
        assert problems(captured(mariadb, database, tmp_path)) == ""


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"password": "wrong"}, "does not accept the user `capture`"),
        ({"user": "reader", "password": "reader"}, "refuses the user `reader`.*REPLICATION SLAVE"),
        ({"port": 1}, "is away"),
        ({"server_id": 11}, "server id 11 is the database's own"),
        ({"tables": ("nothing.*",)}, "No table .* matches nothing"),
        ({"topic": "{server}.{db}"}, r"There is no topic orders\.db_\d+"),
    ],
)
def test_wrong_settings_are_told_before_the_start(
    mariadb: MariaDb, database: str, tmp_path: Path, problems: Any, changed: dict[str, Any], told: str
) -> None:
    mariadb.run(
        TABLE.format(database),
        "CREATE OR REPLACE USER reader IDENTIFIED BY 'reader'",
        "GRANT SELECT ON *.* TO reader",
    )
    found = problems(captured(mariadb, database, tmp_path, **changed))
    assert re.search(told, found), found


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("binlog_format", "'STATEMENT'", "Set binlog_format = ROW"),
        ("binlog_row_image", "'MINIMAL'", "Set binlog_row_image = FULL"),
        ("binlog_row_metadata", "'NO_LOG'", "Set binlog_row_metadata = FULL"),
        ("log_bin_compress", "1", "Set log_bin_compress = OFF"),
        ("sync_binlog", "0", "Set sync_binlog = 1"),
    ],
)
def test_wrong_settings_of_the_server_are_told_before_the_start(
    mariadb: MariaDb, database: str, tmp_path: Path, problems: Any, name: str, value: str, told: str
) -> None:
    mariadb.run(TABLE.format(database))
    with set_global(mariadb, name, value):
        assert told in problems(captured(mariadb, database, tmp_path))


def test_tables_that_are_hard_to_capture_are_told(
    mariadb: MariaDb, database: str, tmp_path: Path, problems: Any
) -> None:
    mariadb.run(
        f"CREATE TABLE {database}.keyless (a INT)",
        f"CREATE TABLE {database}.old (id INT PRIMARY KEY) ENGINE = MyISAM",
        f"CREATE TABLE {database}.packed (id INT PRIMARY KEY, t TEXT COMPRESSED)",
    )
    found = problems(captured(mariadb, database, tmp_path))
    assert "keyless has no primary key" in found
    assert "old is kept in MyISAM" in found
    assert "packed is COMPRESSED" in found


def test_a_server_without_a_binlog_is_told(tmp_path: Path, mariadb: MariaDb, problems: Any) -> None:
    server = MariaDb(tmp_path, settings=())
    server.create()
    server.start()
    try:
        capture = captured(server, "test", tmp_path)
        assert "keeps no binlog" in problems(capture)
        with pytest.raises(PipelineError, match="keeps no binlog"):
            Batches(capture).next()
    finally:
        server.kill()


def test_purged_binlogs_stop_the_source_with_what_to_do(
    mariadb: MariaDb, database: str, tmp_path: Path, problems: Any
) -> None:
    mariadb.run(TABLE.format(database))
    batches = Batches(captured(mariadb, database, tmp_path))
    batches.all()
    assert batches.offset is not None
    mariadb.run(f"INSERT INTO {database}.orders VALUES (1, 'lost')", "FLUSH BINARY LOGS")
    mariadb.run(f"INSERT INTO {database}.orders VALUES (2, 'there')", "FLUSH BINARY LOGS")
    purge(mariadb)
    with pytest.raises(PipelineError, match=r"no longer has the changes.*new snapshot"):
        batches.next()
    offsets = tmp_path / "checkpoint" / "offsets"
    offsets.mkdir()
    (offsets / "7").write_text(f'v1\n{{}}\n{{"chunk": 0, "gtid": "{batches.offset["gtid"]}"}}')
    assert "no longer has the changes" in problems(batches.capture)


def test_a_server_that_was_reset_is_not_followed_under_numbers_seen_before(
    mariadb: MariaDb, database: str, tmp_path: Path
) -> None:
    mariadb.run(TABLE.format(database), f"INSERT INTO {database}.orders VALUES (1, 'a')")
    batches = Batches(captured(mariadb, database, tmp_path))
    batches.all()
    mariadb.run("RESET MASTER", f"INSERT INTO {database}.orders VALUES (2, 'b')")
    with pytest.raises(PipelineError, match=r"before .*reset or restored"):
        batches.next()


@pytest.mark.parametrize(
    ("session", "told"),
    [
        ("SET SESSION binlog_format = 'STATEMENT'", "as text, not as rows.*binlog_format = ROW"),
        ("SET SESSION binlog_row_image = 'MINIMAL'", "without all of their columns.*binlog_row_image = FULL"),
    ],
)
def test_a_session_that_logs_too_little_stops_the_source_rather_than_losing_changes(
    mariadb: MariaDb, database: str, tmp_path: Path, session: str, told: str
) -> None:
    mariadb.run(TABLE.format(database), f"INSERT INTO {database}.orders VALUES (1, 'a')")
    batches = Batches(captured(mariadb, database, tmp_path))
    batches.all()
    mariadb.run(session, f"UPDATE {database}.orders SET name = 'b'")
    with pytest.raises(PipelineError, match=told):
        batches.next()


def test_compressed_events_stop_the_source(mariadb: MariaDb, database: str, tmp_path: Path) -> None:
    mariadb.run(f"CREATE TABLE {database}.orders (id INT PRIMARY KEY, name LONGTEXT)")
    batches = Batches(captured(mariadb, database, tmp_path))
    batches.all()
    with set_global(mariadb, "log_bin_compress", "1"):
        mariadb.run(f"INSERT INTO {database}.orders VALUES (1, repeat('x', 10000))")
    with pytest.raises(PipelineError, match="is compressed"):
        batches.next()


def test_a_server_that_stays_away_is_a_fault_that_may_pass(
    mariadb: MariaDb, database: str, tmp_path: Path
) -> None:
    mariadb.run(TABLE.format(database))
    batches = Batches(captured(mariadb, database, tmp_path, retry_s=0.1))
    batches.all()
    mariadb.kill()
    with pytest.raises(PassingError, match="is away"):
        batches.next()
    mariadb.start()
    mariadb.run(f"INSERT INTO {database}.orders VALUES (1, 'a')")
    assert len(batches.next()) == 1


def test_a_topic_of_unknown_parts_is_refused(mariadb: MariaDb, context: Context) -> None:
    with pytest.raises(PipelineError, match=r"stands for nothing.*\{table\}"):
        MySqlSource("orders", settings_of(mariadb, tables=("a.*",), topic="{schema}"), context)
