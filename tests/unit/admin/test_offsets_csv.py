"""Offsets as CSV, in and out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from ottla.admin.offsets_csv import read_offsets, write_offsets
from ottla.admin.reset_plan import PlannedReset
from ottla.model.ids import TopicPartition

TOPICS = st.text("abc.-_09", min_size=1, max_size=12)
PLANS = st.dictionaries(
    st.builds(TopicPartition, TOPICS, st.integers(0, 2**31 - 1)), st.integers(0, 2**63 - 1), min_size=1
)


@examples(200)
@given(PLANS)
def test_written_offsets_are_read_back(offsets: dict[TopicPartition, int]) -> None:
    plan = [PlannedReset(topic, number, None, offset, None) for (topic, number), offset in offsets.items()]
    assert read_offsets(write_offsets(plan), "any") == offsets


def test_a_line_has_topic_partition_and_offset() -> None:
    assert write_offsets([PlannedReset("orders", 1, 7, 5, "a note")]) == "orders,1,5\n"


def test_from_a_file_of_several_groups_only_the_lines_of_the_group_are_read() -> None:
    text = '"a,b",orders,0,5\nother,orders,0,9\r\n\n"a,b",orders,1,6\n'
    assert read_offsets(text, "a,b") == {TopicPartition("orders", 0): 5, TopicPartition("orders", 1): 6}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("orders,0\n", "line 1: expected topic,partition,offset, got 'orders,0'"),
        ("orders,0,1\norders,zero,1\n", "line 2: partition and offset must be whole numbers"),
        ("orders,0,-1\n", "line 1: partition and offset must be whole numbers"),
        ("orders,0,9223372036854775808\n", "line 1: partition and offset must be whole numbers"),
        ("orders,0,1\norders,0,2\n", "line 2: orders-0 has an offset already"),
        ("", "it has no offset for group mine"),
        ("other,orders,0,1\n", "it has no offset for group mine"),
    ],
)
def test_a_malformed_file_is_rejected_with_the_number_of_the_line(text: str, error: str) -> None:
    with pytest.raises(ValueError) as raised:
        read_offsets(text, "mine")
    assert error in str(raised.value)
