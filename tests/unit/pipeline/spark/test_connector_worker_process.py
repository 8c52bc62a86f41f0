"""What a Python process of an executor spares itself, task after task."""

import gc
import subprocess
import sys

import pytest

from ottla.pipeline.spark import worker_process
from ottla.pipeline.spark.worker_process import keep_imports

# A topic whose one record has a key, no value, and a header: every kind of column.
READS = """
import sys
from ottla.pipeline.spark.offsets import OffsetRange
from ottla.pipeline.spark.record_rows import rows_of, whole_batches
from ottla.pipeline.spark.rows import Extras
from ottla.records.columns import PADDING
from ottla.records.records import Record, build_batch

record = Record(0, 1, b"key", None, (("name", b"value"),))
data = bytearray(build_batch([record]) + PADDING)
batches = whole_batches(data, 0, len(data) - len(PADDING))
rows = rows_of(data, batches, OffsetRange("raw", 0, 0, 1), Extras(headers=True, leader_epoch=True))
assert rows.num_rows == 1
print("pandas" in sys.modules)
"""


def test_a_process_that_reads_records_does_not_import_pandas() -> None:
    """It would take longer than the rest of a small task."""
    done = subprocess.run(
        [sys.executable, "-c", READS], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.split() == ["False"], done.stderr


def test_imported_modules_are_left_out_of_collections_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_process, "_modules", 0)
    frozen: list[int] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(len(sys.modules)))
    keep_imports()
    keep_imports()
    assert frozen == [len(sys.modules)]
    monkeypatch.setitem(sys.modules, "imported_later", sys)
    keep_imports()
    assert frozen == [len(sys.modules) - 1, len(sys.modules)]
