"""The other end of `ottla.env.processes`: takes work from standard input and puts what it yields on standard output."""

import gc
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any, BinaryIO

# Traffic comes first: the broker's event loop gets the processor when both want it. With Linux's SCHED_IDLE instead,
# half of all records took a second and more on a busy machine: probably because a worker that stands still in the midst
# of a write holds what the broker's own writes need.
_NICENESS = 5
# Work of numpy makes few objects and no cycles: looking for those more often than this is wasted.
_GC_THRESHOLD = 50_000

Work = Callable[[], Iterator[Any]]


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a key press is for the broker, which ends us
    os.nice(_NICENESS)
    gc.set_threshold(_GC_THRESHOLD)
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not get between the answers
    waiting: SimpleQueue[Work] = SimpleQueue()
    threading.Thread(target=_read, args=(sys.stdin.buffer, waiting), daemon=True).start()
    while True:
        _answer(waiting.get(), output)


def _read(source: BinaryIO, waiting: "SimpleQueue[Work]") -> None:
    """Ends the process with the broker, also in the midst of work: two cleaners must never write the same files."""
    while True:
        try:
            waiting.put(pickle.load(source))
        except (EOFError, OSError):
            os._exit(0)


def _answer(work: Work, output: BinaryIO) -> None:
    try:
        for item in work():
            _send(output, "item", item)
        _send(output, "end", None)
    except Exception as error:
        try:
            _send(output, "error", error)
        except (pickle.PicklingError, TypeError):
            _send(output, "error", RuntimeError(repr(error)))


def _send(output: BinaryIO, kind: str, item: Any) -> None:
    output.write(pickle.dumps((kind, item)))
    output.flush()


if __name__ == "__main__":
    main()
