"""`ottla demo`: the tour of broker and pipeline."""

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.output import CommandError
from ottla.cli.serve import DEFAULT_LISTEN


def demo(
    folder: Annotated[
        Path, typer.Option("--folder", metavar="FOLDER", help="Where everything of it lies.")
    ] = Path("demo"),
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where the broker listens.")
    ] = DEFAULT_LISTEN,
) -> None:
    """A tour: one broker, orders that keep coming, a pipeline on local Spark. Ctrl-C ends it."""
    if importlib.util.find_spec("pyspark") is None:
        raise CommandError("the demo needs Spark, which is not installed: pip install 'ottla[spark]'")
    from ottla.pipeline.demo.tour import tour

    if not tour(folder, listen):
        raise typer.Exit(1)
