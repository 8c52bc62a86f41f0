"""Every type of MariaDB and MySQL in a record: as documented, and the same from the snapshot as from the binlog."""

from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.cdc.batches import Batches, envelopes
from tests.pipeline.cdc.mysql.captures import capture_of
from tests.pipeline.cdc.mysql.mariadb_server import MariaDb

from ottla.pipeline.errors import PipelineError

JSON_TEXT = '{"a": "\\"ü\\u0001", "long": {"b": [1, null, true, false]}}'
JSON_INTEGERS = "[-1, 70000, -9223372036854775808, 18446744073709551615]"
JSON_NUMBERS = "[1.5, 1e300, 1e15, 0.0000001, 2.0, 12.50]"
JSON_TIMES = '["2020-02-03", "2020-02-03 04:05:06.500000", "-101:02:03.000000"]'
# Type, literal, and the value in a record.
EXAMPLES: list[tuple[str, str, Any]] = [
    ("TINYINT", "-128", -128),
    ("TINYINT UNSIGNED", "255", 255),
    ("BOOLEAN", "TRUE", 1),
    ("SMALLINT UNSIGNED", "65535", 65535),
    ("MEDIUMINT", "-8388608", -8388608),
    ("INT UNSIGNED", "4294967295", 4294967295),
    ("BIGINT", "-9223372036854775808", -9223372036854775808),
    ("BIGINT UNSIGNED", "18446744073709551615", 18446744073709551615),
    ("DECIMAL(20,5)", "-123.45", "-123.45000"),
    ("DECIMAL(38,0)", "'-99999999999999999999999999999999999999'", "-99999999999999999999999999999999999999"),
    ("DECIMAL(65,30)", "0", "0." + "0" * 30),
    ("DECIMAL(5,5)", "-0.00001", "-0.00001"),
    ("FLOAT", "3.14", 3.14),
    ("FLOAT", "16777216", 16777216.0),
    ("DOUBLE", "1.0E+300", 1e300),
    ("BIT(1)", "b'1'", True),
    ("BIT(9)", "b'100000001'", "AQE="),
    ("DATE", "'1000-01-01'", -354285),
    ("DATE", "'0000-00-00'", None),
    ("DATETIME", "'1969-12-31 23:59:59'", -1000),
    ("DATETIME(3)", "'2020-01-01 00:00:00.125'", 1577836800125),
    ("DATETIME(6)", "'9999-12-31 23:59:59.999999'", 253402300799999999),
    ("DATETIME", "'2020-00-10'", None),
    ("TIME", "'-838:59:59'", -3020399000000),
    ("TIME(3)", "'-00:00:00.5'", -500000),
    ("TIME(1)", "'12:34:56.7'", 45296700000),
    ("TIMESTAMP NULL", "'2038-01-01 00:00:00'", "2038-01-01T00:00:00Z"),
    ("TIMESTAMP(2) NULL", "'2020-06-01 00:00:00.12'", "2020-06-01T00:00:00.12Z"),
    ("TIMESTAMP NULL", "'0000-00-00 00:00:00'", None),
    ("YEAR", "2155", 2155),
    ("YEAR", "0", 0),
    ("CHAR(10)", "'ab '", "ab"),
    ("VARCHAR(300)", "'😀 ü \\0 \"'", '😀 ü \0 "'),
    ("TINYTEXT CHARACTER SET ucs2", "'żółw'", "żółw"),
    ("LONGTEXT", "repeat('x', 70000)", "x" * 70000),
    ("ENUM('a', 'it''s')", "'it''s'", "it's"),
    ("ENUM('a')", "''", ""),
    ("SET('x', 'y', 'z')", "'z,x'", "x,z"),
    ("SET('x', 'y')", "''", ""),
    ("ENUM('a', 'é') CHARACTER SET latin1", "'é'", "é"),
    ("SET('ż', 'ó') CHARACTER SET latin2", "'ó,ż'", "ż,ó"),
    ("BINARY(5)", "x'0100'", "AQAAAAA="),
    ("VARBINARY(9)", "x'00FF00'", "AP8A"),
    ("BLOB", "x''", ""),
    ("INT AS (id * 2) VIRTUAL", "DEFAULT", 2),
    ("INT INVISIBLE", "7", 7),
    ("INT", "NULL", None),
]
EXAMPLES_OF: dict[str, list[tuple[str, str, Any]]] = {
    "mariadb": [
        ("VARCHAR(20) CHARACTER SET latin1", "'é\u0081€'", "é\u0081€"),
        ("JSON", "'{\"a\": [1, null]}'", '{"a": [1, null]}'),
        ("UUID", "'164fad29-e105-11f1-b0a9-02fc00000000'", "Fk+tKeEFEfGwqQL8AAAAAA=="),
        ("INET6", "'::'", "AAAAAAAAAAAAAAAAAAAAAA=="),
        (
            "POINT",
            "ST_GeomFromText('POINT(1 2)', 4326)",
            {"wkb": "AQEAAAAAAAAAAADwPwAAAAAAAABA", "srid": 4326},
        ),
    ],
    "mysql": [
        ("POINT", "ST_GeomFromText('POINT(1 2)', 0)", {"wkb": "AQEAAAAAAAAAAADwPwAAAAAAAABA", "srid": 0}),
        ("VARCHAR(20) CHARACTER SET latin1", "'é€'", "é€"),
        ("VARCHAR(20) COLLATE utf8mb4_0900_bin", "'żółw 😀'", "żółw 😀"),
        ("TEXT CHARACTER SET gb18030", "'乌龟'", "乌龟"),
        ("JSON", """'{"long": {"b": [1, null, true, false]}, "a": "\\\\"ü\\\\u0001"}'""", JSON_TEXT),
        ("JSON", "JSON_ARRAY(-1, 70000, -9223372036854775808, 18446744073709551615)", JSON_INTEGERS),
        ("JSON", "JSON_ARRAY(1.5e0, 1e300, 1e15, 1e-7, 2e0, CAST('12.50' AS DECIMAL(5,2)))", JSON_NUMBERS),
        (
            "JSON",
            "JSON_ARRAY(DATE'2020-02-03', TIMESTAMP'2020-02-03 04:05:06.5', TIME'-101:02:03')",
            JSON_TIMES,
        ),
        ("JSON", "JSON_ARRAY(x'00FF', b'101')", '["base64:type15:AP8=", "base64:type15:BQ=="]'),
        ("JSON", "JSON_ARRAY(repeat('x', 70000))", '["' + "x" * 70000 + '"]'),
        ("JSON", "'\"\"'", '""'),
        ("VECTOR(3)", "STRING_TO_VECTOR('[1.5, -0.1, 3e20]')", [1.5, -0.1, 3e20]),
        ("VARCHAR(9)", "'after'", "after"),
    ],
}


