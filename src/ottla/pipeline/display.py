"""The display of a running pipeline: a live table at a terminal, lines of JSON for programs, or plain lines."""

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ottla.pipeline.progress import Progress
from ottla.pipeline.runner import Display, StageRun

_LATE = ">DROPPED LATE"
_COLUMNS = ("STAGE", ">ROWS/S", ">ROWS", ">BEHIND", ">BATCH", ">BATCH TIME", ">DEAD LETTERS", _LATE, "STATE")
_STYLES = {"running": "green", "waiting": "yellow", "done": "blue", "failed": "bold red"}


class Form(Enum):
    """The form of the output."""

    TABLE = "table"
    JSON = "json"
    PLAIN = "plain"


class Output:
    """The stdout of a run. Everything goes through it, so that lines of JSON are nothing else."""

    def __init__(self, console: Console, form: Form) -> None:
        self.console = console
        self.form = form

    def say(self, text: str, event: str, **fields: Any) -> None:
        """`text` for people, or `event` with its fields for programs."""
        if self.form is Form.JSON:
            write_event(event, **fields)
        else:
            self.console.print(text)


def write_event(event: str, **fields: Any) -> None:
    document = {"at": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}", "event": event, **fields}
    print(json.dumps(document, ensure_ascii=False, default=str))
    # A program that reads a pipe wants each event at once.
    sys.stdout.flush()


class JsonDisplay:
    """An event for each batch and for each change of a stage's state."""

    def changed(self, run: StageRun) -> None:
        write_event("state", stage=run.name, state=run.state, note=run.note)

    def batch(self, run: StageRun, progress: Progress) -> None:
        write_event(
            "batch",
            stage=run.name,
            batch=progress.batch,
            rows=progress.rows,
            seconds=progress.seconds,
            rows_per_second=round(progress.rows_per_second, 1),
            behind=progress.behind,
            dead_letters=progress.dead_letters,
            late_rows=progress.late_rows,
        )

    def show(self, runs: Sequence[StageRun]) -> None:
        pass


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
def display_for(output: Output) -> Iterator[Display]:
    if output.form is Form.JSON:
        yield JsonDisplay()
        return
    if output.form is Form.PLAIN:
        yield PlainDisplay(output.console.print)
        return
    with Live(console=output.console, auto_refresh=False) as live:
        yield _LiveDisplay(live)


def table_of(runs: Sequence[StageRun]) -> RenderableType:
    """One line for each stage. At a narrow terminal the names and states are cut, never the numbers."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    has_late = any(run.late_rows for run in runs)
    for column in _COLUMNS if has_late else (column for column in _COLUMNS if column != _LATE):
        is_number = column.startswith(">")
        table.add_column(
            column.removeprefix(">"), justify="right" if is_number else "left", no_wrap=is_number
        )
    for run in runs:
        late = [f"{run.late_rows:,}" if run.late_rows else ""] if has_late else []
        cells = [_one_line(cell) for cell in (*_cells_of(run), *late)]
        table.add_row(*cells, _one_line(state_of(run), _STYLES[run.state]))
    return table


def _one_line(text: str, style: str = "") -> Text:
    return Text(" ".join(text.split()), style=style, no_wrap=True, overflow="ellipsis")


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
