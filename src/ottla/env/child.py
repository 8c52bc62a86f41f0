"""The other end of `ottla.env.processes`: takes work from standard input and puts what it yields on standard output.

Traffic comes first: the work gets the processor that nobody else wants. Where that is next to nothing for long, it goes
on with a low priority instead, so that a busy machine delays it but does not stop it.
"""

import gc
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, BinaryIO

_NICENESS = 5
# The share of a processor below which work counts as starved, and how long it is looked at.
_SHARE_MIN, _SHARE_WINDOW_S = 0.1, 5.0
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
    with ThreadPoolExecutor(1, initializer=_give_way) as giving_way:
        while True:
            _answer(waiting.get(), output, giving_way)


def _give_way() -> None:
    """This thread runs where a processor has nothing else to do, and at once gives it back to whoever wakes up.

    A low priority alone would let it finish its slice first, some milliseconds that a record would wait.
    """
    if hasattr(os, "SCHED_IDLE"):  # Linux
        try:
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        except OSError:  # not allowed here: the low priority has to do
            pass


def _read(source: BinaryIO, waiting: "SimpleQueue[Work]") -> None:
    """Ends the process with the broker, also in the midst of work: two cleaners must never write the same files."""
    while True:
        try:
            waiting.put(pickle.load(source))
        except (EOFError, OSError):
            os._exit(0)


def _answer(work: Work, output: BinaryIO, giving_way: ThreadPoolExecutor) -> None:
    try:
        items = work()
        if giving_way.submit(send_items, items, output, Share().is_too_small).result():
            send_items(items, output)
        _send(output, "end", None)
    except Exception as error:
        try:
            _send(output, "error", error)
        except (pickle.PicklingError, TypeError):
            _send(output, "error", RuntimeError(repr(error)))


def _times_s() -> tuple[float, float]:
    """The time, and what this thread had of a processor."""
    return time.monotonic(), time.thread_time()


class Share:
    """How much of a processor a thread gets."""

    def __init__(self, times_s: Callable[[], tuple[float, float]] = _times_s) -> None:
        self._times_s = times_s
        self._since: tuple[float, float] | None = None

    def is_too_small(self) -> bool:
        """Asked by the thread itself, now and then."""
        now_s, got_s = self._times_s()
        since_s, had_s = self._since = self._since or (now_s, got_s)
        if now_s - since_s < _SHARE_WINDOW_S:
            return False
        self._since = now_s, got_s
        return got_s - had_s < (now_s - since_s) * _SHARE_MIN


def send_items(
    items: Iterator[Any], output: BinaryIO, is_starved: Callable[[], bool] = lambda: False
) -> bool:
    """What comes up to the end, or until the thread is starved: True where there may be more."""
    for item in items:
        if item is not None:
            _send(output, "item", item)
        if is_starved():
            return True
    return False


def _send(output: BinaryIO, kind: str, item: Any) -> None:
    output.write(pickle.dumps((kind, item)))
    output.flush()


if __name__ == "__main__":
    main()
