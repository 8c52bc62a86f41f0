"""The captured changes of a real MariaDB and MySQL, batch by batch without Spark: each once, the same if read again."""

import json
import threading
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from tests.pipeline.cdc.batches import Batches, apply_changes, envelopes
from tests.pipeline.cdc.mysql.captures import (
    MARIADB,
    TABLE,
    capture_of,
    random_changes,
    select_rows,
    sorted_rows,
)
from tests.pipeline.cdc.mysql.mariadb_server import MariaDb

from ottla.pipeline.ingest.cdc import snapshot_files
from ottla.pipeline.ingest.cdc.mysql import snapshot
from ottla.pipeline.ingest.cdc.mysql.binlog.reader import read_changes
from ottla.pipeline.ingest.cdc.mysql.mariadb_gtid import MariaDbPosition
from ottla.pipeline.ingest.cdc.mysql.server import fetch_position

LIMITED = ReadMaxRows(1)  # the limit's number is the setting's: max_transactions_per_batch
WIDE_ROWS = 625


def wide_rows(database: str) -> list[str]:
    """Two transactions that are larger than the buffers of a connection."""
    digits = "(SELECT 0 AS i UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4)"
    numbers = f"SELECT a.i + 5 * b.i + 25 * c.i + 125 * d.i AS i FROM {digits} a, {digits} b, {digits} c, {digits} d"
    return [
        f"CREATE TABLE {database}.wide (id INT PRIMARY KEY, filler LONGTEXT)",
        f"INSERT INTO {database}.wide SELECT i, repeat('x', 12000) FROM ({numbers}) n",
        f"DELETE FROM {database}.wide",
    ]


def test_the_snapshot_and_the_changes_give_the_table_while_its_columns_change(
    server: MariaDb,
    database: str,
    tmp_path: Path,
) -> None:
    server.run(TABLE.format(database, "orders"), *random_changes(database, "orders", 60, 1))
    batches = Batches(capture_of(server, database, tmp_path, max_transactions_per_batch=7))
    records = batches.all(LIMITED)
    server.run(
        *random_changes(database, "orders", 40, 2),
        f"ALTER TABLE {database}.orders ADD COLUMN note VARCHAR(10) DEFAULT 'x' AFTER id, DROP COLUMN n",
        f"UPDATE {database}.orders SET note = 'ÿ'",
        f"ALTER TABLE {database}.orders RENAME COLUMN note TO remark",
        f"UPDATE {database}.orders SET remark = concat(remark, 'z')",
        f"INSERT INTO {database}.orders VALUES (9999999, 'new', 'last', 1.5)",
    )
    records += batches.all(LIMITED)
    assert sorted_rows(apply_changes(records)["orders"]) == select_rows(server, database, "orders")


def test_a_batch_read_again_gives_the_same_records(
    server: MariaDb,
    database: str,
    tmp_path: Path,
) -> None:
    server.run(TABLE.format(database, "orders"), *random_changes(database, "orders", 20, 1))
    batches = Batches(capture_of(server, database, tmp_path))
    begin = batches.offset
    snapshot_of = batches.next()
    middle = batches.offset
    server.run(
        *random_changes(database, "orders", 20, 2),
        f"ALTER TABLE {database}.orders ADD COLUMN more INT",
        f"UPDATE {database}.orders SET more = id",
    )
    changed = batches.next()
    assert begin is not None
    assert middle is not None
    assert batches.offset is not None
    server.run(f"ALTER TABLE {database}.orders DROP COLUMN more", f"DELETE FROM {database}.orders")
    again = Batches(batches.capture)
    assert again.read(begin, middle) == snapshot_of
    assert again.read(middle, batches.offset) == changed


