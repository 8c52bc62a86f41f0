"""An archive of Apache Kafka's classes, written once, so that the JVMs of the tests start with half the processor time.

A node loads most classes that the tools need, so one archive, written when a node stops, serves both.
"""

import fcntl
import subprocess
import tempfile
from pathlib import Path

from tests.interop.brokers import run_kafka
from tests.interop.kafka_jars import CLASS_ARCHIVE

_LOCK = CLASS_ARCHIVE.with_suffix(".lock")
_FAILURE = CLASS_ARCHIVE.with_suffix(".failure")


def ensure_class_archive() -> None:
    """Writes the archive if there is none. Without it everything works, but takes longer."""
    CLASS_ARCHIVE.parent.mkdir(parents=True, exist_ok=True)
    with _LOCK.open("w") as lock:
        # Two test workers may need it at once: the second waits for the first and finds it.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if CLASS_ARCHIVE.exists() or _FAILURE.exists():
            return
        try:
            _write()
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            _FAILURE.write_text(f"{error}\n")


def _write() -> None:
    partial = CLASS_ARCHIVE.with_suffix(".partial")
    with tempfile.TemporaryDirectory() as scratch:
        options = ("-Xmx512m", f"-XX:ArchiveClassesAtExit={partial}")
        with run_kafka(Path(scratch) / "data", jvm=options) as node:
            node.stop()
    partial.rename(CLASS_ARCHIVE)
