"""What MySQL alone has: GTIDs of several sources and tags, compressed transactions, a lock for the snapshot."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows
from tests.pipeline.cdc.batches import Batches, apply_changes, envelopes
from tests.pipeline.cdc.mysql.captures import MYSQL, capture_of, select_rows
from tests.pipeline.cdc.mysql.mariadb_server import MariaDb

from ottla.pipeline.errors import PipelineError, RetriableError
from ottla.pipeline.ingest.cdc.mysql import snapshot

pytestmark = MYSQL

TABLE = "CREATE TABLE {}.{} (id INT PRIMARY KEY, name VARCHAR(40))"
LIMITED = ReadMaxRows(1)  # the limit's number is the setting's: max_transactions_per_batch
OTHER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def as_gtid(gtid: str, *statements: str) -> list[str]:
    """The transaction with a GTID of another server, as on its replica."""
    return [f"SET gtid_next = '{gtid}'", "BEGIN", *statements, "COMMIT", "SET gtid_next = 'AUTOMATIC'"]


def ids(batches: Batches, limit: Any = None) -> list[int]:
    return [change["after"]["id"] for change in envelopes(batches.next(limit))]


def test_transactions_of_several_sources_come_in_the_order_of_the_binlog(
    server: MariaDb, database: str, tmp_path: Path
) -> None:
    server.run(TABLE.format(database, "t"))
    batches = Batches(capture_of(server, database, tmp_path, max_transactions_per_batch=2))
    batches.all(LIMITED)
    begin = batches.offset
    insert = f"INSERT INTO {database}.t VALUES ({{}}, 'a')"
    server.run(
        insert.format(1),
        *as_gtid(f"{OTHER}:7", insert.format(2), insert.format(3)),
        *as_gtid(f"{OTHER}:blue:1", insert.format(4)),
        insert.format(5),
        *as_gtid(f"{OTHER}:3", insert.format(6)),
        *as_gtid(f"{OTHER}:blue:2", insert.format(7)),
        *as_gtid(f"{OTHER}:8"),
    )
    parts = []
    for _ in range(4):
        start = batches.offset
        parts.append(ids(batches, LIMITED))
        assert start is not None
        assert batches.offset is not None
        again = Batches(batches.capture).read(start, batches.offset)
        assert [change["after"]["id"] for change in envelopes(again)] == parts[-1]
    assert parts == [[1, 2, 3], [4, 5], [6, 7], []]
    assert begin is not None
    assert batches.offset is not None
    assert f"{OTHER}:3:7-8:blue:1-2" in batches.offset["gtid"]
    whole = Batches(batches.capture).read(begin, batches.offset)
    assert [change["transaction"]["id"] for change in envelopes(whole)][1:4] == [
        f"{OTHER}:7",
        f"{OTHER}:7",
        f"{OTHER}:blue:1",
    ]


@pytest.mark.parametrize("checksum", ["CRC32", "NONE"])
def test_compressed_transactions_are_decoded(
    server: MariaDb, database: str, tmp_path: Path, checksum: str
) -> None:
    server.run(f"SET GLOBAL binlog_checksum = {checksum}")
    server.run(TABLE.format(database, "a"), TABLE.format(database, "b"))
    batches = Batches(capture_of(server, database, tmp_path))
    records = batches.all()
    server.run(
        "SET binlog_transaction_compression = ON",
        "BEGIN",
        f"INSERT INTO {database}.a VALUES (1, repeat('x', 40)), (2, 'ü')",
        f"INSERT INTO {database}.b SELECT id + 1, name FROM {database}.a",
        f"DELETE FROM {database}.a WHERE id = 1",
        "COMMIT",
        "SET binlog_transaction_compression = OFF",
        f"UPDATE {database}.b SET name = 'last'",
    )
    records += batches.all()
    file = server.run("SHOW BINARY LOGS")[-1][0]
    assert "Transaction_payload" in {row[2] for row in server.run(f"SHOW BINLOG EVENTS IN '{file}'")}
    server.run("SET GLOBAL binlog_checksum = CRC32")
    tables = apply_changes(records)
    for table in ("a", "b"):
        assert list(tables[table].values()) == select_rows(server, database, table)
    assert [change["transaction"]["total_order"] for change in envelopes(records)] == [1, 2, 3, 4, 5, 1, 2]


def test_a_server_without_transactions_is_read_from_its_first_one(
    server: MariaDb, database: str, tmp_path: Path
) -> None:
    server.run(TABLE.format(database, "t"), "RESET BINARY LOGS AND GTIDS")
    batches = Batches(capture_of(server, database, tmp_path))
    assert batches.next() == []
    assert batches.offset == {"chunk": 0, "gtid": ""}
    server.run(
        f"INSERT INTO {database}.t VALUES (1, 'a')",
        f"CREATE TABLE {database}.copy (PRIMARY KEY (id)) SELECT * FROM {database}.t",
        f"INSERT INTO {database}.copy VALUES (2, 'b')",
    )
    assert ids(batches) == [1, 1, 2]


def test_the_snapshot_waits_for_open_transactions_that_write(
    server: MariaDb, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "LOCK_WAIT_S", 1)
    server.run(TABLE.format(database, "t"))
    batches = Batches(capture_of(server, database, tmp_path, retry_s=0.1))
    with server.connect(autocommit=False) as writer, writer.cursor() as cursor:
        cursor.execute(f"INSERT INTO {database}.t VALUES (1, 'a')")
        with pytest.raises(RetriableError, match=r"long transactions that write to captured tables"):
            batches.next()
        writer.commit()
    assert ids(batches) == [1]
    assert batches.next() == []


def test_partial_json_values_stop_the_source(server: MariaDb, database: str, tmp_path: Path) -> None:
    server.run(f"CREATE TABLE {database}.t (id INT PRIMARY KEY, j JSON)")
    server.run(f"""INSERT INTO {database}.t VALUES (1, '{{"a": "{"x" * 200}", "b": 1}}')""")
    batches = Batches(capture_of(server, database, tmp_path))
    batches.all()
    server.run(
        "SET binlog_row_value_options = 'PARTIAL_JSON'",
        f"UPDATE {database}.t SET j = JSON_SET(j, '$.b', 2)",
    )
    with pytest.raises(PipelineError, match=r"only parts of JSON values.*binlog_row_value_options = ''"):
        batches.next()