def test_batches_end_at_transactions_and_have_at_most_the_allowed_number(
    server: MariaDb,
    database: str,
    tmp_path: Path,
) -> None:
    server.run(TABLE.format(database, "orders"))
    batches = Batches(capture_of(server, database, tmp_path, max_transactions_per_batch=3))
    batches.next(LIMITED)
    rows = [",".join(f"({base + i}, 'a', 1, 1)" for i in range(4)) for base in range(0, 80, 10)]
    server.run(*(f"INSERT INTO {database}.orders VALUES {four}" for four in rows))
    sizes = []
    while True:
        records = batches.next(LIMITED)
        if not records:
            break
        sizes.append([change["transaction"]["id"] for change in envelopes(records)])
    assert [len(batch) for batch in sizes] == [12, 12, 8]
    assert [len(set(batch)) for batch in sizes] == [3, 3, 2]


def test_the_snapshot_and_the_changes_give_the_table_while_others_write(
    server: MariaDb,
    database: str,
    tmp_path: Path,
) -> None:
    for table in ("a", "b"):
        server.run(TABLE.format(database, table), *random_changes(database, table, 50, 1))
    statements = [
        s for pair in zip(*(random_changes(database, t, 150, 3) for t in "ab"), strict=True) for s in pair
    ]
    writer = threading.Thread(target=lambda: server.run(*statements))
    writer.start()
    batches = Batches(capture_of(server, database, tmp_path))
    records = batches.all()
    writer.join()
    records += batches.all()
    tables = apply_changes(records)
    for table in ("a", "b"):
        assert sorted_rows(tables[table]) == select_rows(server, database, table)


