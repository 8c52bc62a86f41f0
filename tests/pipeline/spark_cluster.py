"""A real Spark cluster from the installed pyspark: a master and workers as processes, ended with all they started."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyspark
from tests.interop.brokers import free_ports

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
EXECUTOR = "CoarseGrainedExecutorBackend"
START_TIMEOUT_S = 90
TAIL_BYTES = 6_000


@dataclass
class SparkCluster:
    folder: Path
    workers: int = 2
    # of each worker
    cores: int = 1
    port: int = field(default_factory=lambda: free_ports(1)[0])
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list, repr=False)

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Returns when the master knows all workers."""
        self._run("master", MASTER, "--host", "127.0.0.1", "--port", str(self.port), "--webui-port", "0")
        self._until("master", "I have been elected leader", 1)
        for number in range(self.workers):
            name = f"worker-{number}"
            place = ("--host", "127.0.0.1", "--webui-port", "0", "--work-dir", str(self.folder / name))
            self._run(name, WORKER, *place, "--cores", str(self.cores), "--memory", "1g", self.url)
        self._until("master", "Registering worker", self.workers)

    def _run(self, name: str, kind: str, *arguments: str) -> None:
        environment = {
            **os.environ,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        with self.log(name).open("wb") as log:
            process = subprocess.Popen(
                [str(SPARK_CLASS), kind, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        self.processes.append(process)

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _until(self, name: str, text: str, times: int) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while self.log(name).read_text(errors="replace").count(text) < times:
            if time.monotonic() > deadline:
                raise RuntimeError(f"Spark's {name} did not come up:\n{self.tails()}")
            time.sleep(0.05)

    def executors(self) -> list[int]:
        """The pids of the executors that run now."""
        sessions = {process.pid for process in self.processes}
        return [
            pid for pid, session, command in all_processes() if session in sessions and EXECUTOR in command
        ]

    def stop(self) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def tails(self) -> str:
        return "\n".join(f"--- {path.name}\n{tail(path)}" for path in sorted(self.folder.rglob("*.log")))


def all_processes() -> Iterator[tuple[int, int, str]]:
    """pid, session and command line."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                pid = int(entry.name)
                yield (
                    pid,
                    os.getsid(pid),
                    (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"),
                )


def tail(path: Path) -> str:
    return path.read_bytes()[-TAIL_BYTES:].decode(errors="replace")


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """kill -9 of a process that leads its own session, and of all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def started(command: Sequence[str], log: Path, folder: Path) -> subprocess.Popen[bytes]:
    """A process that leads its own session, its output appended to `log`."""
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder,
            start_new_session=True,
        )
