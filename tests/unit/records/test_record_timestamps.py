"""Lookups by timestamp find the exact record in a batch of any codec."""

from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.records.batch_strategies import CODECS, record_lists

from ottla.records.records import Record, build_batch
from ottla.records.timestamps import find_by_timestamp, offset_of_max_timestamp


@examples(80)
@given(records=record_lists(gaps=True), codec=CODECS, data=st.data())
def test_the_first_record_at_or_after_a_time_is_found(
    records: list[Record], codec: int, data: st.DataObject
) -> None:
    times = st.sampled_from([record.timestamp for record in records])
    target = data.draw(times) + data.draw(st.integers(-1, 1))
    start_offset = data.draw(st.sampled_from([0, *(record.offset for record in records)]))
    expected = next(
        (
            (record.offset, record.timestamp)
            for record in records
            if record.timestamp >= target and record.offset >= start_offset
        ),
        None,
    )
    assert find_by_timestamp(build_batch(records, codec=codec), target, start_offset) == expected


@examples(40)
@given(records=record_lists(gaps=True), codec=CODECS)
def test_the_first_record_with_the_largest_time_is_found(records: list[Record], codec: int) -> None:
    latest = max(record.timestamp for record in records)
    expected = next((record.offset, latest) for record in records if record.timestamp == latest)
    assert offset_of_max_timestamp(build_batch(records, codec=codec)) == expected


def test_in_a_batch_of_log_append_time_all_records_have_that_time() -> None:
    batch = build_batch([Record(5, 1, None, b"a"), Record(6, 2, None, b"b")], log_append_time_ms=700)
    assert find_by_timestamp(batch, 100) == (5, 700)
    assert find_by_timestamp(batch, 701) is None
    assert offset_of_max_timestamp(batch) == (5, 700)
