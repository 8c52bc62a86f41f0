"""What the tests with MariaDB and MySQL share: captures of a server, and statements that change a table."""

import itertools
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pymysql.cursors import DictCursor
from tests.pipeline.cdc.mysql.mariadb_server import PASSWORD, USER, MariaDb

from ottla.pipeline.ingest.cdc.mysql.settings import MySqlCapture, MySqlSettings, mysql_capture

# A test of what both types of server have in common needs only one of them.
MARIADB = pytest.mark.parametrize("server", ["mariadb"], indirect=True)
MYSQL = pytest.mark.parametrize("server", ["mysql"], indirect=True)

TABLE = "CREATE TABLE {}.{} (id INT PRIMARY KEY, name VARCHAR(40), price DECIMAL(12,3), n BIGINT UNSIGNED)"


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


def capture_of(server: MariaDb, database: str, folder: Path, **more: Any) -> MySqlCapture:
    settings = settings_of(server, **{"tables": (f"{database}.*",), **more})
    return mysql_capture(settings, "orders", f"tests.{database}", str(folder / "checkpoint" / "cdc"))


def select_rows(server: MariaDb, database: str, table: str) -> list[dict[str, Any]]:
    """The table's rows as they are now, decimals as text."""
    connection = server.connect(database=database, cursorclass=DictCursor)
    with connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM `{table}` ORDER BY id")
        rows = list(cursor.fetchall())
    return [
        {name: str(value) if isinstance(value, Decimal) else value for name, value in row.items()}
        for row in rows
    ]


def sorted_rows(table: dict[str, Any]) -> list[dict[str, Any]]:
    return sorted(table.values(), key=lambda row: row["id"])


def random_changes(database: str, table: str, count: int, seed: int) -> list[str]:
    """Inserts, updates (of keys too) and deletes, single and in transactions of several rows."""
    pick = random.Random(seed)
    free = itertools.count(1 + seed * 100_000)
    live: list[int] = []
    statements = []
    for _ in range(count):
        dice = pick.random()
        if dice < 0.5 or len(live) < 3:
            new = [next(free) for _ in range(pick.randint(1, 4))]
            live += new
            rows = ",".join(f"({i}, 'näme 😀 {i}', {i}.125, {2**63 + i})" for i in new)
            statements.append(f"INSERT INTO {database}.{table} (id, name, price, n) VALUES {rows}")
        elif dice < 0.8:
            victim = pick.choice(live)
            statements.append(f"UPDATE {database}.{table} SET price = price + 1 WHERE id = {victim}")
        elif dice < 0.9:
            victim = live.pop(pick.randrange(len(live)))
            live.append(next(free))
            statements.append(f"UPDATE {database}.{table} SET id = {live[-1]} WHERE id = {victim}")
        else:
            victim = live.pop(pick.randrange(len(live)))
            statements.append(f"DELETE FROM {database}.{table} WHERE id = {victim}")
    return statements
