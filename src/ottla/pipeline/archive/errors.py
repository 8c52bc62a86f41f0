"""Turns errors of Java and the file system into errors that say what is wrong with the archive and what to do."""

import contextlib
import re
from collections.abc import Iterator

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.files import root_cause
from ottla.pipeline.query_errors import summarize_text

_FULL = re.compile(
    r"No space left on device|Disk quota exceeded|DSQuotaExceeded|ENOSPC|File too large", re.IGNORECASE
)
_DENIED = re.compile(
    r"Permission denied|AccessDenied|Access Denied|AccessControlException|Read-only file system", re.I
)
_NO_FOLDER = re.compile(r"Mkdirs failed to create|Not a directory|NoSuchBucket|UnknownStore")
_UNREADABLE = re.compile(
    r"(?:reading file:?|Could not read footer for file:?|file: FileStatus\{path=)\s*'?(\S+?\.parquet)"
)
_PATH = re.compile(r"([\w+.-]+:/[^\s'\"]*?\.parquet|/[^\s'\"]*?\.parquet)")
_NOTHING_LOST = "No record is lost: the batch is written when the pipeline starts again."


@contextlib.contextmanager
def explain_write_errors(url: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if _is_explained(error) or _is_retriable(error):
            raise
        raise write_error(url, f"{error}\n{root_cause(error)}") from error


def write_error(url: str, text: str) -> PipelineError:
    """`text` is the whole error, of Python or Java."""
    if _UNREADABLE.search(text):
        return read_error(url, text)
    if _FULL.search(text):
        return PipelineError(
            f"The archive at {url} is full.", f"Make room there, and start again. {_NOTHING_LOST}"
        )
    if _DENIED.search(text):
        return PipelineError(
            f"The archive at {url} cannot be written: permission denied.",
            f"Allow the user of this process, and of Spark's executors, to write there. {_NOTHING_LOST}",
        )
    if _NO_FOLDER.search(text):
        return PipelineError(
            f"The archive at {url} cannot be written: its folder cannot be created ({_last_line(text)}).",
            f"Fix `path`, or restore the disk or bucket. {_NOTHING_LOST}",
        )
    return PipelineError(
        f"The archive at {url} could not be written: {_last_line(text)}.",
        f"Fix that and start again. {_NOTHING_LOST}",
    )


def _is_explained(error: Exception) -> bool:
    """Whether it is an error of ours, also one that a source raised and Spark wrapped."""
    return isinstance(error, PipelineError) or "ottla.pipeline.errors." in str(error)


def _is_retriable(error: Exception) -> bool:
    return summarize_text(f"{error}\n{root_cause(error)}").is_retriable


@contextlib.contextmanager
def explain_read_errors(url: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if _is_explained(error) or _is_retriable(error):
            raise
        raise read_error(url, f"{error}\n{root_cause(error)}") from error


def read_error(url: str, text: str) -> PipelineError:
    named = _UNREADABLE.search(text) or _PATH.search(text)
    if named is None:
        return PipelineError(
            f"The archive at {url} could not be read: {_last_line(text)}.",
            "Check the path and its permissions.",
        )
    return PipelineError(
        f"The archive's file {named[1]} cannot be read: it is missing or damaged ({_last_line(text)}).",
        "Restore it from a copy. `ottla pipeline verify` names every such file and the offsets that it held.",
    )


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2].strip().rstrip(".")
