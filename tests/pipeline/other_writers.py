"""What another program may do to the Delta table of an archive, here with delta-rs. It is rejected."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

OTHER = pa.Table.from_pylist([{"offset": 99, "date": "2026-01-31", "hour": 7}])
FEATURE = "ottlaArchive"

WRITES: dict[str, Callable[[Path], Any]] = {
    "append": lambda table: write_deltalake(table, OTHER, mode="append", schema_mode="merge"),
    "overwrite": lambda table: write_deltalake(table, OTHER, mode="overwrite", schema_mode="overwrite"),
    "delete": lambda table: DeltaTable(table).delete("offset < 5"),
    "update": lambda table: DeltaTable(table).update({"offset": "0"}),
    "optimize": lambda table: DeltaTable(table).optimize.compact(),
    "vacuum": lambda table: vacuum(table, full=False),
    "vacuum all": lambda table: vacuum(table, full=True),
}
# These find nothing to do at some moments: in an empty table, or after a checkpoint, which has no removed files.
MAY_DO_NOTHING = ("delete", "update", "optimize", "vacuum", "vacuum all")


def vacuum(table: Path, *, full: bool) -> None:
    """Of all files that the table does not list."""
    DeltaTable(table).vacuum(0, dry_run=False, enforce_retention_duration=False, full=full)


def try_to_write(table: Path) -> int:
    """How many of the writes were rejected."""
    rejected = 0
    for name, write in WRITES.items():
        try:
            write(table)
        except DeltaError as error:
            if FEATURE not in str(error):
                raise
            rejected += 1
        else:
            assert name in MAY_DO_NOTHING, f"{name} was not rejected"
    return rejected
