"""Topic names follow Kafka's rules, and invalid names get its messages."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from ottla.core.controller.topic_names import LENGTH_MAX, MetricNames, topic_name_error

LEGAL = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"


@examples(50)
@given(st.text(LEGAL, min_size=1, max_size=LENGTH_MAX).filter(lambda name: name not in (".", "..")))
def test_a_name_of_legal_characters_is_accepted(name: str) -> None:
    assert topic_name_error(name) is None


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "Topic name is invalid: the empty string is not allowed"),
        (".", "Topic name is invalid: '.' is not allowed"),
        ("..", "Topic name is invalid: '..' is not allowed"),
        (
            "a b",
            "Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' "
            "and '-'",
        ),
    ],
)
def test_an_illegal_name_is_rejected_with_the_reason(name: str, problem: str) -> None:
    assert topic_name_error(name) == problem


@pytest.mark.parametrize("name", ["a/b", "tøpic", "a\n", "a\x00", "１"])
def test_no_other_character_is_accepted(name: str) -> None:
    assert "contains one or more characters" in (topic_name_error(name) or "")


def test_the_longest_name_has_249_characters() -> None:
    assert topic_name_error("x" * 249) is None
    assert "longer than the max allowed length 249" in (topic_name_error("x" * 250) or "")


def test_a_period_and_an_underscore_collide_in_the_names_of_metrics() -> None:
    assert MetricNames(["x", "a_b"]).colliding_topic("a.b") == "a_b"
    assert MetricNames(["a_b.c"]).colliding_topic("a.b_c") == "a_b.c"
    assert MetricNames(["a.b", "a-b", "a_bc"]).colliding_topic("a.b") is None
    assert MetricNames(["a_b"]).colliding_topic("ab") is None


class CountedNames:
    def __init__(self, *names: str) -> None:
        self.names = names
        self.walks = 0

    def __iter__(self) -> Iterator[str]:
        self.walks += 1
        return iter(self.names)


def test_the_existing_topics_are_walked_through_once_if_a_name_can_collide() -> None:
    existing = CountedNames("a.b", "c")
    names = MetricNames(existing)
    assert names.colliding_topic("x") is None
    names.add("x")
    assert existing.walks == 0
    for number in range(100):
        assert names.colliding_topic(f"topic_{number}") is None
        names.add(f"topic_{number}")
    assert existing.walks == 1
    assert names.colliding_topic("topic.99") == "topic_99"
    assert names.colliding_topic("a_b") == "a.b"
