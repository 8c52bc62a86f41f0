"""What Spark's checkpoint says of how far a source has come, read without Spark."""

import json
from pathlib import Path
from typing import Any


def last_offset(checkpoint: Path) -> dict[str, Any] | None:
    """The offset up to which the newest planned batch of the one source goes; None before the first."""
    batches = [int(path.name) for path in (checkpoint / "offsets").glob("*") if path.name.isdigit()]
    if not batches:
        return None
    lines = (checkpoint / "offsets" / str(max(batches))).read_text().splitlines()
    offset: dict[str, Any] = json.loads(lines[-1])
    return offset
