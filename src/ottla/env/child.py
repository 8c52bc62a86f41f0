"""The other end of `ottla.env.processes`: takes work from standard input and puts what it yields on standard output.

Traffic comes first: where the machine has some processor left, the work takes only what nobody else wants. On a machine
that has none left it goes on with a low priority instead: it is delayed then, and not stopped.
"""

import gc
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, BinaryIO, NamedTuple

_NICENESS = 5
# Work that waits for a processor less than the one share of its time begins to give way; with more than the other it
# is starved, and stops that. What it had is judged in pieces of some length, since waiting comes in slices.
_WAITS_LITTLE, _WAITS_TOO_LONG, _JUDGED_NS = 0.5, 0.9, 50_000_000
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
    manners = Manners()
    with ThreadPoolExecutor(1, initializer=_give_way) as giving_way:
        while True:
            _answer(waiting.get(), output, manners, giving_way)


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


def _answer(work: Work, output: BinaryIO, manners: "Manners", giving_way: ThreadPoolExecutor) -> None:
    try:
        items = work()
        while True:
            step = giving_way.submit(_step, items).result() if manners.give_way else _step(items)
            manners.note(step.ran_ns, step.waited_ns)
            if step.item is _END:
                break
            if step.item is not None:
                _send(output, "item", step.item)
        _send(output, "end", None)
    except Exception as error:
        try:
            _send(output, "error", error)
        except (pickle.PicklingError, TypeError):
            _send(output, "error", RuntimeError(repr(error)))


class _Step(NamedTuple):
    item: Any
    ran_ns: int
    waited_ns: int  # for a processor


_END = object()


def _step(items: Iterator[Any]) -> _Step:
    before = _ran_and_waited_ns()
    item = next(items, _END)
    after = _ran_and_waited_ns()
    return _Step(item, after[0] - before[0], after[1] - before[1])


def _ran_and_waited_ns() -> tuple[int, int]:
    """Of this thread. Zero where the system does not tell: the low priority has to do then."""
    try:
        with open("/proc/thread-self/schedstat") as file:
            ran, waited, _ = file.read().split()
    except OSError:
        return 0, 0
    return int(ran), int(waited)


class Manners:
    """Whether work gives way to everybody else, or only has a low priority."""

    def __init__(self) -> None:
        self.give_way = False
        self._ran_ns = self._waited_ns = 0

    def note(self, ran_ns: int, waited_ns: int) -> None:
        self._ran_ns += ran_ns
        self._waited_ns += waited_ns
        seen_ns = self._ran_ns + self._waited_ns
        if seen_ns >= _JUDGED_NS:
            self.give_way = self._waited_ns / seen_ns < (_WAITS_TOO_LONG if self.give_way else _WAITS_LITTLE)
            self._ran_ns = self._waited_ns = 0


def _send(output: BinaryIO, kind: str, item: Any) -> None:
    output.write(pickle.dumps((kind, item)))
    output.flush()


if __name__ == "__main__":
    main()
