"""One node of a cluster as a process, Ottla or Apache Kafka: both are formatted and run from a server.properties."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop.brokers import STOP_TIMEOUT_S
from tests.interop.kafka_jars import QUICK_JVM, ensure_jars, java_command, why_no_jars
from tests.interop.network_hosts import Host

OTTLA, KAFKA = "ottla", "kafka"
BROKER, CONTROLLER, COMBINED = "broker", "controller", "broker,controller"
OTTLA_COMMAND = (sys.executable, "-m", "ottla.cli.main")
# Ottla has neither share groups nor streams groups, so a cluster that it joins must not have them either.
FEATURES = ("share.version=0", "streams.version=0")
THIS_MACHINE = Host("127.0.0.1", ())
# Several Java processes share the machine with everything else.
KAFKA_JVM = ("-Xms256m", "-Xmx256m", "-server", *QUICK_JVM)


@dataclass
class ClusterNode:
    """`port` is that of clients, `controller_port` that of the quorum; 0 if the node does not have the role."""

    node_id: int
    kind: str
    roles: str
    data_dir: Path
    port: int
    controller_port: int
    host: Host = THIS_MACHINE
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    is_paused: bool = False
    features: tuple[str, ...] = FEATURES  # with which a node of Apache Kafka is formatted

    @property
    def bootstrap(self) -> str:
        return f"{self.host.address}:{self.port}"

    @property
    def controller_address(self) -> str:
        return f"{self.host.address}:{self.controller_port}"

    @property
    def config_path(self) -> Path:
        return Path(f"{self.data_dir}.properties")

    @property
    def log_path(self) -> Path:
        return Path(f"{self.data_dir}.log")

    @property
    def is_broker(self) -> bool:
        return "broker" in self.roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.roles

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None and not self.is_paused

    @property
    def metadata_log(self) -> Path:
        return self.data_dir / "__cluster_metadata-0"

    def write_config(self, properties: Mapping[str, str]) -> None:
        self.config_path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))

    def format(self, cluster_id: str, *flags: str) -> subprocess.Popen[bytes]:
        """Starts to format the directory; `Cluster` waits, because several nodes are formatted at the same time."""
        arguments = ["--cluster-id", cluster_id, "--config", str(self.config_path), *flags]
        if self.kind == KAFKA:
            features = [part for feature in self.features for part in ("--feature", feature)]
            command = java_command(_libs(), "kafka.tools.StorageTool", "format", *arguments, *features)
        else:
            command = [*OTTLA_COMMAND, "format", *arguments]
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    def start(self) -> None:
        """Does not wait: a node waits for the others."""
        if self.kind == KAFKA:
            command = java_command(_libs(), "kafka.Kafka", str(self.config_path), jvm=KAFKA_JVM)
        else:
            command = [*OTTLA_COMMAND, "serve", "--config", str(self.config_path)]
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.host.prefix, *command], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )

    def kill(self) -> None:
        """kill -9, and waits until the process has ended."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process, self.is_paused = None, False

    def stop(self) -> int:
        """SIGTERM: a controlled shutdown. Returns the exit code."""
        assert self.process is not None, f"{self} does not run"
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(
                f"{self} did not stop within {STOP_TIMEOUT_S:.0f} s of SIGTERM:\n{self.log_tail()}"
            ) from None
        self.process = None
        return code

    def pause(self) -> None:
        """SIGSTOP: the process is silent, but its connections stay open."""
        self._signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        self._signal(signal.SIGCONT)
        self.is_paused = False

    def log_text(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def log_tail(self, lines: int = 40) -> str:
        return "\n".join(self.log_text().splitlines()[-lines:])

    def log_files(self, topic: str, partition: int) -> dict[str, bytes]:
        """The segments of a partition: name and content."""
        folder = self.data_dir / f"{topic}-{partition}"
        return {path.name: path.read_bytes() for path in sorted(folder.glob("*.log"))}

    def _signal(self, number: int) -> None:
        assert self.process is not None, f"{self} does not run"
        os.kill(self.process.pid, number)

    def __str__(self) -> str:
        return f"{self.kind} node {self.node_id} ({self.roles})"


def _libs() -> Path:
    libs = ensure_jars()
    if libs is None:
        raise RuntimeError(f"Apache Kafka cannot run here: {why_no_jars()}")
    return libs
