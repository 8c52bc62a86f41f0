"""Options that the commands of `ottla pipeline` share."""

from pathlib import Path
from typing import Annotated

import typer

File = Annotated[
    Path,
    typer.Option("--file", "-f", metavar="FILE", help="The pipeline.toml, or its folder."),
]
Master = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="The Spark master, instead of that in the file."),
]
DEFAULT_FILE = Path("pipeline.toml")
