"""Brokers as processes, Ottla and Apache Kafka behind one interface: one test or benchmark runs on both.

Each broker's output goes to a file beside its data and stands in the error when it does not start.
Processes are ended by their pid.
"""

import base64
import contextlib
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop.kafka_jars import QUICK_JVM, ensure_jars, java_command, why_no_jars
from tests.interop.wire import answers_metadata

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
POLL_S = 0.002
# the ports that this process has given away
_given: set[int] = set()


@dataclass
class RunningBroker:
    """A broker process. `restart` starts it again on the same port with the same data."""

    name: str
    data_dir: Path
    log_path: Path
    command_for: Callable[[int], Sequence[str]] = field(repr=False)
    find_bootstrap: Callable[[str, int], str | None] = field(repr=False)
    port: int
    bootstrap: str = ""
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    start_seconds: float = 0.0

    @property
    def pid(self) -> int:
        if self.process is None:
            raise RuntimeError(f"{self.name} is not running")
        return self.process.pid

    def launch(self) -> subprocess.Popen[bytes]:
        """Starts the process, and does not wait until the broker serves."""
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                self.command_for(self.port), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        return self.process

    def start(self) -> None:
        """Returns when the broker serves; `start_seconds` is the time that it took."""
        began = time.monotonic()
        log_from = self.log_path.stat().st_size if self.log_path.exists() else 0
        process = self.launch()
        while time.monotonic() < began + START_TIMEOUT_S:
            bootstrap = self.find_bootstrap(self._log_since(log_from), self.port)
            if bootstrap is not None:
                self.start_seconds = time.monotonic() - began
                self.bootstrap, self.port = bootstrap, int(bootstrap.rpartition(":")[2])
                return
            if process.poll() is not None:
                code, self.process = process.returncode, None
                raise RuntimeError(
                    f"{self.name} ended with code {code} before it was ready:\n{self.log_tail()}"
                )
            time.sleep(POLL_S)
        self.kill()
        raise RuntimeError(f"{self.name} was not ready within {START_TIMEOUT_S:.0f} s:\n{self.log_tail()}")

    def kill(self) -> None:
        """kill -9, and waits until the process has ended."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self) -> int:
        """SIGTERM: a clean shutdown. Returns the exit code."""
        if self.process is None:
            return 0
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError(
                f"{self.name} did not stop within {STOP_TIMEOUT_S:.0f} s of SIGTERM:\n{self.log_tail()}"
            ) from None
        self.process = None
        return code

    def restart(self) -> None:
        self.stop()
        self.start()

    def is_alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def cpu_seconds(self) -> float:
        """User and system time of the broker's process so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_kb(self, what: str = "VmRSS") -> int:
        """From the kernel: VmRSS is the current memory of the process, VmHWM its peak."""
        return memory_kb(self.pid, what)

    def log_text(self) -> str:
        return self.log_path.read_text(errors="replace")

    def log_tail(self, lines: int = 40) -> str:
        return "\n".join(self.log_text().splitlines()[-lines:])

    def _log_since(self, position: int) -> str:
        with self.log_path.open("rb") as log:
            log.seek(position)
            return log.read().decode(errors="replace")


def memory_kb(pid: int, what: str = "VmRSS") -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(rf"^{what}:\s+(\d+) kB$", status, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"process {pid} has no {what}: it has ended")
    return int(found[1])


@contextlib.contextmanager
def run_ottla(
    data_dir: Path,
    *,
    set: Mapping[str, str] | None = None,
    port: int = 0,
    command: Sequence[str] = (sys.executable, "-m", "ottla.cli.main"),
    options: Sequence[str] = (),
) -> Iterator[RunningBroker]:
    """Ottla with its data in `data_dir`, ready to serve; `set` are broker properties over the defaults, `options` more
    options of `ottla serve`.
    """
    overrides = [part for name, value in (set or {}).items() for part in ("--set", f"{name}={value}")]

    def command_for(port: int) -> list[str]:
        listen = f"127.0.0.1:{port}"
        return [*command, "serve", "--data", str(data_dir), "--listen", listen, *overrides, *options]

    def find_bootstrap(log: str, port: int) -> str | None:
        ready = re.search(r"^ready (\S+:\d+)$", log, re.MULTILINE)
        return ready[1] if ready else None

    with _running(
        RunningBroker("ottla", data_dir, _log_path(data_dir), command_for, find_bootstrap, port)
    ) as broker:
        yield broker


