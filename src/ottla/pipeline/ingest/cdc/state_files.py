"""Durable files of a capture's state: complete or absent, even after a power failure."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ottla.pipeline.durable_files import replacing
from ottla.pipeline.errors import PipelineError


@contextmanager
def open_state_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which gets its name at the end of the block. Raises PipelineError if the write fails."""
    try:
        with replacing(path) as file:
            yield file
    except OSError as error:
        raise PipelineError(
            f"{path} cannot be written: {error.strerror or error}.",
            "Free disk space, or allow the user who runs the pipeline to write there, and start again.",
        ) from error


def write_state_file(path: Path, text: str) -> None:
    with open_state_file(path) as file:
        file.write(text.encode())
