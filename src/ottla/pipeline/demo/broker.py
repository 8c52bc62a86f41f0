"""The tour's broker: `ottla serve` as a child process, which ends with the tour."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ottla.pipeline.errors import PipelineError

_START_S = 30.0
_STOP_S = 30.0
_POLL_S = 0.02


@contextmanager
def running_broker(data: Path, listen: str, log: Path) -> Iterator[str]:
    """Yields the address at which it listens."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "ottla.cli.main", "serve", "--data", str(data), "--listen", listen],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # Ctrl-C at the terminal must reach the pipeline first: it needs the broker to stop cleanly.
            start_new_session=True,
        )
    try:
        yield _wait_until_ready(process, log)
    finally:
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_ready(process: "subprocess.Popen[bytes]", log: Path) -> str:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        text = log.read_text(errors="replace")
        ready = re.search(r"^ready (\S+)$", text, re.MULTILINE)
        if ready:
            return ready[1]
        if process.poll() is not None:
            output = " ".join(text.strip().splitlines()[-3:])
            raise PipelineError(
                f"The broker did not start: {output}", "Free its address, or choose another with --listen."
            )
        time.sleep(_POLL_S)
    raise PipelineError(f"The broker was not ready within {_START_S:.0f} s.", f"See {log}.")
