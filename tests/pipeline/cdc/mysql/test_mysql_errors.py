"""Errors of a captured server: reported before the start, and again when they happen while it runs."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.cdc.batches import Batches
from tests.pipeline.cdc.mysql.captures import MARIADB, capture_of, settings_of
from tests.pipeline.cdc.mysql.mariadb_server import MariaDb

from ottla.pipeline.errors import PipelineError, RetriableError
from ottla.pipeline.ingest.cdc.mysql.checks import check_capture
from ottla.pipeline.ingest.cdc.mysql.settings import MySqlCapture
from ottla.pipeline.ingest.cdc.mysql.stage import MySqlSource
from ottla.pipeline.stage import Context

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
    """Removes all binlogs but the newest, once no earlier reader uses one."""
    until = time.monotonic() + 60
    while len(logs := server.run("SHOW BINARY LOGS")) > 1:
        assert time.monotonic() < until
        server.run(f"PURGE BINARY LOGS TO '{logs[-1][0]}'")


@pytest.fixture
def findings(context: Context) -> Any:
    """All findings about a capture in one text."""
    made = replace(context, topics=frozenset({"raw"}))

    def ask(capture: MySqlCapture) -> str:
        return "\n".join(f"{p.what} {p.remedy}" for p in check_capture(capture, "[sources.orders]", made))

    return ask


def test_a_server_as_documented_passes_all_checks(
    server: MariaDb, database: str, tmp_path: Path, findings: Any
) -> None:
    server.run(TABLE.format(database))
    with set_global(server, "sync_binlog", "1"):
        assert findings(capture_of(server, database, tmp_path)) == ""


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"password": "wrong"}, "does not accept the user `capture`"),
        (
            {"user": "reader", "password": "reader"},
            "denies access to the user `reader`.*REPLICATION SLAVE.*LOCK TABLES with MySQL",
        ),
        ({"port": 1}, "cannot be reached"),
        ({"server_id": 11}, "server id 11 is the database's own"),
        ({"tables": ("nothing.*",)}, "No table .* matches nothing"),
        ({"topic": "{server}.{db}"}, r"The topic orders\.db_\d+"),
    ],
)
def test_wrong_settings_are_reported_before_the_start(
    server: MariaDb, database: str, tmp_path: Path, findings: Any, changed: dict[str, Any], message: str
) -> None:
    server.run(
        TABLE.format(database),
        "CREATE USER IF NOT EXISTS reader IDENTIFIED BY 'reader'",
        "GRANT SELECT ON *.* TO reader",
    )
    found = findings(capture_of(server, database, tmp_path, **changed))
    assert re.search(message, found), found


@pytest.mark.parametrize(
    ("server", "name", "value", "message"),
    [
        ("mariadb", "binlog_format", "'STATEMENT'", "Set binlog_format = ROW"),
        ("mariadb", "binlog_row_image", "'MINIMAL'", "Set binlog_row_image = FULL"),
        ("mariadb", "binlog_row_metadata", "'NO_LOG'", "Set binlog_row_metadata = FULL"),
        ("mariadb", "log_bin_compress", "1", "Set log_bin_compress = OFF"),
        ("mariadb", "sync_binlog", "0", "Set sync_binlog = 1"),
        ("mysql", "binlog_row_image", "'MINIMAL'", "Set binlog_row_image = FULL"),
        ("mysql", "binlog_row_metadata", "'MINIMAL'", "Set binlog_row_metadata = FULL"),
        ("mysql", "binlog_row_value_options", "'PARTIAL_JSON'", "Set binlog_row_value_options = ''"),
        ("mysql", "binlog_order_commits", "0", "Set binlog_order_commits = ON"),
        ("mysql", "gtid_mode", "'ON_PERMISSIVE'", "gtid_mode = ON_PERMISSIVE.*gtid_mode = ON"),
    ],
    indirect=["server"],
)
def test_wrong_settings_of_the_server_are_reported_before_the_start(
    server: MariaDb, database: str, tmp_path: Path, findings: Any, name: str, value: str, message: str
) -> None:
    server.run(TABLE.format(database))
    with set_global(server, name, value):
        assert re.search(message, findings(capture_of(server, database, tmp_path)))


@MARIADB
def test_tables_that_are_hard_to_capture_are_reported(
    server: MariaDb, database: str, tmp_path: Path, findings: Any
) -> None:
    server.run(
        f"CREATE TABLE {database}.keyless (a INT)",
        f"CREATE TABLE {database}.old (id INT PRIMARY KEY) ENGINE = MyISAM",
        f"CREATE TABLE {database}.packed (id INT PRIMARY KEY, t TEXT COMPRESSED)",
    )
    found = findings(capture_of(server, database, tmp_path))
    assert "keyless has no primary key" in found
    assert "old uses the engine MyISAM" in found
    assert "packed is COMPRESSED" in found


def test_a_server_without_a_binlog_is_reported(tmp_path: Path, server: MariaDb, findings: Any) -> None:
    silent = type(server)(tmp_path, settings=() if type(server) is MariaDb else ("--skip-log-bin",))
    silent.create()
    silent.start()
    try:
        capture = capture_of(silent, "test", tmp_path)
        assert "has no binlog" in findings(capture)
        with pytest.raises(PipelineError, match="has no binlog"):
            Batches(capture).next()
    finally:
        silent.kill()


def test_purged_binlogs_stop_the_source_with_a_remedy(
    server: MariaDb, database: str, tmp_path: Path, findings: Any
) -> None:
    server.run(TABLE.format(database))
    batches = Batches(capture_of(server, database, tmp_path))
    batches.all()
    assert batches.offset is not None
    server.run(f"INSERT INTO {database}.orders VALUES (1, 'lost')", "FLUSH BINARY LOGS")
    server.run(f"INSERT INTO {database}.orders VALUES (2, 'there')", "FLUSH BINARY LOGS")
    purge(server)
    with pytest.raises(PipelineError, match=r"no longer has the changes.*new snapshot"):
        batches.next()
    offsets = tmp_path / "checkpoint" / "offsets"
    offsets.mkdir()
    (offsets / "7").write_text(f'v1\n{{}}\n{{"chunk": 0, "gtid": "{batches.offset["gtid"]}"}}')
    assert "no longer has the changes" in findings(batches.capture)


def test_a_server_that_was_reset_stops_the_source(server: MariaDb, database: str, tmp_path: Path) -> None:
    server.run(TABLE.format(database), f"INSERT INTO {database}.orders VALUES (1, 'a')")
    batches = Batches(capture_of(server, database, tmp_path))
    batches.all()
    reset = "RESET MASTER" if type(server) is MariaDb else "RESET BINARY LOGS AND GTIDS"
    server.run(reset, f"INSERT INTO {database}.orders VALUES (2, 'b')")
    with pytest.raises(PipelineError, match=r"before .*reset or restored"):
        batches.next()


@pytest.mark.parametrize(
    ("session", "message"),
    [
        ("SET SESSION binlog_format = 'STATEMENT'", "as text, not as rows.*binlog_format = ROW"),
        ("SET SESSION binlog_row_image = 'MINIMAL'", "without all of their columns.*binlog_row_image = FULL"),
    ],
)
def test_a_session_that_logs_too_little_stops_the_source_rather_than_losing_changes(
    server: MariaDb, database: str, tmp_path: Path, session: str, message: str
) -> None:
    server.run(TABLE.format(database), f"INSERT INTO {database}.orders VALUES (1, 'a')")
    batches = Batches(capture_of(server, database, tmp_path))
    batches.all()
    server.run(session, f"UPDATE {database}.orders SET name = 'b'")
    with pytest.raises(PipelineError, match=message):
        batches.next()


@MARIADB
def test_compressed_events_stop_the_source(server: MariaDb, database: str, tmp_path: Path) -> None:
    server.run(f"CREATE TABLE {database}.orders (id INT PRIMARY KEY, name LONGTEXT)")
    batches = Batches(capture_of(server, database, tmp_path))
    batches.all()
    with set_global(server, "log_bin_compress", "1"):
        server.run(f"INSERT INTO {database}.orders VALUES (1, repeat('x', 10000))")
    with pytest.raises(PipelineError, match="is compressed"):
        batches.next()


@MARIADB
def test_a_server_that_cannot_be_reached_is_an_error_that_may_pass(
    server: MariaDb, database: str, tmp_path: Path
) -> None:
    server.run(TABLE.format(database))
    batches = Batches(capture_of(server, database, tmp_path, retry_s=0.1))
    batches.all()
    server.kill()
    with pytest.raises(RetriableError, match="cannot be reached"):
        batches.next()
    server.start()
    server.run(f"INSERT INTO {database}.orders VALUES (1, 'a')")
    assert len(batches.next()) == 1


@MARIADB
def test_a_topic_with_unknown_placeholders_is_rejected(server: MariaDb, context: Context) -> None:
    with pytest.raises(PipelineError, match=r"not a valid template.*\{table\}"):
        MySqlSource("orders", settings_of(server, tables=("a.*",), topic="{schema}"), context)
