"""MySQL's binary JSON, from bytes that are built here as its documentation describes them."""

import pytest

from ottla.pipeline.ingest.cdc.mysql.binlog.json_values import double_text, json_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (100.0, "100.0"),
        (1e14, "100000000000000.0"),
        (1e15, "1e15"),
        (2160398819379738.5, "2160398819379738.5"),
        (9.5e15, "9.5e15"),
        (8.02e-15, "0.00000000000000802"),
        (8.02e-16, "8.02e-16"),
        (1.7976931348623157e308, "1.7976931348623157e308"),
    ],
)
def test_doubles_are_written_as_the_server_writes_them(value: float, text: str) -> None:
    assert double_text(value) == text


def test_members_are_found_by_their_positions_and_small_ones_are_inline() -> None:
    key_entries = (18).to_bytes(2, "little") + (1).to_bytes(2, "little")
    key_entries += (19).to_bytes(2, "little") + (2).to_bytes(2, "little")
    values = bytes([5]) + (-7).to_bytes(2, "little", signed=True) + bytes([12]) + (21).to_bytes(2, "little")
    body = bytes([2, 0, 25, 0]) + key_entries + values + b"a" + b"bb" + bytes([3]) + "ü\n".encode()
    assert json_text(bytes([0]) + body) == '{"a": -7, "bb": "ü\\n"}'


def test_a_value_of_no_bytes_is_null() -> None:
    assert json_text(b"") == "null"
    assert json_text(bytes([4, 1])) == "true"
