"""Shows how far a reassignment is: a progress bar on a terminal, lines or JSON otherwise."""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ottla.admin.cluster import ClusterError
from ottla.cli.output import CommandError, print_json

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster
    from ottla.admin.reassignment_runs import Run
    from ottla.admin.reassignments import Progress
    from ottla.model.ids import TopicPartition

_POLL_S = 0.5
# Brokers learn the end of a move a moment after the controller, which says what moves.
_SETTLE_S = 10.0
_RETRY_S = 60.0
_LINE_EVERY_S = 5.0
# The rate is that of the last polls.
_POLLS = 20
T = TypeVar("T")


class Rate(NamedTuple):
    """`seconds_left` is None while nothing is copied."""

    bytes_per_second: int
    seconds_left: int | None


class RateMeter:
    def __init__(self) -> None:
        self._polls: deque[tuple[float, int]] = deque(maxlen=_POLLS)

    def update(self, progress: "Progress", now_s: float) -> Rate:
        self._polls.append((now_s, progress.copied_bytes))
        first_s, first_bytes = self._polls[0]
        elapsed_s = now_s - first_s
        rate = max(0, int((progress.copied_bytes - first_bytes) / elapsed_s)) if elapsed_s > 0 else 0
        left = progress.total_bytes - progress.copied_bytes
        return Rate(rate, -(-left // rate) if rate else None)


def wait_until_complete(cluster: "Cluster", run: "Run", *, as_json: bool) -> None:
    meter = RateMeter()
    with _display(as_json) as show:
        while True:
            progress = retry(lambda: run.progress(cluster))
            show(progress, meter.update(progress, time.monotonic()))
            if not progress.moving:
                return
            time.sleep(_POLL_S)


def retry(action: Callable[[], T]) -> T:
    """Until the cluster serves it, for a minute: a node may restart. The move does not need this program."""
    deadline = time.monotonic() + _RETRY_S
    while True:
        try:
            return action()
        except ClusterError as error:
            if time.monotonic() > deadline:
                raise CommandError(
                    f"{error}\n  The partitions move on. Run: ottla reassign verify PLAN"
                ) from None
        time.sleep(_POLL_S)


def unfinished(cluster: "Cluster", run: "Run") -> "dict[TopicPartition, str]":
    """The partitions that are not as in the plan, although they do not move any more, with their states."""
    from ottla.admin.reassignment_runs import COMPLETE, verify

    deadline = time.monotonic() + _SETTLE_S
    while True:
        states, _ = retry(lambda: verify(cluster, run.changes, keep_throttles=True))
        left = {partition: state for partition, state in states.items() if state != COMPLETE}
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(_POLL_S)


@contextmanager
def _display(as_json: bool) -> Iterator[Callable[["Progress", Rate], None]]:
    if as_json or not sys.stderr.isatty():
        shown_s = float("-inf")

        def show_line(progress: "Progress", rate: Rate) -> None:
            nonlocal shown_s
            if progress.moving and time.monotonic() - shown_s < _LINE_EVERY_S:
                return
            shown_s = time.monotonic()
            if as_json:
                print_json(progress._asdict() | rate._asdict())
            else:
                print(_line(progress, rate), file=sys.stderr, flush=True)

        yield show_line
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn
    from rich.progress import Progress as ProgressBar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TextColumn("{task.fields[rate]}"),
    )
    with ProgressBar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=None, rate="")

        def show_bar(progress: "Progress", rate: Rate) -> None:
            bar.update(
                task,
                description=f"{progress.moving} partitions",
                completed=progress.copied_bytes,
                total=progress.total_bytes,
                rate=_rate(rate),
            )

        yield show_bar


def _line(progress: "Progress", rate: Rate) -> str:
    copied, total = progress.copied_bytes, progress.total_bytes
    return f"{progress.moving} partitions are moving, {copied} of {total} bytes are copied, {_rate(rate)}"


def _rate(rate: Rate) -> str:
    left = "" if rate.seconds_left is None else f", {rate.seconds_left} s left"
    return f"{rate.bytes_per_second} bytes/s{left}"
