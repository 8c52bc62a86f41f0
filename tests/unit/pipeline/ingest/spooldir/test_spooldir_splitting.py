"""RecordFormat any bytes at any delimiter, in pieces of any size, gives what `bytes.split` gives for the whole."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.examples import examples

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.ingest.spooldir.files import Piece, TakenFile, identity_of
from ottla.pipeline.ingest.spooldir.pieces import FilePosition, Limits, end_of, next_piece
from ottla.pipeline.ingest.spooldir.record_format import (
    RecordFormat,
    find_too_long,
    last_record_end,
    overlaps_itself,
    split_records,
)

# Few letters, so that delimiters are found often, and some that overlap themselves.
texts = st.text("ab\n\r\0", max_size=60).map(str.encode) | st.binary(max_size=60)
delimiters = st.sampled_from([b"\n", b"\r\n", b"aa", b"aba", b"ab", b"\0", b"\xff\xfe"]) | st.binary(
    min_size=1, max_size=3
)


def expected(data: bytes, delimiter: bytes) -> list[bytes]:
    *records, rest = data.split(delimiter)
    return [*records, rest] if rest else records


def taken(path: Path, record_format: RecordFormat) -> TakenFile:
    return TakenFile(0, str(path), path.name, identity_of(path.stat()), record_format)


def pieces_of(file: TakenFile, limits: Limits) -> list[Piece]:
    position = FilePosition()
    pieces: list[Any] = []
    with open(file.path, "rb") as opened:
        while not pieces or position.byte < file.identity.size:
            pieces.append(next_piece(file, opened.fileno(), position, limits))
            position = end_of(pieces[-1])
    return pieces


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spool") / "file"


@examples()
@given(data=texts, delimiter=delimiters, split_bytes=st.integers(1, 20))
@example(data=b"aaa", delimiter=b"aa", split_bytes=1)
@example(data=b"ababa\n", delimiter=b"aba", split_bytes=4)
def test_pieces_of_any_size_have_the_records_of_the_whole_file(
    path: Path, data: bytes, delimiter: bytes, split_bytes: int
) -> None:
    path.write_bytes(data)
    file = taken(path, RecordFormat(delimiter))
    pieces = pieces_of(file, Limits(split_bytes, record_bytes_max=60))
    records = [split_records(data[piece.start : piece.end], file.record_format) for piece in pieces]
    assert [record for part in records for record in part] == expected(data, delimiter)
    assert [len(part) for part in records] == [piece.records for piece in pieces]
    assert [piece.line for piece in pieces] == [1 + sum(map(len, records[:at])) for at in range(len(records))]
    assert [piece.start for piece in pieces[1:]] == [piece.end for piece in pieces[:-1]]


@examples()
@given(data=texts, delimiter=delimiters, split_bytes=st.integers(1, 20), record_bytes_max=st.integers(1, 20))
def test_a_record_is_rejected_exactly_when_it_is_too_long(
    path: Path, data: bytes, delimiter: bytes, split_bytes: int, record_bytes_max: int
) -> None:
    path.write_bytes(data)
    file = taken(path, RecordFormat(delimiter))
    records = expected(data, delimiter)
    long = [at for at, record in enumerate(records) if len(record) > record_bytes_max]
    if not long:
        assert sum(piece.records for piece in pieces_of(file, Limits(split_bytes, record_bytes_max))) == len(
            records
        )
        return
    position = sum(len(record) + len(delimiter) for record in records[: long[0]])
    with pytest.raises(
        PipelineError, match=f"Record {long[0] + 1} of the file .*, at byte {position}, is longer than"
    ):
        pieces_of(file, Limits(split_bytes, record_bytes_max))


@examples()
@given(data=texts, delimiter=delimiters)
def test_the_last_end_is_that_of_a_search_from_the_left(data: bytes, delimiter: bytes) -> None:
    *records, rest = data.split(delimiter)
    assert last_record_end(data, delimiter) == (len(records), len(data) - len(rest))


def test_only_delimiters_that_end_as_they_begin_overlap_themselves() -> None:
    assert [d for d in (b"\n", b"ab", b"aa", b"aba", b"abab", b"aab") if overlaps_itself(d)] == [
        b"aa",
        b"aba",
        b"abab",
    ]


@pytest.mark.parametrize("delimiter", [b"\n", b"aa"])
def test_a_delimiter_cut_in_two_by_the_end_of_a_block_makes_no_record_too_long(delimiter: bytes) -> None:
    assert find_too_long(b"xxxx" + delimiter[:-1], delimiter, 4, is_last=False) is None
    assert find_too_long(b"xxxxx" + delimiter, delimiter, 4, is_last=False) == 0
    assert find_too_long(b"xxxxx", delimiter, 4, is_last=True) == 0


def test_a_carriage_return_is_cut_only_before_a_line_feed() -> None:
    data = b"a\r\n\r\nb\rc\nd\r\r\n\n\r"
    assert split_records(data, RecordFormat(b"\n")) == [b"a\r", b"\r", b"b\rc", b"d\r\r", b"", b"\r"]
    assert split_records(data, RecordFormat(b"\n", cuts_carriage_return=True)) == [
        b"a",
        b"",
        b"b\rc",
        b"d\r",
        b"",
        b"\r",
    ]


def test_without_a_delimiter_the_file_is_the_record(path: Path) -> None:
    path.write_bytes(b"a\nb\n")
    assert pieces_of(taken(path, RecordFormat(b"")), Limits(1, 4))[0].records == 1
    assert split_records(b"a\nb\n", RecordFormat(b"")) == [b"a\nb\n"]
    with pytest.raises(PipelineError, match=r"Record 1 of the file .*, at byte 0, is longer than 3 bytes"):
        pieces_of(taken(path, RecordFormat(b"")), Limits(1, 3))


def test_an_empty_file_is_one_piece_without_records(path: Path) -> None:
    path.write_bytes(b"")
    assert [
        (piece.end, piece.records) for piece in pieces_of(taken(path, RecordFormat(b"\n")), Limits(1, 1))
    ] == [(0, 0)]


def test_a_file_that_changes_while_it_is_taken_is_an_error(path: Path) -> None:
    path.write_bytes(b"a\nb\n")
    file = taken(path, RecordFormat(b"\n"))
    with path.open("ab") as opened:
        opened.write(b"c\n")
    with pytest.raises(PipelineError, match=f"{path} changed after it was taken: it had 4 bytes and has 6"):
        pieces_of(file, Limits(1, 1))
    path.write_bytes(b"x\ny\n")
    os.utime(path, ns=(0, file.identity.mtime_ns + 1))
    with pytest.raises(PipelineError, match="it was written to"):
        pieces_of(file, Limits(1, 1))
