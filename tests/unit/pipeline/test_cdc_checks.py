"""What is said of a server before the start, from what it answers."""

import pytest

from ottla.pipeline.ingest.cdc.checks import (
    server_id_problems,
    server_kind_problem,
    variable_problems,
    wanted_topics,
)
from ottla.pipeline.ingest.cdc.server import binlog_refused
from ottla.pipeline.ingest.cdc.settings import Capture, MySqlSettings, capture_of

GOOD = {
    "log_bin": "ON",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "binlog_row_metadata": "FULL",
    "sync_binlog": "1",
    "log_bin_compress": "OFF",
}


def capture(server_id: int = 0) -> Capture:
    settings = MySqlSettings(host="h", user="u", tables=("a.*",), topic="raw", server_id=server_id)
    return capture_of(settings, "db", "p.db", "/state")


@pytest.mark.parametrize(
    "version",
    [
        "10.5.1-MariaDB",
        "5.5.5-10.11.19-MariaDB-0+deb12u1-log",
        "11.4.2-MariaDB",
        "8.0.11",
        "8.4.2-1",
        "9.7.4-log",
    ],
)
def test_mariadb_from_10_5_and_mysql_from_8_0_on_are_captured(version: str) -> None:
    assert server_kind_problem(version, capture()) is None


@pytest.mark.parametrize(
    ("version", "told"), [("5.7.44-log", "is MySQL 5.7.44"), ("10.4.9-MariaDB", "is MariaDB 10.4.9")]
)
def test_older_servers_are_refused_by_name(version: str, told: str) -> None:
    problem = server_kind_problem(version, capture())
    assert problem is not None
    assert told in problem[0]


def test_a_server_as_documented_has_no_problem() -> None:
    assert list(variable_problems(GOOD, capture())) == []


@pytest.mark.parametrize(
    ("name", "value", "is_warning"),
    [
        ("log_bin", "OFF", False),
        ("binlog_format", "MIXED", False),
        ("binlog_row_image", "NOBLOB", False),
        ("log_bin_compress", "ON", False),
        ("binlog_row_metadata", "MINIMAL", True),
        ("sync_binlog", "0", True),
        ("gtid_mode", "OFF_PERMISSIVE", False),
        ("log_replica_updates", "OFF", False),
    ],
)
def test_each_setting_is_told_with_what_it_is(name: str, value: str, is_warning: bool) -> None:
    ((what, _, warning),) = variable_problems({**GOOD, name: value}, capture())
    assert f"{name} = {value}" in what
    assert warning is is_warning


def test_a_server_id_in_use_is_refused() -> None:
    assert list(server_id_problems(capture(7), 1, frozenset({8}))) == []
    assert "the database's own" in next(server_id_problems(capture(7), 7, frozenset()))[0]
    assert "another replica" in next(server_id_problems(capture(7), 1, frozenset({7})))[0]


def test_a_shared_topic_is_wanted_also_without_tables() -> None:
    assert wanted_topics("raw", []) == {"raw"}
    assert wanted_topics("{db}.{table}", ["a.b"]) == {"a.b"}


def test_refusals_of_the_binlog_are_told_apart() -> None:
    purged = "Could not find GTID state requested by slave in any binlog files."
    assert "no longer has the changes" in binlog_refused(purged, "It").what
    assert (
        "same server id"
        in binlog_refused("A slave with the same server_uuid/server_id has connected", "It").what
    )
