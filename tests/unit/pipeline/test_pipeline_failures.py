"""One sentence out of what Spark says when a query has failed."""

import pytest

from ottla.pipeline.errors import PassingError, PipelineError
from ottla.pipeline.query_errors import ErrorSummary, summarize, summarize_text

TRACE = """\
[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform latestOffset: Traceback:
  File "python_streaming_source_runner.py", line 281, in main
{lines}
 SQLSTATE: 38000
=== Streaming Query ===
Identifier: [id = 0f9a3843, runId = 2acc1b2c]
Logical Plan:
ottla.pipeline.errors.PipelineError: this is an option in the plan
"""


def trace(*lines: str) -> str:
    return TRACE.format(lines="\n".join(lines))


@pytest.mark.parametrize(
    ("lines", "failure"),
    [
        (
            ["ottla.pipeline.errors.PipelineError: The topic a is gone. Make it again."],
            ErrorSummary("The topic a is gone. Make it again.", is_retriable=False),
        ),
        (
            ["ottla.pipeline.errors.PassingError: The broker is away. Start it."],
            ErrorSummary("The broker is away. Start it.", is_retriable=True),
        ),
        (
            ["ottla.pipeline.config.ConfigErrors: first", "", "ottla.pipeline.errors.PipelineError: then"],
            ErrorSummary("then", is_retriable=False),
        ),
        (
            ['cimpl.KafkaException: KafkaError{code=_TRANSPORT,val=-195,str="gone"}'],
            ErrorSummary(
                'KafkaException: KafkaError{code=_TRANSPORT,val=-195,str="gone"}', is_retriable=True
            ),
        ),
        (["ZeroDivisionError: division by zero"], ErrorSummary("ZeroDivisionError: division by zero", False)),
        (
            ["Job aborted: [USER_RAISED_EXCEPTION] The transform x refuses a record. SQLSTATE: P0001"],
            ErrorSummary("The transform x refuses a record.", is_retriable=False),
        ),
    ],
)
def test_the_sentence_that_matters_is_found(lines: list[str], failure: ErrorSummary) -> None:
    assert summarize_text(trace(*lines)) == failure


def test_where_only_spark_speaks_its_first_sentence_serves() -> None:
    text = "[PATH_NOT_FOUND] Path does not exist: file:/x. SQLSTATE: 42K03\nmore"
    assert summarize_text(text) == ErrorSummary("Path does not exist: file:/x.", is_retriable=False)


def test_a_lost_executor_passes() -> None:
    assert summarize_text("Job aborted: ExecutorLostFailure (executor 1 exited)").is_retriable


def test_a_long_line_is_cut_and_an_empty_one_named() -> None:
    assert len(summarize_text("x" * 2000).sentence) < 600
    assert summarize(ValueError()).sentence == "ValueError"


def test_an_error_of_ours_speaks_for_itself() -> None:
    assert summarize(PipelineError("What.", "Do.")) == ErrorSummary("What. Do.", is_retriable=False)
    assert summarize(PassingError("What.", "Do.")) == ErrorSummary("What. Do.", is_retriable=True)


def test_an_error_that_spark_hides_behind_its_own_is_found() -> None:
    lines = (
        "ImportError: no such thing",
        "",
        "During handling of the above exception, another exception occurred:",
    )
    mask = "UnboundLocalError: cannot access local variable 'reader' where it is not associated with a value"
    assert summarize_text(trace(*lines, mask)).sentence == "ImportError: no such thing"
