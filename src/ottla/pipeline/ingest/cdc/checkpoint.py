"""Reads Spark's checkpoint of a source without Spark."""

import json
from pathlib import Path
from typing import Any


def last_offset(checkpoint: Path) -> dict[str, Any] | None:
    """The end offset of the newest planned batch; None before the first batch."""
    batches = [int(path.name) for path in (checkpoint / "offsets").glob("*") if path.name.isdigit()]
    if not batches:
        return None
    lines = (checkpoint / "offsets" / str(max(batches))).read_text().splitlines()
    offset: dict[str, Any] = json.loads(lines[-1])
    return offset
