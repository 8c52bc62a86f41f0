"""A template reads and writes numbers at its positions, and matches only if all other bytes are equal."""

from struct import Struct

from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.byte_template import ByteTemplate

FIELD = Struct(">qi")
gaps = st.lists(st.binary(max_size=9), min_size=1, max_size=6)
numbers = st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1))


def assembled(gaps: list[bytes], pairs: list[tuple[int, int]]) -> bytes:
    return gaps[0] + b"".join(FIELD.pack(*pair) + gap for pair, gap in zip(pairs, gaps[1:], strict=True))


@given(gaps, st.data())
def test_filled_in_numbers_are_read_back_and_match(gaps: list[bytes], data: st.DataObject) -> None:
    several = st.lists(numbers, min_size=len(gaps) - 1, max_size=len(gaps) - 1)
    first, second = data.draw(several), data.draw(several)
    positions = [len(assembled(gaps[: index + 1], first[:index])) for index in range(len(gaps) - 1)]
    template = ByteTemplate(assembled(gaps, first), positions, "qi")
    again = assembled(gaps, second)
    flat = tuple(number for pair in second for number in pair)
    assert template.matches(again)
    assert template.read(again) == flat
    assert template.fill(flat) == again


@given(st.binary(min_size=20, max_size=40), st.integers(0, 39), st.integers(1, 255))
def test_a_changed_byte_outside_the_numbers_does_not_match(sample: bytes, index: int, change: int) -> None:
    template = ByteTemplate(sample, [4], "qi")
    index %= len(sample)
    changed = bytearray(sample)
    changed[index] ^= change
    assert template.matches(bytes(changed)) == (4 <= index < 16)
    assert not template.matches(sample + b"\0")
    assert not template.matches(sample[1:])


def test_the_stamp_is_written_at_all_its_positions() -> None:
    template = ByteTemplate(b"ab" + bytes(8) + b"cd" + bytes(8) + b"e", [], "q", [2, 12])
    stamp = (1_700_000_000_000).to_bytes(8, "big")
    assert template.fill((), 1_700_000_000_000) == b"ab" + stamp + b"cd" + stamp + b"e"
