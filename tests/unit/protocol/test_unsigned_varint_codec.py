"""Unsigned varints, as KIP-482 takes them from Protocol Buffers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.varint import encode_uvarint, read_uvarint


@given(value=st.integers(0, 2**32 - 1), before=st.binary(max_size=3), after=st.binary(max_size=3))
def test_an_unsigned_varint_survives_a_round_trip(value: int, before: bytes, after: bytes) -> None:
    encoded = encode_uvarint(value)
    assert read_uvarint(before + encoded + after, len(before)) == (value, len(before) + len(encoded))


@pytest.mark.parametrize(
    ("value", "encoded"), [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (1024, "8008")]
)
def test_seven_bits_to_a_byte_lowest_first(value: int, encoded: str) -> None:
    assert encode_uvarint(value).hex() == encoded


def test_a_cut_off_varint_is_an_index_error_and_one_too_long_a_value_error() -> None:
    with pytest.raises(IndexError):
        read_uvarint(b"\x80", 0)
    with pytest.raises(ValueError, match="32 bits"):
        read_uvarint(b"\xff\xff\xff\xff\x1f", 0)
    with pytest.raises(ValueError, match="32 bits"):
        read_uvarint(b"\x80\x80\x80\x80\x80\x00", 0)
