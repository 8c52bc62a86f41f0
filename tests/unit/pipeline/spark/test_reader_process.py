"""The process of a stream's reader ends without a stack trace if Spark closes its connection."""

import subprocess
import sys

import pytest

from ottla.pipeline.spark.reader_process import RUNNER

PROCESS = """
import sys
from types import SimpleNamespace
from ottla.pipeline.spark.reader_process import QueryReader

class Reader(QueryReader):
    getDefaultReadLimit = latestOffset = initialOffset = partitions = read = prepareForTriggerAvailableNow = None

sys.modules["__main__"].__spec__ = SimpleNamespace(name={name!r})
Reader().stop()
raise {error}
"""


def end_of_process(error: str, name: str = RUNNER) -> str:
    code = PROCESS.format(error=error, name=name)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr


@pytest.mark.parametrize(
    "error", ["BrokenPipeError(32, 'Broken pipe')", "ConnectionResetError(104, 'reset')"]
)
def test_a_closed_connection_prints_nothing(error: str) -> None:
    assert end_of_process(error) == ""


def test_another_error_is_printed() -> None:
    assert end_of_process("ValueError('a bug')").endswith("ValueError: a bug\n")


def test_a_stop_in_another_process_changes_nothing() -> None:
    assert "BrokenPipeError" in end_of_process("BrokenPipeError(32, 'Broken pipe')", name="pytest")
