"""Sink: which batches are written, skipped and rejected, by the markers."""

import pytest

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.spark.sink.markers import (
    BATCH_QUERY,
    Attempt,
    Marker,
    Written,
    check_attempt,
    decode_marker,
    first_attempt,
    is_written,
    next_marker,
    timeout_warning,
    unmarked_partitions,
)


def attempt(batch: int = 7, query: str = "q", plan: str = "plan-a", **more: str) -> Attempt:
    return Attempt("orders", query, batch, plan, **more)


def marker(
    batch: int, query: str = "q", plan: str = "plan-a", replaced: frozenset[str] = frozenset()
) -> Marker:
    return Marker(query, batch, plan, 10, replaced)


def test_a_decoded_marker_equals_the_encoded_one() -> None:
    written = Marker("q", 12, "plan", 34, frozenset({"older", "oldest"}), 5678)
    assert decode_marker(written.encode()) == written


def test_a_marker_of_an_older_ottla_has_no_size() -> None:
    older = b'{"query": "q", "batch": 1, "plan": "p", "rows": 2, "replaced": []}'
    assert decode_marker(older) == Marker("q", 1, "p", 2)


def test_a_partition_is_written_when_its_marker_holds_the_batch_of_this_query() -> None:
    assert is_written(attempt(7), marker(7))
    assert not is_written(attempt(7), marker(6))
    assert not is_written(attempt(7), marker(7, query="other"))
    assert not is_written(attempt(7), None)


@pytest.mark.parametrize(
    "markers", [{0: marker(6), 1: marker(6)}, {0: marker(7), 1: marker(6), 5: marker(2)}]
)
def test_a_new_batch_or_one_that_the_same_plan_wrote_in_part_is_accepted(
    markers: dict[int, Marker],
) -> None:
    check_attempt(attempt(7), markers)


def test_the_first_batch_and_batch_writes_need_no_marker() -> None:
    check_attempt(attempt(0), {})
    check_attempt(attempt(7, query=BATCH_QUERY), {})


def test_a_later_batch_without_any_marker_is_rejected_until_exactly_that_batch_is_reset() -> None:
    with pytest.raises(PipelineError, match=r"`orders` has no markers, .* batch 7.* deleted") as rejected:
        check_attempt(attempt(7), {})
    assert 'resetSink="q@7"' in rejected.value.remedy
    check_attempt(attempt(7, reset="q@7"), {})
    assert next_marker(attempt(7, reset="q@7"), {}, rows=5) == Marker("q", 7, "plan-a", 5)
    for reset in ("q", "q@6", "other@7"):
        with pytest.raises(PipelineError, match="has no markers"):
            check_attempt(attempt(7, reset=reset), {})


def test_a_first_batch_without_rows_gets_a_marker_that_any_query_may_replace() -> None:
    first = first_attempt("orders", 0, [Written(0, 0), Written(1, 0)], {})
    assert first is not None
    before = {0: next_marker(first, {}, rows=0)}
    check_attempt(attempt(1), before)
    check_attempt(attempt(0), before)
    assert not is_written(attempt(0), before[0])
    assert next_marker(attempt(1), before, rows=5) == Marker("q", 1, "plan-a", 5)


def test_only_a_first_batch_without_rows_and_markers_gets_that_marker() -> None:
    assert first_attempt("orders", 0, [Written(0, 1)], {}) is None
    assert first_attempt("orders", 0, [], {3: marker(0)}) is None
    # Markers that are lost must stay missing.
    assert first_attempt("orders", 1, [], {}) is None


def test_a_changed_plan_is_accepted_after_a_complete_batch() -> None:
    check_attempt(attempt(7, plan="plan-b"), {0: marker(6), 1: marker(6)})


def test_a_changed_plan_is_rejected_for_a_batch_that_is_written_in_part() -> None:
    with pytest.raises(PipelineError, match=r"was written in part .*plan-a.*plan-b") as rejected:
        check_attempt(attempt(7, plan="plan-b"), {0: marker(6), 1: marker(7)})
    assert 'acceptPlan="plan-a"' in rejected.value.remedy


def test_a_changed_plan_is_accepted_only_with_the_fingerprint_of_the_old_one() -> None:
    markers = {0: marker(6), 1: marker(7)}
    check_attempt(attempt(7, plan="plan-b", accept_plan="plan-a"), markers)
    with pytest.raises(PipelineError, match="in part"):
        check_attempt(attempt(7, plan="plan-b", accept_plan="plan-z"), markers)


def test_a_checkpoint_older_than_the_sink_is_rejected() -> None:
    with pytest.raises(PipelineError, match=r"has batch 9 .*would write batch 7"):
        check_attempt(attempt(7), {0: marker(6), 3: marker(9)})


def test_another_query_is_rejected_with_the_option_to_replace_the_old_one() -> None:
    with pytest.raises(PipelineError, match="last written by the query old") as rejected:
        check_attempt(attempt(0), {2: marker(40, query="old")})
    assert 'resetSink="old"' in rejected.value.remedy


def test_a_query_replaces_the_one_that_it_names_and_no_other() -> None:
    check_attempt(attempt(0, reset="old"), {0: marker(40, query="old")})
    with pytest.raises(PipelineError, match="by the query stranger"):
        check_attempt(attempt(0, reset="old"), {0: marker(40, query="old"), 1: marker(3, query="stranger")})


def test_a_replaced_query_stays_replaced_without_the_option() -> None:
    before = {0: marker(40, query="old"), 1: marker(40, query="old")}
    mine = next_marker(attempt(0, reset="old"), before, rows=5)
    assert mine == Marker("q", 0, "plan-a", 5, frozenset({"old"}))
    after = {**before, 0: mine}
    check_attempt(attempt(1), after)
    assert next_marker(attempt(1), after, rows=5).replaced == {"old"}


def test_a_replaced_query_that_is_still_alive_is_rejected() -> None:
    with pytest.raises(PipelineError, match="by the query q"):
        check_attempt(
            attempt(41, query="old"), {0: marker(0, replaced=frozenset({"old"})), 1: marker(40, query="old")}
        )


def test_a_commit_needs_the_marker_of_every_partition_that_had_rows() -> None:
    written = [Written(0, 10), Written(1, 0), Written(2, 10), Written(3, 10)]
    markers = {0: marker(7), 2: marker(6), 3: marker(7, query="other")}
    assert unmarked_partitions("q", 7, written, markers) == [2, 3]
    assert unmarked_partitions("q", 7, [], {}) == []


def test_a_batch_that_takes_half_of_the_transaction_timeout_is_warned_of() -> None:
    assert timeout_warning("orders", 7, [], 900) is None
    assert timeout_warning("orders", 7, [Written(0, 10, 449.0)], 900) is None
    warning = timeout_warning("orders", 7, [Written(0, 10, 20.0), Written(3, 12_000, 512.0)], 900)
    assert warning is not None
    assert warning.startswith("Batch 7 of sink `orders`: Spark partition 3 took 512 s of the 900 s")
    assert "12,000 rows" in warning
