"""`ottla cluster up` as a process, for the tests of the commands that run and restart local clusters."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

COMMAND = (sys.executable, "-m", "ottla.cli.main")
TIMEOUT_S = 120.0
# What `ottla serve` says while it supports only a quorum of one node.
NOT_SUPPORTED = ("quorum of several nodes is not supported", "a node with one role is not supported")


def ottla(*arguments: str, stdin: str = "") -> str:
    done = subprocess.run(
        [*COMMAND, *arguments], input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {TIMEOUT_S:.0f} s in vain until {what}"
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


class Up:
    """A running `ottla cluster up`."""

    def __init__(self, folder: Path, number: int, options: Sequence[str]) -> None:
        self.out, self.err = folder / f"{number}.out", folder / f"{number}.err"
        with self.out.open("wb") as out, self.err.open("wb") as err:
            command = [*COMMAND, "cluster", "up", "--data", str(folder / "cluster"), "--json", *options]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        wait_until(lambda: "\n" in self.out.read_text() or self.process.poll() is not None, "it is ready")
        if self.process.poll() is not None:
            reason = self.err.read_text()
            if any(text in reason for text in NOT_SUPPORTED):
                pytest.skip(f"this version runs clusters of one node only: {reason.splitlines()[-1].strip()}")
            pytest.fail(f"it ended with code {self.process.returncode}: {reason}")
        self.ready: dict[str, Any] = json.loads(self.out.read_text().splitlines()[0])

    @property
    def bootstrap(self) -> str:
        return str(self.ready["ready"])

    @property
    def pids(self) -> dict[int, int]:
        return {node["id"]: node["pid"] for node in self.ready["nodes"]}

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(TIMEOUT_S)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for pid in self.pids.values() if hasattr(self, "ready") else ():
            wait_until(lambda pid=pid: not is_running(pid), "every node has ended")  # type: ignore[misc]


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Callable[..., Up]]:
    """Starts `ottla cluster up` with these options; all that it starts in one test have the same folder."""
    started: list[Up] = []

    def start(*options: str) -> Up:
        started.append(Up(tmp_path, len(started), ("--listen", "127.0.0.1:0", *options)))
        return started[-1]

    yield start
    for cluster in started:
        cluster.close()