def test_a_batch_is_completed_when_the_server_is_killed_and_restarted(
    server: MariaDb,
    database: str,
    tmp_path: Path,
) -> None:
    server.run(TABLE.format(database, "orders"))
    capture = capture_of(server, database, tmp_path)
    start = fetch_position(capture)
    server.run(*random_changes(database, "orders", 30, 5), *wide_rows(database))
    end = fetch_position(capture)
    whole = list(read_changes(capture, start, end))

    reading = read_changes(capture, start, end)
    part = [next(reading) for _ in range(len(whole) // 3)]
    server.kill()
    starter = threading.Thread(target=server.start)
    starter.start()
    part += reading
    starter.join()
    assert part == whole


def test_a_lost_connection_loses_and_repeats_no_records(
    server: MariaDb,
    database: str,
    tmp_path: Path,
) -> None:
    capture = capture_of(server, database, tmp_path)
    start = fetch_position(capture)
    server.run(*wide_rows(database))
    end = fetch_position(capture)
    reading = read_changes(capture, start, end)
    part = [next(reading) for _ in range(100)]
    for (thread,) in server.run(
        "SELECT id FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'"
    ):
        server.run(f"KILL {thread}")
    part += reading
    assert part == list(read_changes(capture, start, end))
    assert len(part) == 3 * WIDE_ROWS


@MARIADB
def test_an_interrupted_snapshot_is_taken_again(
    server: MariaDb,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server.run(TABLE.format(database, "orders"), *random_changes(database, "orders", 20, 1))
    capture = capture_of(server, database, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(snapshot.MySqlManifest, "save", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
        with pytest.raises(OSError, match="disk full"):
            Batches(capture).next()
    server.run(f"DELETE FROM {database}.orders WHERE id % 2 = 0")
    records = Batches(capture).all()
    assert sorted_rows(apply_changes(records)["orders"]) == select_rows(server, database, "orders")
    assert all(change["op"] == "r" for change in envelopes(records))


@MARIADB
def test_files_of_the_snapshot_are_deleted_once_they_are_committed(
    server: MariaDb,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(snapshot_files, "CHUNK_ROWS", 10)
    monkeypatch.setattr(snapshot_files, "CHUNKS_PER_BATCH", 2)
    server.run(TABLE.format(database, "orders"), *random_changes(database, "orders", 30, 1))
    batches = Batches(capture_of(server, database, tmp_path))
    folder = batches.capture.snapshot_folder
    records = batches.next(LIMITED)
    assert len(records) == 20
    files = len(list(folder.glob("*.arrow")))
    assert batches.offset is not None
    batches.reader.commit(batches.offset)
    assert len(list(folder.glob("*.arrow"))) == files - 2
    records += batches.all(LIMITED)
    batches.reader.commit(batches.offset)
    assert not list(folder.glob("*.arrow"))
    assert sorted_rows(apply_changes(records)["orders"]) == select_rows(server, database, "orders")
    marks = [change["source"]["snapshot"] for change in envelopes(records)]
    assert marks == ["true"] * (len(marks) - 1) + ["last"]


def test_without_a_snapshot_changes_begin_with_the_first_start(
    server: MariaDb,
    database: str,
    tmp_path: Path,
) -> None:
    server.run(TABLE.format(database, "orders"), *random_changes(database, "orders", 5, 1))
    capture = capture_of(server, database, tmp_path, snapshot="never")
    assert Batches(capture).next() == []
    server.run(f"DELETE FROM {database}.orders", f"INSERT INTO {database}.orders VALUES (1, 'a', 1, 1)")
    # a query that was killed before its first batch was planned begins at the same position
    ops = [change["op"] for change in envelopes(Batches(capture).all())]
    assert ops[-1] == "c"
    assert set(ops[:-1]) == {"d"}


def test_changes_of_other_tables_move_the_offset(
    server: MariaDb,
    database: str,
    tmp_path: Path,
) -> None:
    server.run(TABLE.format(database, "orders"), TABLE.format(database, "others"))
    batches = Batches(capture_of(server, database, tmp_path, tables=(f"{database}.ord*",)))
    batches.all()
    before = batches.offset
    server.run(*random_changes(database, "others", 5, 1))
    assert batches.next() == []
    assert batches.offset != before


def test_truncate_drop_and_tables_without_a_key(
    server: MariaDb,
    database: str,
    tmp_path: Path,
) -> None:
    server.run(
        TABLE.format(database, "orders"),
        f"CREATE TABLE {database}.keyless (a INT)",
        f"CREATE TABLE {database}.doomed (id INT PRIMARY KEY)",
    )
    batches = Batches(capture_of(server, database, tmp_path, topic="{server}.{db}.{table}"))
    batches.all()
    server.run(
        f"INSERT INTO {database}.orders VALUES (1, 'a', 1, 1)",
        f"TRUNCATE TABLE {database}.orders",
        f"INSERT INTO {database}.keyless VALUES (1)",
        f"DELETE FROM {database}.keyless",
        f"INSERT INTO {database}.doomed VALUES (1)",
        f"DROP TABLE {database}.doomed",
    )
    records = batches.all()
    found = [
        (record.topic.rpartition(".")[2], record.key, record.value and json.loads(record.value)["op"])
        for record in records
    ]
    assert found == [
        ("orders", b'{"id":1}', "c"),
        ("orders", None, "t"),
        ("keyless", None, "c"),
        ("keyless", None, "d"),
        ("doomed", b'{"id":1}', "c"),
    ]
    assert records[0].topic == f"orders.{database}.orders"


@MARIADB
def test_a_run_with_available_now_ends_though_others_write(
    server: MariaDb,
    database: str,
    tmp_path: Path,
) -> None:
    server.run(TABLE.format(database, "orders"))
    batches = Batches(capture_of(server, database, tmp_path))
    batches.all()
    server.run(f"INSERT INTO {database}.orders VALUES (1, 'a', 1, 1)")
    batches.reader.prepareForTriggerAvailableNow()
    target = fetch_position(batches.capture)
    server.run(f"INSERT INTO {database}.orders VALUES (2, 'a', 1, 1)")
    assert len(batches.all(ReadAllAvailable())) == 1
    assert batches.offset is not None
    assert MariaDbPosition.parse(batches.offset["gtid"]) == target
