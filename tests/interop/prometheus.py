"""A real Prometheus: `prometheus` and `promtool` from PATH, or Debian's package without root.

The package is fetched once into `.cache/prometheus` and unpacked there.
"""

import fcntl
import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tests.interop.brokers import free_ports
from tests.interop.librdkafka import wait_until

CACHE = Path(__file__).parents[2] / ".cache" / "prometheus"
PACKAGE = "prometheus"
FETCH_TIMEOUT_S = 300


class Installed(NamedTuple):
    server: Path
    tool: Path


@cache
def find_prometheus() -> Installed | str:
    """The programs, or the reason why there are none."""
    server, tool = shutil.which("prometheus"), shutil.which("promtool")
    if server and tool:
        return Installed(Path(server), Path(tool))
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        return "no prometheus on PATH, and no apt-get and dpkg to fetch Debian's package with"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        # If two test workers come here at once, the second waits for the first and finds the files.
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _unpacked() or _fetch()


def why_no_prometheus() -> str:
    found = find_prometheus()
    return found if isinstance(found, str) else ""


def _unpacked() -> Installed | None:
    programs = CACHE / "root" / "usr" / "bin"
    if not (CACHE / "complete").exists():
        return None
    return Installed(programs / "prometheus", programs / "promtool")


def _fetch() -> Installed | str:
    """The package only: its programs are linked statically, but for libc."""
    packages = CACHE / "packages"
    shutil.rmtree(packages, ignore_errors=True)
    packages.mkdir()
    try:
        _run(["apt-get", "download", PACKAGE], packages)
        for package in packages.glob("*.deb"):
            _run(["dpkg", "-x", str(package), str(CACHE / "root")], packages)
    except (OSError, subprocess.SubprocessError) as error:
        detail = getattr(error, "stderr", "") or str(error)
        return f"no prometheus on PATH, and Debian's package could not be fetched: {detail.strip()[-300:]}"
    (CACHE / "complete").touch()
    return _unpacked() or f"Debian's package {PACKAGE} has no server"


def _run(command: list[str], folder: Path) -> None:
    subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=True)


def promtool(*arguments: str | Path) -> str:
    """The output of promtool. Raises AssertionError with it if promtool finds a mistake."""
    found = find_prometheus()
    assert isinstance(found, Installed), found
    done = subprocess.run([found.tool, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


class Prometheus:
    """A server that runs."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, path: str, **parameters: str) -> Any:
        """The data of an answer of the HTTP API. Raises urllib.error.HTTPError for an expression that is wrong."""
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=30) as response:
            return json.loads(response.read())["data"]

    def query(self, expression: str) -> list[Any]:
        """The series of an expression at this moment."""
        found: list[Any] = self.ask("query", query=expression)["result"]
        return found


@contextmanager
def run_prometheus(config: Path, folder: Path) -> Iterator[Prometheus]:
    """Serves on a free port when the block begins; ends with it."""
    found = find_prometheus()
    assert isinstance(found, Installed), found
    address = f"127.0.0.1:{free_ports(1)[0]}"
    options = {
        "config.file": config,
        "storage.tsdb.path": folder / "prometheus",
        "web.listen-address": address,
    }
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [found.server, *(f"--{name}={value}" for name, value in options.items())], stdout=log, stderr=log
        )
    try:
        wait_until(lambda: _is_ready(address, process), "Prometheus is ready")
        assert process.poll() is None, (folder / "prometheus.log").read_text()[-2000:]
        yield Prometheus(f"http://{address}")
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _is_ready(address: str, process: "subprocess.Popen[bytes]") -> bool:
    if process.poll() is not None:
        return True  # it has failed; the caller looks
    try:
        with urllib.request.urlopen(f"http://{address}/-/ready", timeout=5):
            return True
    except OSError:
        time.sleep(0.05)
        return False
