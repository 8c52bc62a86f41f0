"""Offsets as CSV, in and out."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.admin.offsets_csv import read_offsets, write_offsets
from ottla.admin.reset_plan import PlannedReset
from ottla.model.ids import TopicPartition

TOPICS = st.text("abc.-_09", min_size=1, max_size=12)
PLANS = st.dictionaries(
    st.builds(TopicPartition, TOPICS, st.integers(0, 2**31 - 1)), st.integers(0, 2**63 - 1), min_size=1
)


@settings(max_examples=200, deadline=None)
@given(PLANS)
def test_what_is_written_is_read_again(offsets: dict[TopicPartition, int]) -> None:
    plan = [PlannedReset(topic, number, None, offset, None) for (topic, number), offset in offsets.items()]
    assert read_offsets(write_offsets(plan), "any") == offsets


def test_lines_are_topic_partition_and_offset_without_a_heading() -> None:
    assert write_offsets([PlannedReset("orders", 1, 7, 5, "a note")]) == "orders,1,5\n"


def test_of_a_file_with_several_groups_only_the_groups_own_lines_are_taken() -> None:
    text = '"a,b",orders,0,5\nother,orders,0,9\r\n\n"a,b",orders,1,6\n'
    assert read_offsets(text, "a,b") == {TopicPartition("orders", 0): 5, TopicPartition("orders", 1): 6}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("orders,0\n", "line 1: expected topic,partition,offset, got 'orders,0'"),
        ("orders,0,1\norders,zero,1\n", "line 2: partition and offset must be whole numbers"),
        ("orders,0,-1\n", "line 1: partition and offset must be whole numbers"),
        ("orders,0,9223372036854775808\n", "line 1: partition and offset must be whole numbers"),
        ("orders,0,1\norders,0,2\n", "line 2: orders-0 has an offset already"),
        ("", "there is no offset for group mine"),
        ("other,orders,0,1\n", "there is no offset for group mine"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_with_the_line(text: str, problem: str) -> None:
    with pytest.raises(ValueError) as refused:
        read_offsets(text, "mine")
    assert problem in str(refused.value)
