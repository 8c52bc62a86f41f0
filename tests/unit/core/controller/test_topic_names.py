"""Topic names follow Kafka's rules, and invalid names get its messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from ottla.core.controller.topic_names import LENGTH_MAX, colliding_name, topic_name_error

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
    assert colliding_name("a.b", ["x", "a_b"]) == "a_b"
    assert colliding_name("a.b_c", ["a_b.c"]) == "a_b.c"
    assert colliding_name("a.b", ["a.b", "a-b", "a_bc"]) is None
    assert colliding_name("ab", ["a_b"]) is None
