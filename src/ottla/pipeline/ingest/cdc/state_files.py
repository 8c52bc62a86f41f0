"""Files beside the checkpoint that are there with all of their content, or not at all, also after a loss of power."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO, Self

from ottla.pipeline.durable_files import replacing
from ottla.pipeline.errors import PipelineError


@contextmanager
def written(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which takes its name at the end. Raises PipelineError if the disk is full."""
    try:
        with replacing(path) as file:
            yield file
    except OSError as error:
        raise PipelineError(
            f"{path} cannot be written: {error.strerror or error}.",
            "Make room, or let the user who runs the pipeline write there, and start again.",
        ) from error


def write_text(path: Path, text: str) -> None:
    with written(path) as file:
        file.write(text.encode())


@dataclass(frozen=True)
class SnapshotManifest:
    """The last file of a snapshot: one without it was cut off."""

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        try:
            return cls(**json.loads((folder / "manifest.json").read_text()))
        except FileNotFoundError:
            return None

    def save(self, folder: Path) -> None:
        write_text(folder / "manifest.json", json.dumps(asdict(self)))
