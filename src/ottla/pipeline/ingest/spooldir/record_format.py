"""Bytes into records at a delimiter, as `bytes.split` does it from the beginning of a file, but piece by piece.

A record is what stands between two delimiters. What follows the last one is a record too, unless it is empty.
"""

from typing import NamedTuple


class Splitting(NamedTuple):
    """How a file becomes records. Without a delimiter the whole file is one."""

    delimiter: bytes
    cuts_carriage_return: bool = False
    keyed_by_file: bool = False


def overlaps_itself(delimiter: bytes) -> bool:
    """Whether two places of it can overlap, as those of `aba` in `ababa`: then only the way from the left is right."""
    return any(delimiter.startswith(delimiter[at:]) for at in range(1, len(delimiter)))


def last_end(block: bytes, delimiter: bytes) -> tuple[int, int]:
    """How many records end with a delimiter in the block, which begins with a record, and where the last one ends."""
    if overlaps_itself(delimiter):
        parts = block.split(delimiter)
        return len(parts) - 1, len(block) - len(parts[-1])
    found = block.rfind(delimiter)
    return (0, 0) if found < 0 else (block.count(delimiter), found + len(delimiter))


def too_long(block: bytes, delimiter: bytes, record_bytes_max: int, is_last: bool) -> int | None:
    """Where the first record begins that is longer than allowed, None if there is none.

    The block begins with a record. Unless it is the file's last, its end may cut a record or a delimiter in two.
    """
    if overlaps_itself(delimiter):
        return too_long_from_left(block, delimiter, record_bytes_max, is_last)
    at = 0
    enough = record_bytes_max + (1 if is_last else len(delimiter))
    while len(block) - at >= enough:
        # The furthest end within reach: what lies before it cannot be too long, so the way is a few steps.
        found = block.rfind(delimiter, at, at + record_bytes_max + len(delimiter))
        if found < 0:
            return at
        at = found + len(delimiter)
    return None


def too_long_from_left(block: bytes, delimiter: bytes, record_bytes_max: int, is_last: bool) -> int | None:
    at = 0
    *parts, rest = block.split(delimiter)
    for part in parts:
        if len(part) > record_bytes_max:
            return at
        at += len(part) + len(delimiter)
    enough = record_bytes_max + (1 if is_last else len(delimiter))
    return at if len(rest) >= enough else None


def split(data: bytes, splitting: Splitting) -> list[bytes]:
    """The records of a piece, which begins with a record and ends with one."""
    if not splitting.delimiter:
        return [data] if data else []
    records = data.split(splitting.delimiter)
    rest = records.pop()
    if splitting.cuts_carriage_return:
        records = [record.removesuffix(b"\r") for record in records]
    if rest:
        records.append(rest)
    return records
