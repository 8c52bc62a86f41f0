"""Hypothesis strategies for records and whole batches."""

from hypothesis import strategies as st

from ottla.records.records import Record, build_batch

INT64 = st.integers(-(2**63), 2**63 - 1)
TIMES = st.integers(0, 2**42)
DATA = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=20)), max_size=3).map(tuple)
CODECS = st.integers(0, 4)


@st.composite
def record_lists(draw: st.DrawFn, *, gaps: bool = False) -> list[Record]:
    """Records of one batch; with `gaps` in the offsets, as after compaction."""
    offset = draw(st.integers(0, 2**40))
    records: list[Record] = []
    for _ in range(draw(st.integers(1, 12))):
        records.append(Record(offset, draw(TIMES), draw(DATA), draw(DATA), draw(HEADERS)))
        offset += draw(st.integers(1, 1000)) if gaps else 1
    return records


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    return build_batch(
        draw(record_lists()), codec=draw(CODECS), leader_epoch=draw(st.integers(-1, 2**31 - 1))
    )
