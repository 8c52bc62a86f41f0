"""Spark's checkpoint of a query: its id, which batches are planned and committed, and where each of them ends."""

import json
from typing import TYPE_CHECKING, Any

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.files import ReadableFiles, files_at
from ottla.pipeline.spark.offsets import Offsets, Position

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OFFSET_LOG_VERSION = "v1"


class Checkpoint:
    """Spark writes the file offsets/N before batch N, and commits/N after it."""

    def __init__(self, files: ReadableFiles) -> None:
        self._files = files

    @classmethod
    def at(cls, folder: str, spark: "SparkSession | None" = None) -> "Checkpoint":
        """`folder` is an absolute path or a URL; one that is not local needs Spark."""
        return cls(files_at(folder, spark))

    @property
    def url(self) -> str:
        return self._files.url()

    def query_id(self) -> str | None:
        """None before the query's first start."""
        text = self._read("metadata")
        return None if text is None else str(json.loads(text)["id"])

    def last_planned(self) -> int | None:
        return self._last_number("offsets")

    def last_committed(self) -> int | None:
        return self._last_number("commits")

    def source_offsets(self, batch_id: int) -> list[Any]:
        """Where the batch ends, for each source of the query that had data; empty if the batch is not planned."""
        text = self._read(f"offsets/{batch_id}")
        if text is None:
            return []
        # a version, the settings of the batch, then a line for each source: "-" is a source without data so far
        return [_parse_line(line) for line in text.splitlines()[2:] if line != "-"]

    def topic_offsets(self, batch_id: int) -> Offsets:
        """Where the batch ends, of a query whose only source is topics; empty if the batch is not planned."""
        return self.topic_position(batch_id).offsets

    def topic_position(self, batch_id: int) -> Position:
        """The same, with the ids of the topics."""
        path = f"offsets/{batch_id}"
        text = self._read(path)
        return Position({}) if text is None else _parse_offset_log(text, self._files.url(path))

    def last_offset(self) -> Any:
        """Where the newest planned batch ends, of a query with one source; None before the first batch."""
        planned = self.last_planned()
        offsets = [] if planned is None else self.source_offsets(planned)
        return offsets[-1] if offsets else None

    def _last_number(self, folder: str) -> int | None:
        return max((int(name) for name in self._files.names(folder) if name.isdigit()), default=None)

    def _read(self, path: str) -> str | None:
        try:
            return self._files.read(path)
        except FileNotFoundError:
            return None


def _parse_line(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return line


def _parse_offset_log(text: str, where: str) -> Position:
    """The file offsets/N of a query whose only source is topics; `where` names it in the error."""
    try:
        version, _, source = text.split("\n")
        if version != _OFFSET_LOG_VERSION:
            raise ValueError(f"its version is {version}")
        return Position.from_json(json.loads(source))
    except (ValueError, AttributeError) as error:
        raise PipelineError(
            f"Spark's offset log {where} cannot be read: {error}.",
            "Use the Spark version that wrote it. If the file is damaged, remove the checkpoint: the archive then "
            "continues after the offsets that its manifests cover.",
        ) from None
