"""An archive at its path: what it holds by its manifests, and how a manifest is added."""

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from ottla.pipeline.archive.files import Files, ReadableFiles, files_at
from ottla.pipeline.archive.layout import (
    MANIFEST_NAME,
    MANIFESTS,
    batch_manifest,
    batch_name,
    merge_manifest,
)
from ottla.pipeline.archive.manifest import Archived, Batch, Merge, combined, from_json, to_json
from ottla.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

READERS = 16


class Manifests:
    """The manifests of an archive. One that was read is not read again: none ever changes."""

    def __init__(self, files: ReadableFiles) -> None:
        self._files = files
        self._known: dict[str, Batch | Merge] = {}

    def load(self) -> Archived:
        """Everything that they say now."""
        names = [name for name in self._files.names(MANIFESTS) if MANIFEST_NAME.fullmatch(name)]
        new = [name for name in names if name not in self._known]
        with ThreadPoolExecutor(READERS) as readers:
            self._known |= dict(zip(new, readers.map(self._read, new), strict=True))
        manifests = [self._known[name] for name in names]
        batches = [one for one in manifests if isinstance(one, Batch)]
        return combined(batches, [one for one in manifests if isinstance(one, Merge)])

    def _read(self, name: str) -> Batch | Merge:
        path = f"{MANIFESTS}/{name}"
        try:
            text = self._files.read(path)
        except UnicodeDecodeError:
            text = ""
        return from_json(text, self._files.url(path))


class Archive:
    def __init__(self, files: Files) -> None:
        self.files = files
        self._manifests = Manifests(files)

    @classmethod
    def at(cls, path: str, spark: "SparkSession | None" = None) -> "Archive":
        return cls(files_at(path, spark))

    @property
    def url(self) -> str:
        return self.files.url()

    def exists(self) -> bool:
        return self.files.exists(MANIFESTS)

    def check(self) -> None:
        if not self.exists():
            raise gone(self.url)

    def load(self) -> Archived:
        """What it holds now."""
        return self._manifests.load()

    def has_batch(self, batch_id: int, query_id: str) -> bool:
        return self.files.exists(batch_manifest(batch_name(batch_id, query_id)))

    def commit_batch(self, batch: Batch) -> None:
        """From here on the batch's files are part of the archive."""
        self.files.create(batch_manifest(batch_name(batch.batch_id, batch.query_id)), to_json(batch))

    def commit_merge(self, merge: Merge) -> bool:
        """False where another merge was quicker: nothing is changed."""
        return self.files.create(merge_manifest(merge.number), to_json(merge))


def gone(url: str) -> PipelineError:
    return PipelineError(
        f"The archive at {url} is gone: it has no folder {MANIFESTS}.",
        "Mount or bring it back, or correct `path`. To begin a new archive from what the topics still hold, remove "
        "this stage's checkpoint.",
    )
