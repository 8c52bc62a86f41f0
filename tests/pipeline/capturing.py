"""Helpers of the tests of change capture: captured servers, batches without Spark, and records played back."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pymysql.cursors import DictCursor
from pyspark.sql.streaming.datasource import ReadAllAvailable
from tests.pipeline.mariadb import PASSWORD, USER, MariaDb, why_no_mariadb
from tests.pipeline.mysql import MySql, why_no_mysql

from ottla.pipeline.ingest.cdc.envelope import Record
from ottla.pipeline.ingest.cdc.mysql.settings import Capture, MySqlSettings, capture_of
from ottla.pipeline.ingest.cdc.mysql.source import MySqlStreamReader
from ottla.pipeline.ingest.cdc.postgres.settings import PostgresCapture
from ottla.pipeline.ingest.cdc.postgres.source import PostgresStreamReader

Server = TypeVar("Server", bound=MariaDb)

# What is the same for both kinds of server is shown with one.
MARIADB = pytest.mark.parametrize("server", ["mariadb"], indirect=True)
MYSQL = pytest.mark.parametrize("server", ["mysql"], indirect=True)


@pytest.fixture(scope="module")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDb]:
    """One for a module's tests: each makes a database of its own, and leaves the server's settings as they were."""
    if why_no_mariadb():
        pytest.skip(why_no_mariadb())
    with running(MariaDb(tmp_path_factory.mktemp("mariadb"))) as made:
        yield made


@pytest.fixture(scope="module")
def mysql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MySql]:
    """As `mariadb`."""
    if why_no_mysql():
        pytest.skip(why_no_mysql())
    with running(MySql(tmp_path_factory.mktemp("mysql"))) as made:
        yield made


@contextmanager
def running(made: Server) -> Iterator[Server]:
    made.create()
    made.start()
    yield made
    made.kill()


@pytest.fixture(params=["mariadb", "mysql"])
def server(request: pytest.FixtureRequest) -> MariaDb:
    """Asked for by name, so that tests in any order share them."""
    found: MariaDb = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def database(server: MariaDb, request: pytest.FixtureRequest) -> str:
    name = f"db_{abs(hash(request.node.nodeid)) % 10**12}"
    server.run(f"CREATE DATABASE {name}")
    return name


def settings_of(server: MariaDb, **more: Any) -> MySqlSettings:
    fields: dict[str, Any] = {
        "host": "127.0.0.1",
        "port": server.port,
        "user": USER,
        "password": PASSWORD,
        "topic": "raw",
        "retry_s": 20.0,
    }
    return MySqlSettings(**{**fields, **more})


def captured(server: MariaDb, database: str, folder: Path, **more: Any) -> Capture:
    settings = settings_of(server, **{"tables": (f"{database}.*",), **more})
    return capture_of(settings, "orders", f"tests.{database}", str(folder / "checkpoint" / "cdc"))


@dataclass
class Batches:
    """A query without Spark: asks the source for batch after batch as Spark does."""

    capture: Any
    offset: dict[str, Any] | None = None
    reader: MySqlStreamReader | PostgresStreamReader = field(init=False)

    def __post_init__(self) -> None:
        is_postgres = isinstance(self.capture, PostgresCapture)
        self.reader = PostgresStreamReader(self.capture) if is_postgres else MySqlStreamReader(self.capture)
        self.offset = self.offset or self.reader.initialOffset()

    def next(self, limit: Any = None) -> list[Record]:
        assert self.offset is not None
        end = self.reader.latestOffset(self.offset, limit or ReadAllAvailable())
        records = self.read(self.offset, end)
        self.offset = end
        return records

    def all(self, limit: Any = None) -> list[Record]:
        """Until there is nothing new. What is done is committed before the next, as Spark does it.

        PostgreSQL needs that to come to rest: reading from a place where transactions were open writes to its log.
        """
        records: list[Record] = []
        while True:
            before = self.offset
            assert before is not None
            self.reader.commit(before)
            records += self.next(limit)
            if self.offset == before:
                return records

    def read(self, start: dict[str, Any], end: dict[str, Any]) -> list[Record]:
        batches = (batch for part in self.reader.partitions(start, end) for batch in self.reader.read(part))
        return [
            Record(row["topic"], row["key"], row["value"]) for batch in batches for row in batch.to_pylist()
        ]


def values(records: Iterable[Record]) -> list[dict[str, Any]]:
    """The envelopes, without tombstones."""
    return [json.loads(record.value) for record in records if record.value is not None]


def played_back(records: Iterable[Record]) -> dict[str, dict[str, Any]]:
    """The tables that the records describe: by name, rows by key. An unfitting record is an error."""
    tables: dict[str, dict[str, Any]] = {}
    for record in records:
        if record.value is None:
            continue
        change = json.loads(record.value)
        rows = tables.setdefault(change["source"]["table"], {})
        key = record.key.decode() if record.key is not None else None
        if change["op"] == "t":
            rows.clear()
            continue
        assert key is not None
        if change["op"] in "cr":
            assert key not in rows, f"{key} came twice"
            rows[key] = change["after"]
        else:
            assert rows.pop(key) is not None
            if change["op"] == "u":
                rows[key] = change["after"]
    return tables


def selected(server: MariaDb, database: str, table: str) -> list[dict[str, Any]]:
    """The table's rows as they are now, decimals as text."""
    connection = server.connect(database=database, cursorclass=DictCursor)
    with connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM `{table}` ORDER BY id")
        rows = list(cursor.fetchall())
    return [
        {name: str(value) if isinstance(value, Decimal) else value for name, value in row.items()}
        for row in rows
    ]
