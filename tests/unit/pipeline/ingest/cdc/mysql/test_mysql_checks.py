"""Checks of a MariaDB or MySQL server before the start, from what the server reports."""

import pytest

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.ingest.cdc.mysql.checks import check_server_id, check_variables, check_version
from ottla.pipeline.ingest.cdc.mysql.server import binlog_error
from ottla.pipeline.ingest.cdc.mysql.settings import MySqlCapture, MySqlSettings, mysql_capture

GOOD = {
    "log_bin": "ON",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "binlog_row_metadata": "FULL",
    "sync_binlog": "1",
    "log_bin_compress": "OFF",
}


def capture(server_id: int = 0) -> MySqlCapture:
    settings = MySqlSettings(host="h", user="u", tables=("a.*",), topic="raw", server_id=server_id)
    return mysql_capture(settings, "db", "p.db", "/state")


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
def test_mariadb_from_10_5_and_mysql_from_8_0_on_are_accepted(version: str) -> None:
    check_version(version, capture())


@pytest.mark.parametrize(
    ("version", "what"), [("5.7.44-log", "is MySQL 5.7.44"), ("10.4.9-MariaDB", "is MariaDB 10.4.9")]
)
def test_older_servers_are_rejected_by_name(version: str, what: str) -> None:
    with pytest.raises(PipelineError) as raised:
        check_version(version, capture())
    assert what in raised.value.what


def test_a_server_as_documented_passes_all_checks() -> None:
    assert list(check_variables(GOOD, capture(), "")) == []


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
def test_a_wrong_variable_is_reported_with_its_value(name: str, value: str, is_warning: bool) -> None:
    (finding,) = check_variables({**GOOD, name: value}, capture(), "")
    assert f"{name} = {value}" in finding.what
    assert finding.is_warning is is_warning


def test_a_server_id_in_use_is_reported() -> None:
    assert list(check_server_id(capture(7), 1, frozenset({8}), "")) == []
    assert "the database's own" in next(check_server_id(capture(7), 7, frozenset(), "")).what
    assert "another replica" in next(check_server_id(capture(7), 1, frozenset({7}), "")).what


def test_errors_of_reading_the_binlog_are_told_apart_by_their_message() -> None:
    purged = "Could not find GTID state requested by slave in any binlog files."
    assert "no longer has the changes" in binlog_error(purged, "It").what
    assert (
        "same server id"
        in binlog_error("A slave with the same server_uuid/server_id has connected", "It").what
    )
