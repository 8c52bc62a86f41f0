"""Splits bytes into records at a delimiter, piece by piece, with the same result as `bytes.split` of the whole file.

A record is the bytes between two delimiters. The bytes after the last one are a record too, unless there are none.
"""

from typing import NamedTuple


class RecordFormat(NamedTuple):
    """How a file becomes records. Without a delimiter the whole file is one record."""

    delimiter: bytes
    cuts_carriage_return: bool = False
    keyed_by_file: bool = False


def split_records(data: bytes, record_format: RecordFormat) -> list[bytes]:
    """The records of a piece, which begins and ends with whole records."""
    if not record_format.delimiter:
        return [data] if data else []
    records = data.split(record_format.delimiter)
    rest = records.pop()
    if record_format.cuts_carriage_return:
        records = [record.removesuffix(b"\r") for record in records]
    if rest:
        records.append(rest)
    return records


def overlaps_itself(delimiter: bytes) -> bool:
    """Whether two occurrences can overlap, as those of `aba` in `ababa`: then only a search from the left is right."""
    return any(delimiter.startswith(delimiter[at:]) for at in range(1, len(delimiter)))


def last_record_end(block: bytes, delimiter: bytes) -> tuple[int, int]:
    """How many records end with a delimiter in the block, which begins with a record, and where the last one ends."""
    if overlaps_itself(delimiter):
        parts = block.split(delimiter)
        return len(parts) - 1, len(block) - len(parts[-1])
    found = block.rfind(delimiter)
    return (0, 0) if found < 0 else (block.count(delimiter), found + len(delimiter))


def find_too_long(block: bytes, delimiter: bytes, record_bytes_max: int, is_last: bool) -> int | None:
    """Where the first record begins that is longer than allowed; None if there is none.

    The block begins with a record. Unless it is the file's last, its end may cut a record or a delimiter in two.
    """
    if overlaps_itself(delimiter):
        return _find_too_long_from_left(block, delimiter, record_bytes_max, is_last)
    at = 0
    enough = record_bytes_max + (1 if is_last else len(delimiter))
    while len(block) - at >= enough:
        # Jumps to the furthest delimiter that an allowed record can reach: no record before it is too long.
        found = block.rfind(delimiter, at, at + record_bytes_max + len(delimiter))
        if found < 0:
            return at
        at = found + len(delimiter)
    return None


def _find_too_long_from_left(
    block: bytes, delimiter: bytes, record_bytes_max: int, is_last: bool
) -> int | None:
    at = 0
    *parts, rest = block.split(delimiter)
    for part in parts:
        if len(part) > record_bytes_max:
            return at
        at += len(part) + len(delimiter)
    enough = record_bytes_max + (1 if is_last else len(delimiter))
    return at if len(rest) >= enough else None
