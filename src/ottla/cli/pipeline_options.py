"""Options that the commands of `ottla pipeline` share."""

from pathlib import Path
from typing import Annotated

import typer

File = Annotated[
    Path,
    typer.Option("--file", "-f", metavar="FILE", help="The pipeline.toml, or the folder in which it lies."),
]
Master = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="Where Spark runs, instead of what the file says."),
]
DEFAULT_FILE = Path("pipeline.toml")
