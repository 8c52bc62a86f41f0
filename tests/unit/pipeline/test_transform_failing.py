"""What is said when a batch of a transform dies."""

from ottla.pipeline.query_errors import ErrorSummary, summarize_text
from ottla.pipeline.spark.sink.plan import Operator
from ottla.pipeline.transform.placing import fingerprint_of_source

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


def test_a_batch_that_dies_of_a_record_names_its_offsets() -> None:
    assert summarize_text(QUERY + BAD_CAST + OFFSETS) == ErrorSummary(
        "The value 'x' cannot be cast to \"DOUBLE\". It was in the batch with the offsets "
        "raw-0: 2 to 29, raw-2: 0 to 0, which runs again at the next start.",
        is_retriable=False,
    )
    python = f"{QUERY}Traceback\nValueError: bad{OFFSETS}"
    assert summarize_text(python).sentence.startswith(
        "ValueError: bad It was in the batch with the offsets raw-0"
    )


def test_a_query_that_tells_no_offsets_of_topics_is_explained_too() -> None:
    said = "The value 'x' cannot be cast to \"DOUBLE\"."
    assert summarize_text(QUERY + BAD_CAST).sentence == said
    of_files = OFFSETS.replace('{"raw": {"0": 30, "1": 5, "2": 1}}', '{"entry": 5}')
    assert summarize_text(QUERY + BAD_CAST + of_files).sentence == said


def test_the_record_that_a_transform_without_dead_letters_refused_is_named_alone() -> None:
    said = "The transform clean cannot take the record of topic raw, partition 0, offset 7: nope. Set `dead_letters`."
    assert summarize_text(f"{QUERY}[USER_RAISED_EXCEPTION] {said} SQLSTATE: P0001{OFFSETS}").sentence == said


def test_a_fault_that_passes_is_no_matter_of_a_batch() -> None:
    failure = summarize_text(f"{QUERY}\nKafkaError: _TRANSPORT: Connection refused{OFFSETS}")
    assert failure == ErrorSummary("KafkaError: _TRANSPORT: Connection refused", is_retriable=True)


def test_only_logic_that_leaves_rows_in_their_partition_may_change_in_the_middle_of_a_batch() -> None:
    def plan(*kinds: str) -> list[Operator]:
        return [Operator(kind, depth, f"{kind} [x#{depth}]") for depth, kind in enumerate(kinds)]

    source = "StreamingRelationV2"
    simple = fingerprint_of_source(plan("Project", source))
    assert simple is not None
    assert simple == fingerprint_of_source(plan("Project", "CollectMetrics", "Filter", "Generate", source))
    for moving in (("Deduplicate", source), ("Project", "Union", source, source), ("Aggregate", source)):
        assert fingerprint_of_source(plan(*moving)) is None
