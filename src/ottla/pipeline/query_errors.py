"""What a person is told when a query has failed: Spark wraps the one sentence that matters in pages of Java."""

import re
from typing import NamedTuple

from ottla.pipeline.errors import PassingError, PipelineError
from ottla.pipeline.failed_batch import batch_said

# Our errors by their full names, as Python writes them at the end of a trace. They may stand in the middle of Java's.
OURS = re.compile(r"\bottla\.pipeline\.[\w.]*?(\w+): ([^\n]+)")
# The last line of a Python trace, where no error of ours is in the text: `ValueError: bad`.
PYTHON = re.compile(r"^\s*((?:\w+\.)*\w*(?:Error|Exception|Interrupt|Warning)): ([^\n]+)", re.MULTILINE)
# Spark's own, on the way out where a source could not be made: it hides the error that matters.
MASK = re.compile("cannot access local variable 'reader'")
# A transform without dead letters refuses a record with a sentence of its own.
REFUSED = re.compile(r"\[USER_RAISED_EXCEPTION\] ([^\n]+)")
# What Spark says before the reason itself.
PREFACE = re.compile(r"^Query \[.*?\] terminated with exception: (?:\[[A-Z0-9_.]+\] )?")
SPARK_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\] ([^\n]+)")
TRAILING = re.compile(r"\s*(?:SQLSTATE: \w+)?\s*$")
# What passes by itself, in the words of librdkafka, of Spark, of databases and of sockets.
PASSING = re.compile(
    r"_TRANSPORT|_ALL_BROKERS_DOWN|_TIMED_OUT|_RESOLVE|COORDINATOR_(?:NOT_AVAILABLE|LOAD_IN_PROGRESS)"
    r"|NOT_COORDINATOR|NOT_ENOUGH_REPLICAS|LEADER_NOT_AVAILABLE|NOT_LEADER|BROKER_NOT_AVAILABLE|REQUEST_TIMED_OUT"
    r"|CONCURRENT_TRANSACTIONS|Connection refused|Connection reset|ConnectionRefusedError|ConnectionResetError"
    r"|ExecutorLostFailure|Python worker (?:failed to connect back|exited unexpectedly)|CANNOT_OPEN_SOCKET"
    r"|Lost connection to (?:MySQL|MariaDB|server)|Can't connect to (?:MySQL|MariaDB|server)"
    r"|Broken pipe|server closed the connection unexpectedly"
)
# Below it Spark shows the plan with its options.
PLAN = "=== Streaming Query ==="
LINE_MAX = 500


class ErrorSummary(NamedTuple):
    """`sentence` is for a person; `is_retriable` says that the same may go well a moment later."""

    sentence: str
    is_retriable: bool


def summarize(error: BaseException) -> ErrorSummary:
    if isinstance(error, PipelineError):
        return ErrorSummary(str(error), isinstance(error, PassingError))
    return summarize_text(str(error) or type(error).__name__)


def summarize_text(text: str) -> ErrorSummary:
    """What the text of an exception comes down to: an error of ours wins, then Python's, then Spark's."""
    batch = batch_said(text)
    text = text.partition(PLAN)[0]
    ours = OURS.findall(text)
    if ours:
        name, sentence = ours[-1]
        return ErrorSummary(sentence.strip(), name == PassingError.__name__)
    refused = REFUSED.search(text)
    if refused:
        return ErrorSummary(TRAILING.sub("", refused[1]), is_retriable=False)
    is_retriable = PASSING.search(text) is not None
    python = [found for found in PYTHON.findall(text) if not MASK.match(found[1])]
    if python:
        name, sentence = python[-1]
        reason = f"{name.rpartition('.')[2]}: {sentence}"
    else:
        condition = SPARK_CONDITION.search(text)
        reason = PREFACE.sub("", condition[2] if condition else first_line(text))
    return ErrorSummary(shortened(reason) + ("" if is_retriable else batch), is_retriable)


def first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason was given")


def shortened(line: str) -> str:
    line = TRAILING.sub("", line)
    return line if len(line) <= LINE_MAX else f"{line[:LINE_MAX]} ..."
