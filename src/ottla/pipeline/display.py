"""The display of a running pipeline: a live table at a terminal, or plain lines for a log."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ottla.pipeline.progress import Progress
from ottla.pipeline.runner import Display, StageRun

_LATE = ">DROPPED LATE"
_COLUMNS = ("STAGE", ">ROWS/S", ">ROWS", ">BEHIND", ">BATCH", ">BATCH TIME", ">DEAD LETTERS", _LATE, "STATE")
_STYLES = {"running": "green", "waiting": "yellow", "done": "blue", "failed": "bold red"}


class PlainDisplay:
    """A line for each batch and for each change of a stage's state."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    def changed(self, run: StageRun) -> None:
        self._line(f"{run.name}: {state_of(run)}")

    def batch(self, run: StageRun, progress: Progress) -> None:
        self._line(f"{run.name}: {_batch_line(progress)}")
        if progress.late_rows:
            self._line(f"{run.name}: warning: {_late_rows_warning(progress)}")

    def show(self, runs: Sequence[StageRun]) -> None:
        pass

    def _line(self, text: str) -> None:
        self._write(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {text}")


class _LiveDisplay:
    """One table that is updated in place. Errors are printed above it, one line each."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def changed(self, run: StageRun) -> None:
        if run.state in ("failed", "waiting"):
            self._live.console.print(Text(f"{run.name}: {state_of(run)}", style=_STYLES[run.state]))

    def batch(self, run: StageRun, progress: Progress) -> None:
        pass

    def show(self, runs: Sequence[StageRun]) -> None:
        self._live.update(table_of(runs), refresh=True)


@contextmanager
def display_for(console: Console, *, plain: bool) -> Iterator[Display]:
    if plain:
        yield PlainDisplay(console.print)
        return
    with Live(console=console, auto_refresh=False) as live:
        yield _LiveDisplay(live)


def table_of(runs: Sequence[StageRun]) -> RenderableType:
    table = Table(box=None, header_style="bold", pad_edge=False)
    has_late = any(run.late_rows for run in runs)
    for column in _COLUMNS if has_late else (column for column in _COLUMNS if column != _LATE):
        is_number = column.startswith(">")
        table.add_column(
            column.removeprefix(">"), justify="right" if is_number else "left", no_wrap=is_number
        )
    for run in runs:
        late = [f"{run.late_rows:,}" if run.late_rows else ""] if has_late else []
        cells = [Text(cell) for cell in (*_cells_of(run), *late)]
        table.add_row(*cells, Text(state_of(run), style=_STYLES[run.state]))
    return table


def _cells_of(run: StageRun) -> tuple[str, ...]:
    progress = run.progress
    if progress is None:
        return (run.name, "", "", "", "", "", "")
    return (
        run.name,
        f"{progress.rows_per_second:,.0f}",
        f"{run.rows:,}",
        "" if progress.behind is None else f"{progress.behind:,}",
        str(progress.batch),
        f"{progress.seconds:.1f} s",
        "" if run.dead_letters is None else f"{run.dead_letters:,}",
    )


def _batch_line(progress: Progress) -> str:
    parts = [
        f"batch {progress.batch}",
        f"{progress.rows:,} rows in {progress.seconds:.1f} s",
        f"{progress.rows_per_second:,.0f} rows/s",
    ]
    if progress.behind is not None:
        parts.append(f"{progress.behind:,} behind")
    if progress.dead_letters:
        parts.append(f"{progress.dead_letters:,} dead letters")
    return ", ".join(parts)


def _late_rows_warning(progress: Progress) -> str:
    return (
        f"Batch {progress.batch}: Spark dropped {progress.late_rows:,} rows that came later than the watermark allows."
        " Give `deduplicate` a longer `within`; a replay with it makes these rows again from the raw topic."
    )


def state_of(run: StageRun) -> str:
    return (
        f"{run.state}: {run.note}" if run.state in ("failed", "waiting") else f"{run.state}, {_note_of(run)}"
    )


def _note_of(run: StageRun) -> str:
    """Spark's status message without its capital letter and without the names of Java classes."""
    words = re.sub(r" from \S*\borg\.apache\.spark\..*", "", run.note)
    return words[:1].lower() + words[1:80]
