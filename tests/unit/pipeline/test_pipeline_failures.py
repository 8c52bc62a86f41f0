"""One sentence out of what Spark says when a query has failed."""

import pytest

from ottla.pipeline.errors import PassingError, PipelineError
from ottla.pipeline.query_errors import Failure, failure_from, failure_of

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
            Failure("The topic a is gone. Make it again.", is_passing=False),
        ),
        (
            ["ottla.pipeline.errors.PassingError: The broker is away. Start it."],
            Failure("The broker is away. Start it.", is_passing=True),
        ),
        (
            ["ottla.pipeline.config.ConfigErrors: first", "", "ottla.pipeline.errors.PipelineError: then"],
            Failure("then", is_passing=False),
        ),
        (
            ['cimpl.KafkaException: KafkaError{code=_TRANSPORT,val=-195,str="gone"}'],
            Failure('KafkaException: KafkaError{code=_TRANSPORT,val=-195,str="gone"}', is_passing=True),
        ),
        (["ZeroDivisionError: division by zero"], Failure("ZeroDivisionError: division by zero", False)),
        (
            ["Job aborted: [USER_RAISED_EXCEPTION] The transform x refuses a record. SQLSTATE: P0001"],
            Failure("The transform x refuses a record.", is_passing=False),
        ),
    ],
)
def test_the_sentence_that_matters_is_found(lines: list[str], failure: Failure) -> None:
    assert failure_from(trace(*lines)) == failure


def test_where_only_spark_speaks_its_first_sentence_serves() -> None:
    text = "[PATH_NOT_FOUND] Path does not exist: file:/x. SQLSTATE: 42K03\nmore"
    assert failure_from(text) == Failure("Path does not exist: file:/x.", is_passing=False)


def test_a_lost_executor_passes() -> None:
    assert failure_from("Job aborted: ExecutorLostFailure (executor 1 exited)").is_passing


def test_a_long_line_is_cut_and_an_empty_one_named() -> None:
    assert len(failure_from("x" * 2000).sentence) < 600
    assert failure_of(ValueError()).sentence == "ValueError"


def test_an_error_of_ours_speaks_for_itself() -> None:
    assert failure_of(PipelineError("What.", "Do.")) == Failure("What. Do.", is_passing=False)
    assert failure_of(PassingError("What.", "Do.")) == Failure("What. Do.", is_passing=True)


def test_an_error_that_spark_hides_behind_its_own_is_found() -> None:
    lines = (
        "ImportError: no such thing",
        "",
        "During handling of the above exception, another exception occurred:",
    )
    mask = "UnboundLocalError: cannot access local variable 'reader' where it is not associated with a value"
    assert failure_from(trace(*lines, mask)).sentence == "ImportError: no such thing"
