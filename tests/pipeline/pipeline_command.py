"""`ottla pipeline ...` and `ottla demo` as a user runs them: processes, ended by their pid."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

COMMAND = (sys.executable, "-m", "ottla.cli.main")
TIMEOUT_S = 280
STOP_S = 60
LOOK_S = 0.1


def ottla(*arguments: str, fails_with: int = 0, **environment: str) -> str:
    """The stdout of a command, or its stderr if it must fail."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == fails_with, done.stdout + done.stderr
    assert "Traceback" not in done.stdout
    return done.stderr if fails_with else done.stdout


def ottla_asking(spark: SparkSession, *arguments: str) -> str:
    """The stdout of a command that uses Spark."""
    return asked_spark(spark, *arguments).stdout


def asked_spark(spark: SparkSession, *arguments: str) -> Result:
    """A command that uses Spark, run in this process, because starting Spark takes most of the time."""
    from ottla.cli.app import app

    session = contextlib.nullcontext(spark)
    with mock.patch("ottla.pipeline.foreground.open_session", return_value=session):
        done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done


@dataclass
class Running:
    process: "subprocess.Popen[bytes]"
    output: Path

    def text(self) -> str:
        return self.output.read_text(errors="replace")

    def wait_for(self, *parts: str, since: int = 0) -> None:
        """Waits until each of them is in the output, after its first `since` characters."""
        deadline = time.monotonic() + TIMEOUT_S
        while not all(part in self.text()[since:] for part in parts):
            assert self.process.poll() is None, f"it has ended:\n{self.text()}"
            assert time.monotonic() < deadline, f"{parts} did not come:\n{self.text()}"
            time.sleep(LOOK_S)

    def end(self, number: signal.Signals) -> int:
        """The exit code after the signal."""
        self.process.send_signal(number)
        return self.process.wait(TIMEOUT_S)

    def press_ctrl_c(self) -> int:
        """The exit code after SIGINT for each process of its group, which is what a terminal sends."""
        os.killpg(self.process.pid, signal.SIGINT)
        return self.process.wait(TIMEOUT_S)


@contextlib.contextmanager
def running(output: Path, *arguments: str) -> Iterator[Running]:
    with output.open("wb") as file:
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
    try:
        yield Running(process, output)
    finally:
        # The test failed. The process ends those that it started, if it can.
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
