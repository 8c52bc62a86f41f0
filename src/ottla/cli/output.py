"""The output of commands: tables for people, JSON lines for programs, and errors."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any

# Wide enough that nothing is cut in a file or a pipe.
_PIPE_WIDTH = 2000


class CommandError(Exception):
    """An error of a command, with a message for the user."""


def print_json(*objects: Any) -> None:
    for item in objects:
        print(json.dumps(item, ensure_ascii=False))
    sys.stdout.flush()  # a program that reads a pipe wants each result at once


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    title: str | None = None,
    file: IO[str] | None = None,
) -> None:
    """On stdout, or in `file`. A column whose name begins with ">" has numbers, and is aligned to the right."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    file = file or sys.stdout
    console = Console(width=None if file.isatty() else _PIPE_WIDTH, highlight=False, file=file)
    table = Table(
        box=None, header_style="bold", pad_edge=False, title=title, title_justify="left", title_style="bold"
    )
    for column in columns:
        is_number = column.startswith(">")
        table.add_column(
            column.removeprefix(">"),
            justify="right" if is_number else "left",
            overflow="fold",
            no_wrap=is_number,
        )
    for row in rows:
        table.add_row(*(Text("" if cell is None else str(cell)) for cell in row))
    with console.capture() as capture:
        console.print(table)
    # Rich fills every line with blanks to the width of the table.
    for line in capture.get().splitlines():
        print(line.rstrip(), file=file)


def print_error(message: str) -> None:
    print(f"ottla: {message}", file=sys.stderr)


@contextmanager
def progress(
    description: str, total: int | None, *, wanted: bool | None = None
) -> Iterator[Callable[[int], None]]:
    """A function that shows the number done so far, on stderr: if that is a terminal, or if `wanted`."""
    if wanted is False or (wanted is None and not sys.stderr.isatty()):
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.progress import Task as RichTask

    class Rate(TextColumn):
        def render(self, task: RichTask) -> Any:
            from rich.text import Text

            return Text(f"{task.speed:,.0f}/s" if task.speed else "")

    columns = [TextColumn(description), BarColumn(), MofNCompleteColumn(), Rate(""), TimeElapsedColumn()]
    with Progress(*columns, console=Console(stderr=True), transient=wanted is None) as bar:
        task = bar.add_task(description, total=total)
        yield lambda done: bar.update(task, completed=done)
