"""What a statement in the binlog means for captured tables: which tables it defines anew, empties, or changes.

Only the head of a statement is read: the columns of a table come from the events that carry its rows.
"""

import re
from typing import NamedTuple

NAME = r"(?:`(?:[^`]|``)+`|[\w$]+)"
TABLE = rf"{NAME}(?:\s*\.\s*{NAME})?"
COMMENT = re.compile(r"\s*(?:/\*(?!M?!).*?\*/|--[ \t][^\n]*\n|#[^\n]*\n)", re.DOTALL)
CONDITIONAL = re.compile(r"\s*/\*M?!\d*(.*?)\*/", re.DOTALL)
HEADS = (
    ("truncate", re.compile(rf"\s*TRUNCATE\s+(?:TABLE\s+)?({TABLE})", re.I)),
    (
        "define",
        re.compile(rf"\s*ALTER\s+(?:ONLINE\s+)?(?:IGNORE\s+)?TABLE\s+(?:IF\s+EXISTS\s+)?({TABLE})", re.I),
    ),
    (
        "define",
        re.compile(
            rf"\s*CREATE\s+(?:OR\s+REPLACE\s+)?TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?({TABLE})",
            re.I,
        ),
    ),
    ("define", re.compile(rf"\s*DROP\s+TABLES?\s+(?:IF\s+EXISTS\s+)?({TABLE}(?:\s*,\s*{TABLE})*)", re.I)),
    (
        "define",
        re.compile(
            rf"\s*RENAME\s+TABLES?\s+(?:IF\s+EXISTS\s+)?"
            rf"({TABLE}\s+TO\s+{TABLE}(?:\s*,\s*{TABLE}\s+TO\s+{TABLE})*)",
            re.I,
        ),
    ),
    (
        "change",
        re.compile(
            rf"\s*(?:INSERT|REPLACE|UPDATE|DELETE)\s+"
            rf"(?:(?:LOW_PRIORITY|DELAYED|HIGH_PRIORITY|QUICK|IGNORE|INTO|FROM)\s+)*({TABLE})",
            re.I,
        ),
    ),
)


OPENS = re.compile(r"(?:BEGIN\b|XA\s+START\b)", re.I)


class Meaning(NamedTuple):
    """`kind` is "define" (its columns may differ from now on), "truncate", or "change" (rows, as a statement)."""

    kind: str
    tables: tuple[tuple[str, str], ...]


def opens_transaction(statement: str) -> bool:
    """What MySQL writes before the rows; a transaction without it is one statement."""
    return OPENS.match(statement) is not None


def meaning(statement: str, database: str) -> Meaning | None:
    """None for a statement that touches no table's columns or rows. `database` is the session's."""
    bare = statement
    while comment := COMMENT.match(bare):
        bare = bare[comment.end() :]
    bare = CONDITIONAL.sub(r"\1", bare, count=1)
    for kind, head in HEADS:
        found = head.match(bare)
        if found:
            names = re.findall(TABLE, re.sub(r"\s+TO\s+", ", ", found.group(1), flags=re.I))
            return Meaning(kind, tuple(qualified(name, database) for name in names))
    return None


def qualified(name: str, database: str) -> tuple[str, str]:
    parts = [part.strip("`").replace("``", "`") for part in re.findall(NAME, name)]
    return (parts[0], parts[1]) if len(parts) == 2 else (database, parts[0])
