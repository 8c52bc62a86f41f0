"""Delta tables of an archive, read by delta-rs and by DuckDB's extension `delta`: after batches, merges and
checkpoints, and while they are written.
"""

import subprocess
import sys
import threading
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.pipeline import duckdb_delta_reader
from tests.pipeline.duckdb_delta import duckdb_with_delta
from tests.pipeline.written_archive import COLUMNS, OF_AN_OLDER_OTTLA, ROWS, Written

from ottla.pipeline.archive import delta, delta_actions, store
from ottla.pipeline.archive.verification import _check_delta_log


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Written:
    monkeypatch.setattr(store, "CONDENSE_AT", 4)
    monkeypatch.setattr(delta, "CHECKPOINT_EVERY", 3)
    return Written(tmp_path)


def test_delta_rs_reads_every_version_with_checkpoints_and_merges(written: Written) -> None:
    rows: list[int] = []
    for _ in range(4):
        for _ in range(2):
            written.batch()
            rows.append(written.batches * ROWS)
            assert written.read() == list(range(rows[-1]))
        written.merge()
        rows.append(rows[-1])
        assert written.read() == list(range(rows[-1]))
    for version, count in enumerate(rows):
        if version >= 2:
            assert written.read(version) == list(range(count))
    table = DeltaTable(written.folder / "raw")
    assert [field.name for field in table.schema().fields] == [*COLUMNS.names, "date", "hour"]
    assert table.metadata().partition_columns == ["date", "hour"]
    (action,) = table.get_add_actions(flatten=True).to_struct_array().to_pylist()
    assert (action["num_records"], action["min.offset"], action["max.offset"]) == (80, 0, 79)


def test_a_reader_sees_whole_batches_while_they_are_written_and_merged(written: Written) -> None:
    written.batch()
    is_over = threading.Event()
    seen: list[int] = []
    errors: list[Exception] = []

    def read() -> None:
        try:
            while not is_over.is_set():
                offsets = written.read()
                assert offsets == list(range(len(offsets)))
                seen.append(len(offsets))
        except Exception as error:
            errors.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(30):
        written.batch()
        if number % 4 == 3:
            written.merge()
    is_over.set()
    reader.join(60)
    assert errors == []
    assert seen == sorted(seen)
    assert all(count % ROWS == 0 for count in seen)
    assert written.read() == list(range(31 * ROWS))


class Read(NamedTuple):
    """What DuckDB finds in the table."""

    rows: int
    offsets: int
    wrong: int
    first: int
    last: int


def test_duckdbs_own_reader_sees_whole_batches_while_they_are_written_and_merged(written: Written) -> None:
    environment = duckdb_with_delta()
    if isinstance(environment, str):
        pytest.skip(environment)
    batches = 24
    written.batch()
    command = [sys.executable, duckdb_delta_reader.__file__, str(written.folder / "raw"), str(batches * ROWS)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as reader:
        try:
            assert reader.stdout is not None
            seen: list[Read] = []
            for number in range(2, batches + 1):
                written.batch()
                if number % 4 == 0:
                    written.merge()
                if number % 8 == 0:
                    # It reads what was written just now, or before, while the next batches are written.
                    while not seen or seen[-1].rows < (number - 4) * ROWS:
                        seen.append(Read(*map(int, reader.stdout.readline().split())))
            seen += [Read(*map(int, line.split())) for line in reader.stdout]
            assert reader.wait(60) == 0
        finally:
            reader.kill()
    assert seen == [Read(one.rows, one.rows, 0, 0, one.rows - 1) for one in seen]
    assert all(one.rows % ROWS == 0 for one in seen)
    assert seen == sorted(seen)
    assert len({one.rows for one in seen}) > 3


def test_a_version_of_another_writer_is_reported(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one that ignores the table's protocol, or of any in a table of an older Ottla."""
    monkeypatch.setattr(delta_actions, "_PROTOCOL", OF_AN_OLDER_OTTLA)
    written.batch()
    written.batch()
    assert _check_delta_log(written.archive, "raw") == []
    rows = pa.Table.from_pylist([{"offset": 99, "date": "2026-01-31", "hour": 7}])
    write_deltalake(written.folder / "raw", rows, mode="append", schema_mode="merge")
    (damage,) = _check_delta_log(written.archive, "raw")
    assert damage.path == f"file://{written.folder}/raw/_delta_log"
    assert damage.what == "it lists 1 files that the manifests do not name, and lacks 0 that they name"

    DeltaTable(written.folder / "raw").delete()
    (damage,) = _check_delta_log(written.archive, "raw")
    assert damage.what == "it lists 0 files that the manifests do not name, and lacks 2 that they name"
