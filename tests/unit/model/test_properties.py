"""Java's .properties syntax."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from ottla.model.config import parse_properties


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("", {}),
        ("# a comment\n! another\n\n   # indented", {}),
        ("a=1\nb = 2\nc:3\nd 4\ne\t=\t5", {"a": "1", "b": "2", "c": "3", "d": "4", "e": "5"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("alone\nempty=", {"alone": "", "empty": ""}),
        ("  indented = keeps trailing  ", {"indented": "keeps trailing  "}),
        ("list=a,\\\n     b,\\\n     c", {"list": "a,b,c"}),
        ("path=C:\\\\dir\\\\\nnext=1", {"path": "C:\\dir\\", "next": "1"}),
        ("continued=1\\\n# not a comment", {"continued": "1# not a comment"}),
        ("key\\ with\\:signs\\=x=1", {"key with:signs=x": "1"}),
        ("tab=a\\tb\\nc\\rd\\fe\\qf", {"tab": "a\tb\nc\rd\feqf"}),
        ("umlaut=\\u00fc\\uD83D\\uDE00", {"umlaut": "ü\U0001f600"}),
        ("listeners=PLAINTEXT://:9092", {"listeners": "PLAINTEXT://:9092"}),
        ("twice=1\ntwice=2", {"twice": "2"}),
        ("end=\\", {"end": ""}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, properties: dict[str, str]) -> None:
    assert parse_properties(text) == properties


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\uwxyz"])
def test_the_error_for_a_malformed_escape_contains_it(text: str) -> None:
    with pytest.raises(ValueError, match=r"Malformed escape \\u"):
        parse_properties(text)


def _escaped(text: str) -> str:
    return "".join(f"\\{char}" if char in "\\=:#! \t\f" else char for char in text)


@examples(200)
@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1),
        st.text(st.characters(codec="utf-8", exclude_characters="\r\n")),
    )
)
def test_escaped_text_survives_a_round_trip(properties: dict[str, str]) -> None:
    text = "\n".join(f"{_escaped(key)}={_escaped(value)}" for key, value in properties.items())
    assert parse_properties(text) == properties
