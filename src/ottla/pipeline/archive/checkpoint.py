"""What Spark keeps about a query in its checkpoint: its id, where each batch ends, what is committed."""

import json

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.files import Files
from ottla.pipeline.spark.offsets import Offsets, from_json

OFFSET_LOG_VERSION = "v1"


class Checkpoint:
    def __init__(self, files: Files) -> None:
        self._files = files

    def query_id(self) -> str | None:
        """None where no query has begun here."""
        if not self._files.exists("metadata"):
            return None
        return str(json.loads(self._files.read("metadata"))["id"])

    def end_of(self, batch_id: int) -> Offsets:
        """The offsets at which a batch ends. There is nothing before the first batch."""
        path = f"offsets/{batch_id}"
        if batch_id < 0 or not self._files.exists(path):
            return {}
        return parse_offset_log(self._files.read(path), self._files.url(path))

    def last_committed(self) -> int | None:
        committed = [int(name) for name in self._files.names("commits") if name.isdigit()]
        return max(committed, default=None)


def parse_offset_log(text: str, where: str) -> Offsets:
    """A file of Spark's offset log: its version, a line of settings, and a line for each source: we have one."""
    try:
        version, _, source = text.split("\n")
        if version != OFFSET_LOG_VERSION:
            raise ValueError(f"its version is {version}")
        return from_json(json.loads(source))
    except (ValueError, AttributeError) as error:
        raise PipelineError(
            f"Spark's offset log {where} cannot be read: {error}.",
            "Use the Spark that wrote it. If the file is damaged, remove the checkpoint: the archive goes on behind "
            "what its manifests cover.",
        ) from None
