"""An archive at its path: what it holds by its manifests, and how a manifest is added."""

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from ottla.pipeline.archive.files import Files, files_at
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


class Archive:
    def __init__(self, files: Files) -> None:
        self.files = files

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
        """Everything that the manifests say now."""
        names = [name for name in self.files.names(MANIFESTS) if MANIFEST_NAME.fullmatch(name)]
        with ThreadPoolExecutor(READERS) as readers:
            manifests = list(readers.map(self._manifest, names))
        batches = [one for one in manifests if isinstance(one, Batch)]
        return combined(batches, [one for one in manifests if isinstance(one, Merge)])

    def _manifest(self, name: str) -> Batch | Merge:
        path = f"{MANIFESTS}/{name}"
        try:
            text = self.files.read(path)
        except UnicodeDecodeError as error:
            text = f"{error}"
        return from_json(text, self.files.url(path))

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