@contextlib.contextmanager
def run_kafka(
    data_dir: Path,
    *,
    set: Mapping[str, str] | None = None,
    port: int = 0,
    as_shipped: bool = False,
    jvm: Sequence[str] = ("-Xms512m", "-Xmx512m"),
) -> Iterator[RunningBroker]:
    """Apache Kafka, one node in KRaft mode, likewise. Raises RuntimeError if its jars are not available.

    Its JVM is set up for a quick start, or `as_shipped`, for comparisons of speed.
    """
    libs = ensure_jars()
    if libs is None:
        raise RuntimeError(f"Apache Kafka cannot run here: {why_no_jars()}")
    free_port, controller_port = free_ports(2)
    port = port or free_port
    config = Path(f"{data_dir}.server.properties")
    properties = _kafka_properties(data_dir, port, controller_port) | dict(set or {})
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    if not (data_dir / "meta.properties").exists():
        subprocess.run(format_kafka(libs, config, new_cluster_id()), check=True, capture_output=True)

    def command_for(_: int) -> list[str]:
        if as_shipped:
            return serve_kafka(libs, config, "1g")
        return java_command(libs, "kafka.Kafka", str(config), jvm=(*jvm, *QUICK_JVM))

    def find_bootstrap(_: str, port: int) -> str | None:
        bootstrap = f"127.0.0.1:{port}"
        return bootstrap if answers_metadata(bootstrap) else None

    with _running(
        RunningBroker("kafka", data_dir, _log_path(data_dir), command_for, find_bootstrap, port)
    ) as broker:
        yield broker


def new_cluster_id() -> str:
    """It never begins with "-", as Kafka's: a command would take it for an option."""
    return "A" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]


def format_kafka(libs: Path, config: Path, cluster_id: str) -> list[str]:
    """The command that formats the directories of an Apache Kafka node."""
    return java_command(
        libs, "kafka.tools.StorageTool", "format", f"--cluster-id={cluster_id}", "-c", str(config)
    )


def serve_kafka(libs: Path, config: Path, heap: str) -> list[str]:
    """The command that runs an Apache Kafka node, with the collector settings of Kafka's own start script."""
    jvm = (f"-Xms{heap}", f"-Xmx{heap}", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
    tuning = ("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent")
    return java_command(libs, "kafka.Kafka", str(config), jvm=(*jvm, *tuning, "-Djava.awt.headless=true"))


@contextlib.contextmanager
def _running(broker: RunningBroker) -> Iterator[RunningBroker]:
    broker.log_path.parent.mkdir(parents=True, exist_ok=True)
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()


def _log_path(data_dir: Path) -> Path:
    return Path(f"{data_dir}.log")


def free_ports(count: int) -> list[int]:
    """Different ports that are free at the moment, and that no other test of this run gets.

    A server may be down, or need seconds to start: another test that took its port meanwhile would answer in its place.
    Each worker of pytest has ports of its own. All are below those that the system gives to outgoing connections.
    """
    chosen: list[int] = []
    generator = random.SystemRandom()
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    while len(chosen) < count:
        port = generator.randrange(15_000 + worker, 32_000, workers)
        if port in _given:
            continue
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            _given.add(port)
            chosen.append(port)
    return chosen


def _kafka_properties(data_dir: Path, port: int, controller_port: int) -> dict[str, str]:
    """One node that is broker and controller, on loopback, with everything replicated once."""
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": str(data_dir),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
