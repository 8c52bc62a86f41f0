"""Pieces as Arrow rows: the values are the records, the headers say where they were."""

import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from tests.examples import examples

from ottla.pipeline.ingest.spooldir import rows
from ottla.pipeline.ingest.spooldir.files import Piece, TakenFile, identity_of
from ottla.pipeline.ingest.spooldir.record_format import RecordFormat, split_records


def taken(path: Path, data: bytes, record_format: RecordFormat) -> tuple[TakenFile, Piece]:
    path.write_bytes(data)
    file = TakenFile(0, str(path), "sub/\udcff", identity_of(path.stat()), record_format)
    return file, Piece(0, 0, len(data), 1, len(split_records(data, record_format)), zlib.crc32(data))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rows") / "file"


@examples()
@given(
    data=st.text("a\n\r", max_size=80).map(str.encode) | st.binary(max_size=80),
    delimiter=st.sampled_from([b"\n", b"\r\n", b"aa", b""]),
    cuts=st.booleans(),
)
def test_rows_in_parts_of_any_size_are_those_of_the_whole_file(
    path: Path, data: bytes, delimiter: bytes, cuts: bool
) -> None:
    record_format = RecordFormat(delimiter, cuts_carriage_return=cuts, keyed_by_file=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "ROWS_BYTES", 7)
        batches = list(rows.rows_of([taken(path, data, record_format)]))
    found = [row for batch in batches for row in batch.to_pylist()]
    records, whole = split_records(data, record_format), split_records(data, RecordFormat(delimiter))
    assert [row["value"] for row in found] == records
    assert {row["key"] for row in found} <= {b"sub/\xff"}
    headers = [[(header["key"], header["value"]) for header in row["headers"]] for row in found]
    starts = [sum(len(record) + len(delimiter) for record in whole[:at]) for at in range(len(whole))]
    assert headers == [
        [("file", b"sub/\xff"), ("line", b"%d" % (at + 1)), ("position", b"%d" % start)]
        for at, start in enumerate(starts)
    ]


def test_the_batches_have_the_columns_that_spark_expects(path: Path) -> None:
    (batch,) = rows.rows_of([taken(path, b"a\nb", RecordFormat(b"\n"))])
    assert batch.schema == to_arrow_schema(rows.COLUMNS, timezone="UTC")
    assert batch.column("key").null_count == 2


def test_an_empty_piece_gives_no_rows(path: Path) -> None:
    assert list(rows.rows_of([taken(path, b"", RecordFormat(b"\n"))])) == []
