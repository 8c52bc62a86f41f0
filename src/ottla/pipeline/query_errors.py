"""Finds, in the pages of Java that Spark prints for a failed query, the one sentence that a user needs."""

import re
from typing import NamedTuple

from ottla.pipeline.errors import PermanentStageError, PipelineError, RetriableError
from ottla.pipeline.progress import topic_offsets

# Our errors by their full names, as Python prints them at the end of a traceback, possibly in the middle of Java's.
_OWN_ERROR = re.compile(r"\bottla\.pipeline\.[\w.]*?(\w+): ([^\n]+)")
# The last line of any other Python traceback: `ValueError: bad`.
_PYTHON_ERROR = re.compile(
    r"^\s*((?:\w+\.)*\w*(?:Error|Exception|Interrupt|Warning)): ([^\n]+)", re.MULTILINE
)
# Spark raises this one itself while it reports that a source could not be created. It hides the real error.
_SPARK_ARTEFACT = re.compile("cannot access local variable 'reader'")
# A transform without dead letters raises an error of its own for a record that it rejects.
_REJECTED_RECORD = re.compile(r"\[USER_RAISED_EXCEPTION\] ([^\n]+)")
_PREFACE = re.compile(r"^Query \[.*?\] terminated with exception: (?:\[[A-Z0-9_.]+\] )?")
_SPARK_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\] ([^\n]+)")
_TRAILING = re.compile(r"\s*(?:SQLSTATE: \w+)?\s*$")
# Retriable errors in the words of librdkafka, Spark, databases, sockets, S3 and HDFS.
_RETRIABLE = re.compile(
    r"_TRANSPORT|_ALL_BROKERS_DOWN|_TIMED_OUT|_RESOLVE|COORDINATOR_(?:NOT_AVAILABLE|LOAD_IN_PROGRESS)"
    r"|NOT_COORDINATOR|NOT_ENOUGH_REPLICAS|LEADER_NOT_AVAILABLE|NOT_LEADER|BROKER_NOT_AVAILABLE|REQUEST_TIMED_OUT"
    r"|CONCURRENT_TRANSACTIONS|Connection refused|Connection reset|ConnectionRefusedError|ConnectionResetError"
    r"|ExecutorLostFailure|Python worker (?:failed to connect back|exited unexpectedly)|CANNOT_OPEN_SOCKET"
    r"|Lost connection to (?:MySQL|MariaDB|server)|Can't connect to (?:MySQL|MariaDB|server)"
    r"|Broken pipe|server closed the connection unexpectedly"
    r"|Connection timed out|Read timed out|SocketTimeoutException|ConnectTimeoutException|connect timed out"
    r"|UnknownHostException|NoRouteToHostException|Temporary failure in name resolution|FetchFailed"
    r"|Slow ?Down|Status Code: (?:429|500|502|503|504)\b|SafeModeException|is in safe mode|StandbyException"
    r"|not supported in state standby"
)
# Spark prints the query's plan, with its options, below this line.
_PLAN = "=== Streaming Query ==="
_QUERY_OFFSETS = re.compile(r"^Current (Committed|Available) Offsets: \{[^{]*?: (\{.*\})\}$", re.MULTILINE)
_LINE_MAX = 500


class ErrorSummary(NamedTuple):
    """`sentence` is what the user reads; `is_retriable` means that the same query may succeed a moment later.

    `is_permanent` means that the stage must not be started again.
    """

    sentence: str
    is_retriable: bool
    is_permanent: bool = False


def summarize(error: BaseException) -> ErrorSummary:
    if isinstance(error, PermanentStageError):
        return ErrorSummary(str(error), is_retriable=False, is_permanent=True)
    if isinstance(error, PipelineError):
        return ErrorSummary(str(error), _is_retriable(type(error).__name__, str(error)))
    return summarize_text(str(error) or type(error).__name__)


def summarize_text(text: str) -> ErrorSummary:
    """`text` is an exception's. An error of ours comes first, then a Python error, then Spark's own message."""
    failed_batch = _failed_batch(text)
    text = text.partition(_PLAN)[0]
    own = _OWN_ERROR.findall(text)
    # Wherever it is in the text: another error may have been raised while it was handled.
    permanent = [sentence for name, sentence in own if name == PermanentStageError.__name__]
    if permanent:
        return ErrorSummary(permanent[-1].strip(), is_retriable=False, is_permanent=True)
    if own:
        name, sentence = own[-1]
        return ErrorSummary(sentence.strip(), _is_retriable(name, sentence))
    rejected = _REJECTED_RECORD.search(text)
    if rejected:
        return ErrorSummary(_TRAILING.sub("", rejected[1]), is_retriable=False)
    is_retriable = _RETRIABLE.search(text) is not None
    python = [found for found in _PYTHON_ERROR.findall(text) if not _SPARK_ARTEFACT.match(found[1])]
    if python:
        name, sentence = python[-1]
        reason = f"{name.rpartition('.')[2]}: {sentence}"
    else:
        condition = _SPARK_CONDITION.search(text)
        reason = _PREFACE.sub("", condition[2] if condition else _first_line(text))
    return ErrorSummary(_shorten(reason) + ("" if is_retriable else failed_batch), is_retriable)


def _is_retriable(name: str, sentence: str) -> bool:
    """Of an error of ours, which may quote the cause in the words of another system."""
    return name == RetriableError.__name__ or _RETRIABLE.search(sentence) is not None


def _failed_batch(text: str) -> str:
    """A sentence with the offsets of the batch that failed; empty if Spark does not print offsets of topics."""
    printed = {kind: topic_offsets(offsets) or {} for kind, offsets in _QUERY_OFFSETS.findall(text)}
    committed = printed.get("Committed", {})
    ranges = [
        f"{topic}-{partition}: {start} to {end - 1}"
        for topic, partitions in printed.get("Available", {}).items()
        for partition, end in partitions.items()
        if (start := committed.get(topic, {}).get(partition, 0)) < end
    ]
    if not ranges:
        return ""
    return f" It was in the batch with the offsets {', '.join(ranges)}, which runs again at the next start."


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason was given")


def _shorten(line: str) -> str:
    line = _TRAILING.sub("", line)
    return line if len(line) <= _LINE_MAX else f"{line[:_LINE_MAX]} ..."