def test_values_are_as_documented_from_the_snapshot_and_from_the_binlog(
    server: MariaDb, database: str, tmp_path: Path
) -> None:
    examples = [*EXAMPLES, *EXAMPLES_OF["mariadb" if type(server) is MariaDb else "mysql"]]
    columns = ", ".join(f"c{index} {kind}" for index, (kind, _, _) in enumerate(examples))
    names = ", ".join(f"c{index}" for index in range(len(examples)))
    literals = ", ".join(literal for _, literal, _ in examples)
    insert = f"INSERT INTO {database}.types (id, {names}) VALUES (1, {literals})"
    lenient = "SET sql_mode = '', time_zone = '+00:00'"
    server.run(
        lenient, f"CREATE TABLE {database}.types (id INT PRIMARY KEY, {columns}) ROW_FORMAT=DYNAMIC", insert
    )
    batches = Batches(capture_of(server, database, tmp_path))
    snapshot = batches.all()
    server.run(lenient, f"DELETE FROM {database}.types", insert)
    deleted, inserted = envelopes(batches.all())
    expected = {"id": 1, **{f"c{index}": value for index, (_, _, value) in enumerate(examples)}}
    assert envelopes(snapshot)[0]["after"] == expected
    assert deleted["before"] == expected
    assert inserted["after"] == expected


def test_key_columns_are_in_the_order_of_the_table(server: MariaDb, database: str, tmp_path: Path) -> None:
    server.run(
        f"CREATE TABLE {database}.pairs (v INT, a VARCHAR(20), b INT, PRIMARY KEY (b, a(5)))",
        f"INSERT INTO {database}.pairs VALUES (1, 'ä', 2)",
    )
    batches = Batches(capture_of(server, database, tmp_path))
    snapshot = batches.all()
    server.run(f"UPDATE {database}.pairs SET v = 2")
    assert {record.key for record in snapshot + batches.all()} == {'{"a":"ä","b":2}'.encode()}


def test_a_binlog_with_and_without_checksums_is_read(server: MariaDb, database: str, tmp_path: Path) -> None:
    server.run(f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
    batches = Batches(capture_of(server, database, tmp_path))
    batches.all()
    start = batches.offset
    wanted = []
    for number, checksum in enumerate(["NONE", "CRC32", "NONE", "CRC32"]):
        server.run(f"SET GLOBAL binlog_checksum = {checksum}", f"INSERT INTO {database}.t VALUES ({number})")
        wanted.append((f'{{"id":{number}}}'.encode(), {"id": number}, server.run("SHOW BINARY LOGS")[-1][0]))
        records = Batches(batches.capture, start).all()
        assert wanted == [
            (record.key, change["after"], change["source"]["file"])
            for record, change in zip(records, envelopes(records), strict=True)
        ]


def test_the_schema_history_names_columns_if_the_binlog_does_not(
    server: MariaDb, database: str, tmp_path: Path
) -> None:
    silent = "NO_LOG" if type(server) is MariaDb else "MINIMAL"
    server.run(f"SET GLOBAL binlog_row_metadata = '{silent}'")
    try:
        server.run(
            f"CREATE TABLE {database}.t (id INT UNSIGNED PRIMARY KEY, e ENUM('a', 'b'), b BLOB, t TEXT,"
            " l VARCHAR(9) CHARACTER SET latin1)",
            insert := f"INSERT INTO {database}.t VALUES (4294967295, 'b', x'FF00', 'ü', 'ü')",
        )
        batches = Batches(capture_of(server, database, tmp_path))
        snapshot = envelopes(batches.all())
        server.run(f"DELETE FROM {database}.t", insert)
        deleted, inserted = envelopes(batches.all())
        assert deleted["before"] == inserted["after"] == snapshot[0]["after"]
        server.run(f"ALTER TABLE {database}.t RENAME COLUMN e TO f", f"DELETE FROM {database}.t")
        with pytest.raises(PipelineError, match=r"columns of .* changed.*binlog_row_metadata = FULL"):
            batches.next()
    finally:
        server.run("SET GLOBAL binlog_row_metadata = 'FULL'")
