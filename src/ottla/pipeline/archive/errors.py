"""What a person is told when an archive cannot be written or read: the sentence behind what Java or the system says."""

import contextlib
import re
from collections.abc import Iterator

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.files import root_cause
from ottla.pipeline.query_errors import summarize

FULL = re.compile(
    r"No space left on device|Disk quota exceeded|DSQuotaExceeded|ENOSPC|File too large", re.IGNORECASE
)
DENIED = re.compile(
    r"Permission denied|AccessDenied|Access Denied|AccessControlException|Read-only file system", re.I
)
NO_FOLDER = re.compile(r"Mkdirs failed to create|Not a directory|NoSuchBucket|UnknownStore")
UNREADABLE = re.compile(
    r"(?:reading file:?|Could not read footer for file:?|file: FileStatus\{path=)\s*'?(\S+?\.parquet)"
)
PATH = re.compile(r"([\w+.-]+:/[^\s'\"]*?\.parquet|/[^\s'\"]*?\.parquet)")
NOTHING_LOST = "Nothing is lost: the batch is written when the pipeline starts again."


@contextlib.contextmanager
def explain_write_errors(url: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if is_explained(error) or summarize(error).is_retriable:
            raise
        raise write_error(url, f"{error}\n{root_cause(error)}") from error


def write_error(url: str, account: str) -> PipelineError:
    """`account` is all that was said, in whatever language."""
    if UNREADABLE.search(account):
        return read_error(url, account)
    if FULL.search(account):
        return PipelineError(
            f"The archive at {url} is full.", f"Make room on it, then start again. {NOTHING_LOST}"
        )
    if DENIED.search(account):
        return PipelineError(
            f"The archive at {url} may not be written: permission denied.",
            f"Give the user of this process, and of Spark's executors, the right to write there. {NOTHING_LOST}",
        )
    if NO_FOLDER.search(account):
        return PipelineError(
            f"The archive at {url} cannot be written: its folder cannot be made ({last_line(account)}).",
            f"Correct `path`, or bring the disk or bucket back. {NOTHING_LOST}",
        )
    return PipelineError(
        f"The archive at {url} could not be written: {last_line(account)}.",
        f"Mend that and start again. {NOTHING_LOST}",
    )


def is_explained(error: Exception) -> bool:
    """An error that has its sentence already, be it inside of what Spark made of it: a source's that was read from."""
    return isinstance(error, PipelineError) or "ottla.pipeline.errors." in str(error)


@contextlib.contextmanager
def explain_read_errors(url: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if is_explained(error) or summarize(error).is_retriable:
            raise
        raise read_error(url, f"{error}\n{root_cause(error)}") from error


def read_error(url: str, account: str) -> PipelineError:
    named = UNREADABLE.search(account) or PATH.search(account)
    if named is None:
        return PipelineError(
            f"The archive at {url} could not be read: {last_line(account)}.", "Check the path and its rights."
        )
    return PipelineError(
        f"The archive's file {named[1]} cannot be read: it is missing or damaged ({last_line(account)}).",
        "Put it back from a copy. `ottla pipeline verify` names every such file and the offsets that were in it.",
    )


def last_line(account: str) -> str:
    return account.strip().rpartition("\n")[2].strip().rstrip(".")
