"""The offset map of compaction behaves like a dict."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from ottla.storage.cleaner.offset_map import ENTRY_BYTES, OffsetMap


def words(numbers: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Few distinct first words, so that many keys collide. As with real hashes, no second word is zero."""
    second = np.array(numbers, np.uint64) + np.uint64(1)
    return second % np.uint64(7), second


@given(st.lists(st.lists(st.integers(0, 300), max_size=80), max_size=8))
@examples(80)
def test_the_map_holds_the_last_offset_of_every_key(columns: list[list[int]]) -> None:
    offset_map, offset = OffsetMap(1 << 20, 0.9, 1000), 0
    expected: dict[int, int] = {}
    for column in columns:
        offsets = np.arange(offset, offset + len(column))
        assert offset_map.put(*words(column), offsets) == len(column)
        expected.update(zip(column, offsets.tolist(), strict=True))
        offset += len(column)
    every = list(range(301))
    assert offset_map.get(*words(every)).tolist() == [expected.get(key, -1) for key in every]
    assert offset_map.entries == len(expected)
    assert offset_map.surviving_offsets().tolist() == sorted(expected.values())


@given(st.integers(1, 400), st.integers(1, 60))
@examples(60)
def test_a_full_map_returns_how_many_keys_it_added(keys: int, slots: int) -> None:
    offset_map = OffsetMap(slots * ENTRY_BYTES, 0.9, 1000)
    numbers = list(range(keys))
    added = offset_map.put(*words(numbers), np.arange(keys))
    assert added == min(keys, offset_map.entries_max) == offset_map.entries
    assert offset_map.get(*words(numbers)).tolist() == [*range(added), *[-1] * (keys - added)]


def test_the_map_stays_within_its_memory_and_is_smaller_for_few_keys() -> None:
    assert OffsetMap(10_000 * ENTRY_BYTES, 0.9, 10**9).slots <= 10_000
    assert OffsetMap(10_000_000 * ENTRY_BYTES, 0.9, 500).slots < 1100


def test_a_repeated_key_takes_one_entry() -> None:
    offset_map = OffsetMap(1 << 16, 0.9, 1000)
    numbers = [5] * 50_000
    assert offset_map.put(*words(numbers), np.arange(50_000)) == 50_000
    assert offset_map.entries == 1
    assert offset_map.get(*words([5])).tolist() == [49_999]
