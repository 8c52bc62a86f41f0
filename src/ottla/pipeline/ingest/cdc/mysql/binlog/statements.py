"""What a statement in the binlog does to captured tables: defines, truncates or changes them.

Only the beginning of a statement is parsed: the columns of a table come from the events before its rows.
"""

import re
from typing import NamedTuple

_NAME = r"(?:`(?:[^`]|``)+`|[\w$]+)"
_TABLE = rf"{_NAME}(?:\s*\.\s*{_NAME})?"
_COMMENT = re.compile(r"\s*(?:/\*(?!M?!).*?\*/|--[ \t][^\n]*\n|#[^\n]*\n)", re.DOTALL)
_CONDITIONAL = re.compile(r"\s*/\*M?!\d*(.*?)\*/", re.DOTALL)
_OPENS_TRANSACTION = re.compile(r"(?:BEGIN\b|XA\s+START\b)", re.I)

DEFINE, TRUNCATE, CHANGE = "define", "truncate", "change"
_BEGINNINGS = (
    (TRUNCATE, re.compile(rf"\s*TRUNCATE\s+(?:TABLE\s+)?({_TABLE})", re.I)),
    (
        DEFINE,
        re.compile(rf"\s*ALTER\s+(?:ONLINE\s+)?(?:IGNORE\s+)?TABLE\s+(?:IF\s+EXISTS\s+)?({_TABLE})", re.I),
    ),
    (
        DEFINE,
        re.compile(
            rf"\s*CREATE\s+(?:OR\s+REPLACE\s+)?TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?({_TABLE})",
            re.I,
        ),
    ),
    (DEFINE, re.compile(rf"\s*DROP\s+TABLES?\s+(?:IF\s+EXISTS\s+)?({_TABLE}(?:\s*,\s*{_TABLE})*)", re.I)),
    (
        DEFINE,
        re.compile(
            rf"\s*RENAME\s+TABLES?\s+(?:IF\s+EXISTS\s+)?"
            rf"({_TABLE}\s+TO\s+{_TABLE}(?:\s*,\s*{_TABLE}\s+TO\s+{_TABLE})*)",
            re.I,
        ),
    ),
    (
        CHANGE,
        re.compile(
            rf"\s*(?:INSERT|REPLACE|UPDATE|DELETE)\s+"
            rf"(?:(?:LOW_PRIORITY|DELAYED|HIGH_PRIORITY|QUICK|IGNORE|INTO|FROM)\s+)*({_TABLE})",
            re.I,
        ),
    ),
)


class Statement(NamedTuple):
    """`effect` is DEFINE (the columns may differ from now on), TRUNCATE, or CHANGE (of rows, logged as a statement)."""

    effect: str
    tables: tuple[tuple[str, str], ...]


def opens_transaction(statement: str) -> bool:
    """MySQL logs a BEGIN before the rows of a transaction; one without BEGIN is a single statement."""
    return _OPENS_TRANSACTION.match(statement) is not None


def parse_statement(text: str, database: str) -> Statement | None:
    """None for a statement that touches no table's columns or rows. `database` is the session's."""
    bare = text
    while comment := _COMMENT.match(bare):
        bare = bare[comment.end() :]
    bare = _CONDITIONAL.sub(r"\1", bare, count=1)
    for effect, beginning in _BEGINNINGS:
        found = beginning.match(bare)
        if found:
            names = re.findall(_TABLE, re.sub(r"\s+TO\s+", ", ", found.group(1), flags=re.I))
            return Statement(effect, tuple(_qualify(name, database) for name in names))
    return None


def _qualify(name: str, database: str) -> tuple[str, str]:
    parts = [part.strip("`").replace("``", "`") for part in re.findall(_NAME, name)]
    return (parts[0], parts[1]) if len(parts) == 2 else (database, parts[0])
