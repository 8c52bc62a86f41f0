"""A MariaDB and a MySQL server for the tests of a module, and a database of its own for each test."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest
from tests.pipeline.cdc.mysql.mariadb_server import MariaDb, why_no_mariadb
from tests.pipeline.cdc.mysql.mysql_server import MySql, why_no_mysql

Server = TypeVar("Server", bound=MariaDb)


@pytest.fixture(scope="module")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDb]:
    """A test that changes the server's settings restores them."""
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
    """Asks for the server by name, so that tests in any order share it."""
    found: MariaDb = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def database(server: MariaDb, request: pytest.FixtureRequest) -> str:
    name = f"db_{abs(hash(request.node.nodeid)) % 10**12}"
    server.run(f"CREATE DATABASE {name}")
    return name
