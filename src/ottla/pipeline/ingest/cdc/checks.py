"""Checks before the start that every captured database needs: the state folder and the topics."""

from collections.abc import Iterable, Iterator

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.ingest.cdc.capture import DatabaseCapture
from ottla.pipeline.stage import Context, Finding
from ottla.pipeline.topics import connect, missing_topics


def check_state_folder(capture: DatabaseCapture) -> None:
    if "://" in capture.state:
        raise PipelineError(
            f"The snapshot and the schema history cannot be kept in {capture.state}.",
            "Set `checkpoints` to a folder of a file system that driver and executors see.",
        )


def check_topics(wanted: Iterable[str], where: str, context: Context) -> Iterator[Finding]:
    yield from missing_topics(wanted, connect(context.cluster).metadata().topics, context, where)


def topics_of(template: str, topics_of_tables: Iterable[str]) -> set[str]:
    """The topics of a capture. If all tables share one topic, it is needed even while there are no tables."""
    return {*topics_of_tables} if "{" in template else {template}
