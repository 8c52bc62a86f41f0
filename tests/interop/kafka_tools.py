"""Runs Apache Kafka's own command line tools, unmodified, from its jars."""

import subprocess
from pathlib import Path

from tests.interop.kafka_jars import java_command

TIMEOUT_S = 120


class Tools:
    """Runs one of Kafka's tools against the brokers and returns what it printed."""

    def __init__(self, libs: Path, bootstrap: str) -> None:
        self._libs = libs
        self._bootstrap = bootstrap

    def run(self, main_class: str, *args: str, stdin: str = "", classpath: str = "") -> str:
        command = java_command(self._libs, main_class, *args, classpath=classpath)
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        said = f"{done.stdout}\n{done.stderr}"
        assert done.returncode == 0, f"{main_class} {' '.join(args)} ended with {done.returncode}:\n{said}"
        return done.stdout

    def __call__(self, tool: str, *args: str, stdin: str = "") -> str:
        return self.run(tool, "--bootstrap-server", self._bootstrap, *args, stdin=stdin)
