"""How many bytes a stage has written in a run.

Spark reports none of a sink in Python, and commits a batch of one in another process on the driver's machine. So the
sum is in a small file, which that process adds to and the process of the run reads.
"""

import contextlib
from pathlib import Path


class WrittenBytes:
    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, count: int) -> None:
        """At the end of a batch. A query has only one batch at a time, so nobody else adds meanwhile."""
        draft = self.path.with_name(f"{self.path.name}.new")
        # A metric must not stop a stage.
        with contextlib.suppress(OSError):
            draft.write_text(str(self.read() + count))
            draft.replace(self.path)

    def read(self) -> int:
        try:
            return int(self.path.read_text())
        except FileNotFoundError:
            return 0
