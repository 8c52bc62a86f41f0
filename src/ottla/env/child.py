"""The main program of a child process: reads work from standard input and writes its results to standard output.

`ottla.env.processes` starts it.
"""

import gc
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any, BinaryIO

# Clients come first: the broker's event loop gets the processor when both want it. With Linux's SCHED_IDLE instead,
# half of all records took a second or more on a busy machine, probably because a child that is suspended during a
# write holds locks of the file system that the broker's writes need.
_NICENESS = 5
# Work with numpy creates few objects and no reference cycles, so frequent garbage collections are a waste.
_GC_THRESHOLD = 50_000

Work = Callable[[], Iterator[Any]]


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the broker, which ends its children
    os.nice(_NICENESS)
    gc.set_threshold(_GC_THRESHOLD)
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # printed text must not get between the results
    queue: SimpleQueue[Work] = SimpleQueue()
    threading.Thread(target=_read, args=(sys.stdin.buffer, queue), daemon=True).start()
    while True:
        _run(queue.get(), output)


def _read(source: BinaryIO, queue: "SimpleQueue[Work]") -> None:
    """Ends the process when the broker ends, even during work: two cleaners must never write the same files."""
    while True:
        try:
            queue.put(pickle.load(source))
        except (EOFError, OSError):
            os._exit(0)


def _run(work: Work, output: BinaryIO) -> None:
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
