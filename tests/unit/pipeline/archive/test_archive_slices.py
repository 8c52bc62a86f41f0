from hypothesis import given
from hypothesis import strategies as st

from ottla.pipeline.archive.slices import PackedSlices, Slice

numbers = st.integers(0, 2**63 - 1)


@given(st.dictionaries(st.integers(0, 2**31 - 1), st.builds(Slice, numbers, numbers, numbers), max_size=5))
def test_packed_slices_are_the_same_mapping(slices: dict[int, Slice]) -> None:
    packed = PackedSlices((at, one.first, one.last, one.records) for at, one in slices.items())
    assert packed == slices
    assert list(packed) == list(slices)
    assert packed.keys() == slices.keys()
    assert -1 not in packed
    assert packed.get(-1) is None
