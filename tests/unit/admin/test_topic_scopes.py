"""What `--topic NAME[:PARTITIONS]` covers."""

import pytest

from ottla.admin.group_offsets import TopicScope, parse_scope
from ottla.model.ids import TopicPartition


@pytest.mark.parametrize(
    ("text", "scope"),
    [
        ("orders", TopicScope("orders", ())),
        ("orders:0", TopicScope("orders", (0,))),
        ("orders:2,0,2", TopicScope("orders", (0, 2))),
    ],
)
def test_a_scope_is_a_topic_or_some_partitions_of_it(text: str, scope: TopicScope) -> None:
    assert parse_scope(text) == scope


@pytest.mark.parametrize("text", ["", ":0", "orders:", "orders:a", "orders:0,", "orders:-1", "orders:0:1"])
def test_anything_else_is_not_a_scope(text: str) -> None:
    with pytest.raises(ValueError, match="expected NAME, or NAME:PARTITIONS with numbers"):
        parse_scope(text)


def test_a_scope_covers_no_other_topic_or_partition() -> None:
    assert parse_scope("orders").covers(TopicPartition("orders", 5))
    assert not parse_scope("orders").covers(TopicPartition("orders2", 5))
    assert parse_scope("orders:5").covers(TopicPartition("orders", 5))
    assert not parse_scope("orders:5").covers(TopicPartition("orders", 6))


def test_a_scope_as_text_is_what_was_parsed() -> None:
    assert [str(parse_scope(text)) for text in ("orders", "orders:0,2")] == ["orders", "orders:0,2"]
