"""Child processes for work that needs the processor for seconds: compaction.

A child starts when there is work and no child is idle. It runs one work after the other, and stays for some time after
the last, because a start takes a quarter of a second. It is a plain `python -m`, not a process of `multiprocessing`,
which would run the main module of a program that embeds a broker again.
"""

import asyncio
import os
import pickle
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from ottla.env.throttle import SharedThrottle

T = TypeVar("T")

# How long an idle child is kept.
_IDLE_S = 60.0
# The child keeps freed memory for its next step. Otherwise the system would take it back and clear it again.
_KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(256 << 20)}


class ProcessThrottle(Protocol):
    def set_limit(self, bytes_per_second: float) -> None: ...

    def __call__(self, size: int) -> None:
        """Called by the work: counts `size` bytes and waits until they are allowed."""
        ...


class Processes(Protocol):
    def stream(self, work: Callable[[], Iterator[T]]) -> AsyncGenerator[T, None]:
        """Runs `work`, which must be picklable, in a child process; yields its items and raises its errors.

        Closing the generator before its end kills the child.
        """
        ...

    def throttle(self) -> ProcessThrottle:
        """The throttle that all work shares; it can be pickled with the work."""
        ...

    def end_idle(self) -> None:
        """Ends the children that have been idle for some time, without waiting for their exit."""
        ...

    def close(self) -> None: ...


class ChildProcesses:
    def __init__(self, idle_s: float = _IDLE_S) -> None:
        self._idle_s = idle_s
        self._idle: list[_Child] = []
        self._busy: set[_Child] = set()
        self._throttle: SharedThrottle | None = None

    def throttle(self) -> "SharedThrottle":
        if self._throttle is None:
            from ottla.env.throttle import SharedThrottle

            self._throttle = SharedThrottle.create()
        return self._throttle

    async def stream(self, work: Callable[[], Iterator[T]]) -> AsyncGenerator[T, None]:
        loop = asyncio.get_running_loop()
        child = self._take()
        self._busy.add(child)
        is_done = False
        try:
            await loop.run_in_executor(None, child.send, work)
            while True:
                kind, item = await loop.run_in_executor(None, child.receive)
                if kind == "item":
                    yield item
                    continue
                is_done = True
                if kind == "error":
                    raise item
                return
        finally:
            self._busy.discard(child)
            if is_done:
                child.idle_since_s = time.monotonic()
                self._idle.append(child)
            else:
                child.end()

    def _take(self) -> "_Child":
        while self._idle:
            child = self._idle.pop()
            if child.is_alive():
                return child
            child.end()
        return _Child(self.throttle().descriptor)

    def end_idle(self) -> None:
        limit_s = time.monotonic() - self._idle_s
        for child in [child for child in self._idle if child.idle_since_s <= limit_s]:
            self._idle.remove(child)
            # In a thread, because the system needs tens of milliseconds to free the memory of a process.
            asyncio.get_running_loop().run_in_executor(None, child.end)

    def close(self) -> None:
        for child in (*self._idle, *self._busy):
            child.end()
        self._idle.clear()
        if self._throttle is not None:
            self._throttle.close()
            self._throttle = None


class _Child:
    def __init__(self, inherited: int) -> None:
        self.idle_since_s = 0.0
        environment = {
            **os.environ,
            **_KEEP_MEMORY,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            # Without this, numpy starts a thread per core for linear algebra, which nobody uses here.
            "OPENBLAS_NUM_THREADS": "1",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ottla.env.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            pass_fds=(inherited,),
        )

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def send(self, work: Callable[[], Iterator[Any]]) -> None:
        assert self._process.stdin is not None
        pickle.dump(work, self._process.stdin)
        self._process.stdin.flush()

    def receive(self) -> tuple[str, Any]:
        """Blocks. ("item", something), ("error", an exception) or ("end", None)."""
        assert self._process.stdout is not None
        try:
            kind, item = pickle.load(self._process.stdout)
        except (EOFError, pickle.UnpicklingError):
            status = self._process.wait()
            raise ChildProcessError(
                f"a child process ended with status {status}. Check its output on standard error, and whether the "
                "system killed it because memory ran out"
            ) from None
        return kind, item

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:  # unwritten bytes have no reader any more
                    pass
