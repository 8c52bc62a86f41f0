"""Work that would take the processor from the event loop for seconds: compaction. It runs in processes of its own.

A child is started when there is work and none is free, and serves one piece of work after the other. It is a
plain `python -m`, not a fork or a spawn of `multiprocessing`: a program that embeds a broker is not run again in it.
"""

import asyncio
import os
import pickle
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Processes(Protocol):
    def stream(self, work: Callable[[], Iterator[T]]) -> AsyncGenerator[T, None]:
        """What `work` yields, as it comes; `work` must survive pickling. Its errors are raised here.

        Closing the generator before its end ends the work, wherever it is.
        """
        ...

    def release(self) -> None:
        """Lets go of what has nothing to do."""
        ...

    def close(self) -> None: ...


class ChildProcesses:
    def __init__(self) -> None:
        self._idle: list[_Child] = []
        self._busy: set[_Child] = set()

    async def stream(self, work: Callable[[], Iterator[T]]) -> AsyncGenerator[T, None]:
        loop = asyncio.get_running_loop()
        child = self._idle.pop() if self._idle else _Child()
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
                self._idle.append(child)
            else:
                child.end()

    def release(self) -> None:
        while self._idle:
            self._idle.pop().end()

    def close(self) -> None:
        self.release()
        for child in self._busy:
            child.end()


class _Child:
    def __init__(self) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            # numpy's linear algebra is not used, and need not bring a thread for every core.
            "OPENBLAS_NUM_THREADS": "1",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ottla.env.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )

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
                f"a worker process ended with status {status}: see what it wrote to standard error, or whether the "
                "system ended it for its memory"
            ) from None
        return kind, item

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:  # what was to be written has no reader any more
                    pass
