"""The one sentence in Spark's output for a query that failed."""

import re

import pytest

from ottla.pipeline.archive.errors import explain_write_errors
from ottla.pipeline.errors import PermanentStageError, PipelineError, RetriableError
from ottla.pipeline.query_errors import ErrorSummary, summarize, summarize_text

STREAM = "org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStream@6368dbc1"
QUERY = "[STREAM_FAILED] Query [id = 6c2a, runId = 0e93] terminated with exception: "
OFFSETS = (
    "\n=== Streaming Query ===\nIdentifier: clean [id = 6c2a, runId = 0e93]\n"
    f'Current Committed Offsets: {{{STREAM}: {{"raw": {{"0": 2, "1": 5}}}}}}\n'
    f'Current Available Offsets: {{{STREAM}: {{"raw": {{"0": 30, "1": 5, "2": 1}}}}}}\n\nCurrent State: ACTIVE'
)
BAD_CAST = (
    "[CAST_INVALID_INPUT] The value 'x' cannot be cast to \"DOUBLE\". SQLSTATE: 22018\n== SQL (line 9) ==\n ^^^\n"
    " SQLSTATE: XXKST"
)
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
            ["ottla.pipeline.errors.RetriableError: The broker is away. Start it."],
            ErrorSummary("The broker is away. Start it.", is_retriable=True),
        ),
        (
            ["ottla.pipeline.errors.PermanentStageError: Another run is active. Read timed out. Stop one."],
            ErrorSummary("Another run is active. Read timed out. Stop one.", False, is_permanent=True),
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
            ["Job aborted: [USER_RAISED_EXCEPTION] The transform x rejects a record. SQLSTATE: P0001"],
            ErrorSummary("The transform x rejects a record.", is_retriable=False),
        ),
    ],
)
def test_the_sentence_that_matters_is_found(lines: list[str], failure: ErrorSummary) -> None:
    assert summarize_text(trace(*lines)) == failure


def test_sparks_first_sentence_is_used_if_there_is_no_other() -> None:
    text = "[PATH_NOT_FOUND] Path does not exist: file:/x. SQLSTATE: 42K03\nmore"
    assert summarize_text(text) == ErrorSummary("Path does not exist: file:/x.", is_retriable=False)


def test_a_lost_executor_is_retriable() -> None:
    assert summarize_text("Job aborted: ExecutorLostFailure (executor 1 exited)").is_retriable


def test_a_long_line_is_shortened_and_an_empty_one_replaced() -> None:
    assert len(summarize_text("x" * 2000).sentence) < 600
    assert summarize(ValueError()).sentence == "ValueError"


def test_a_pipeline_error_is_its_own_summary() -> None:
    assert summarize(PipelineError("What.", "Do.")) == ErrorSummary("What. Do.", is_retriable=False)
    assert summarize(RetriableError("What.", "Do.")) == ErrorSummary("What. Do.", is_retriable=True)


def test_a_permanent_error_is_recognized_also_behind_another_and_with_the_words_of_an_outage() -> None:
    permanent = PermanentStageError("Another run on host Connection refused archives it.", "Stop it.")
    summary = ErrorSummary(str(permanent), is_retriable=False, is_permanent=True)
    assert summarize(permanent) == summary
    printed = f"ottla.pipeline.errors.PermanentStageError: {permanent}"
    assert summarize_text(trace(printed)) == summary
    assert summarize_text(trace(printed, "", "ottla.pipeline.errors.PipelineError: then")) == summary
    plan = f"ottla.pipeline.errors.PipelineError: gone\n=== Streaming Query ===\n{printed}"
    assert not summarize_text(plan).is_permanent


def test_an_error_that_spark_hides_behind_its_own_is_found() -> None:
    lines = (
        "ImportError: no such thing",
        "",
        "During handling of the above exception, another exception occurred:",
    )
    mask = "UnboundLocalError: cannot access local variable 'reader' where it is not associated with a value"
    assert summarize_text(trace(*lines, mask)).sentence == "ImportError: no such thing"


def test_a_batch_that_fails_on_a_record_names_its_offsets() -> None:
    assert summarize_text(QUERY + BAD_CAST + OFFSETS) == ErrorSummary(
        "The value 'x' cannot be cast to \"DOUBLE\". It was in the batch with the offsets "
        "raw-0: 2 to 29, raw-2: 0 to 0, which runs again at the next start.",
        is_retriable=False,
    )
    python = f"{QUERY}Traceback\nValueError: bad{OFFSETS}"
    assert summarize_text(python).sentence.startswith(
        "ValueError: bad It was in the batch with the offsets raw-0"
    )


def test_a_query_without_offsets_of_topics_is_summarized_too() -> None:
    said = "The value 'x' cannot be cast to \"DOUBLE\"."
    assert summarize_text(QUERY + BAD_CAST).sentence == said
    of_files = OFFSETS.replace('{"raw": {"0": 30, "1": 5, "2": 1}}', '{"entry": 5}')
    assert summarize_text(QUERY + BAD_CAST + of_files).sentence == said


def test_a_record_that_a_transform_rejected_is_named_alone() -> None:
    said = "The transform clean rejects the record of topic raw, partition 0, offset 7: nope. Set `dead_letters`."
    assert summarize_text(f"{QUERY}[USER_RAISED_EXCEPTION] {said} SQLSTATE: P0001{OFFSETS}").sentence == said


def test_a_retriable_error_does_not_name_a_batch() -> None:
    failure = summarize_text(f"{QUERY}\nKafkaError: _TRANSPORT: Connection refused{OFFSETS}")
    assert failure == ErrorSummary("KafkaError: _TRANSPORT: Connection refused", is_retriable=True)


@pytest.mark.parametrize(
    "text",
    [
        "java.net.SocketTimeoutException: Read timed out",
        "AWSS3IOException: PUT 0-byte object: S3Exception: Please reduce your request rate (SlowDown)",
        "S3Exception: null (Service: S3, Status Code: 503, Request ID: 1)",
        "RemoteException(o.a.h.hdfs.server.namenode.SafeModeException): Cannot create file. Name node is in safe mode.",
        "RemoteException(o.a.h.ipc.StandbyException): Operation category READ is not supported in state standby",
        "java.net.UnknownHostException: namenode",
        "java.net.ConnectException: Connection timed out",
        "FetchFailed(BlockManagerId(1, 10.0.0.1, 7337, None), shuffleId=3, mapIndex=0)",
    ],
)
def test_outages_of_stores_and_networks_are_retriable(text: str) -> None:
    assert summarize_text(f"{QUERY}{text}").is_retriable
    own = f"The archive at s3a://b could not be written: {text}."
    assert summarize(PipelineError(own, "Fix that.")).is_retriable
    assert summarize_text(f"{QUERY}ottla.pipeline.errors.PipelineError: {own}").is_retriable
    with pytest.raises(OSError, match=re.escape(text)), explain_write_errors("s3a://b"):
        raise OSError(text)
