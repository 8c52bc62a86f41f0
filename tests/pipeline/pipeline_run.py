"""A pipeline on a real Spark cluster, run as a person runs it, whose processes are killed while it works."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop.brokers import RunningBroker
from tests.pipeline.spark_cluster import SparkCluster, kill_group, started

KINDS = ("driver", "executor", "broker")


@dataclass
class PipelineRun:
    """The folder of a pipeline, its broker and its Spark cluster. `faults` are those so far."""

    folder: Path
    broker: RunningBroker
    cluster: SparkCluster
    driver: subprocess.Popen[bytes] | None = None
    faults: list[str] = field(default_factory=list)

    @property
    def log(self) -> Path:
        return self.folder / "driver.log"

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "ottla.cli.main", "pipeline", *arguments]

    def start_driver(self) -> None:
        self.driver = started(self.command("run", "--plain"), self.log, self.folder)

    def kill_driver(self) -> None:
        assert self.driver is not None
        kill_group(self.driver)

    def run(self, *arguments: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
        """A command of `ottla pipeline` to its end; a driver that hangs is killed with all that it started."""
        process = subprocess.Popen(
            self.command(*arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.folder,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            kill_group(process)  # type: ignore[arg-type]
            output, _ = process.communicate()
            output += f"\n(killed after {timeout_s} s)"
        return subprocess.CompletedProcess(process.args, process.returncode, output)

    def batches(self) -> int:
        """How many batches are committed, of all stages together. Spark keeps the last 100 files of each."""
        stages = (self.folder / "checkpoints").glob("*/commits")
        return sum(
            1 + max((int(path.name) for path in stage.iterdir() if path.name.isdigit()), default=-1)
            for stage in stages
        )

    def until_batches(self, count: int, timeout_s: float) -> None:
        """Waits until `count` more are committed."""
        wanted = self.batches() + count
        self.until(lambda: self.batches() >= wanted, f"{count} more batches", timeout_s)

    def until(self, condition: Callable[[], bool], what: str, timeout_s: float, poll_s: float = 0.1) -> None:
        """Waits, and restarts a driver that has ended."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"no {what} in {timeout_s} s after {self.faults}\n{self.story()}")
            if self.driver is not None and self.driver.poll() is not None:
                self.faults.append("driver ended by itself")
                self.start_driver()
            time.sleep(poll_s)

    def fault(self, kind: str, chance: random.Random) -> None:
        """Kills the process of one of KINDS, or all executors, and starts it again. Spark restarts executors."""
        self.faults.append(kind)
        if kind == "driver":
            self.kill_driver()
            self.start_driver()
        elif kind == "executor":
            executors = self.cluster.executors()
            if executors:
                kill(chance.choice(sorted(executors)))
        elif kind == "executors":
            for executor in self.cluster.executors():
                kill(executor)
        else:
            self.broker.kill()
            self.broker.start()

    def story(self) -> str:
        return f"--- driver.log\n{self.log.read_bytes()[-15_000:].decode(errors='replace')}\n{self.cluster.tails()}"


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
