"""`ottla demo`: a tour of broker and pipeline."""

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.output import CommandError
from ottla.cli.serve import DEFAULT_LISTEN


def demo(
    folder: Annotated[
        Path, typer.Option("--folder", metavar="FOLDER", help="The folder for all files of the demo.")
    ] = Path("demo"),
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="The address of the broker.")
    ] = DEFAULT_LISTEN,
) -> None:
    """A tour: one broker, a stream of orders, a pipeline on local Spark. Ctrl-C ends it."""
    if importlib.util.find_spec("pyspark") is None:
        raise CommandError("the demo needs Spark, which is not installed: pip install 'ottla[spark]'")
    from ottla.pipeline.demo.tour import tour

    if not tour(folder, listen):
        raise typer.Exit(1)
