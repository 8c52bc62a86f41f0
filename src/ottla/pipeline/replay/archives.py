"""The archives of a replay: what they have, and which files have a range of offsets."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ottla.model.ids import TopicPartition
from ottla.pipeline.archive.errors import explain_read_errors
from ottla.pipeline.archive.filesystem import readable_files
from ottla.pipeline.archive.layout import MANIFESTS
from ottla.pipeline.archive.manifest import Archived
from ottla.pipeline.archive.ranges import Span, spans_by_partition
from ottla.pipeline.archive.store import Manifests
from ottla.pipeline.errors import PipelineError, RetriableError
from ottla.pipeline.files import ReadableFiles, root_cause
from ottla.pipeline.ingest.reload.plan import Task, Times, files_for, group_overlapping
from ottla.pipeline.spark.offsets import OffsetRange


def read_archive(files: ReadableFiles) -> Archived:
    with _explained(files.url()):
        if not files.names(MANIFESTS):
            raise PipelineError(
                f"The archive at {files.url()} is gone: it has no folder {MANIFESTS}.",
                "Mount or restore it. To replay without it, remove its stage from the pipeline.",
            )
        return Manifests(files).load()


@contextmanager
def _explained(url: str) -> Iterator[None]:
    try:
        with explain_read_errors(url):
            yield
    except PipelineError:
        raise
    except Exception as error:
        raise RetriableError(
            f"The archive at {url} cannot be read now: {root_cause(error)}.", "Start the same replay again."
        ) from error


class Archives:
    """The archives as they are now, each read when it is needed, without Spark. `options` are Hadoop's, for S3."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options
        self._archived: dict[str, Archived] = {}

    def spans(self, path: str, at: TopicPartition) -> list[Span]:
        """The offsets of a partition of a history that the archive covers."""
        return spans_by_partition(self._at(path).ranges).get(at, [])

    def task(self, path: str, wanted: OffsetRange) -> Task:
        """What reads a range of a history."""
        groups = group_overlapping(files_for(wanted, self._at(path)), wanted.partition)
        return Task(wanted, Times(), [[file.path for file in group] for group in groups])

    def _at(self, path: str) -> Archived:
        if path not in self._archived:
            self._archived[path] = read_archive(readable_files(path, self._options))
        return self._archived[path]
