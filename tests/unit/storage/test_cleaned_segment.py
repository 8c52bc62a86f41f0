"""A cleaned segment has the same files as a segment to which the same batches were appended one by one."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.storage.log_builder import NOW_MS, batch, sim_disk

from ottla.sim.disk import SimDisk
from ottla.storage.cleaner.cleaned_segment import CleanedSegment
from ottla.storage.file_names import CLEANED_SUFFIX
from ottla.storage.log_config import LogConfig
from ottla.storage.segment import Segment
from ottla.storage.txn_index import AbortedTxn

DIRECTORY = "/data/orders-0"
BASE_OFFSET = 40
ABORTED = AbortedTxn(7, 41, 45, 46)

# (size of a gap in the offsets, number of records, their size, their timestamp or -1 for none)
batches = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(1, 60), st.integers(-1, 6)),
    min_size=1,
    max_size=5,
)
chunks = st.lists(batches, max_size=8)


def files(disk: SimDisk) -> dict[str, bytes]:
    return {name: disk.read_bytes(f"{DIRECTORY}/{name}") for name in disk.list_dir(DIRECTORY)}


@examples(300)
@given(
    chunks=chunks,
    interval=st.sampled_from([0, 70, 90, 200, 500]),
    index_bytes=st.sampled_from([24, 40, 64, 4096]),
    has_aborted=st.booleans(),
)
def test_the_files_equal_those_of_an_appended_segment(
    chunks: list[list[tuple[int, int, int, int]]], interval: int, index_bytes: int, has_aborted: bool
) -> None:
    config = LogConfig(segment_bytes=1 << 20, index_interval_bytes=interval, max_index_bytes=index_bytes)
    disk, appended_disk = sim_disk(), sim_disk()
    for each in (disk, appended_disk):
        each.make_dirs(DIRECTORY)
    cleaned = CleanedSegment(disk, DIRECTORY, BASE_OFFSET, config)
    appended_segment = Segment.create(appended_disk, DIRECTORY, BASE_OFFSET, config, NOW_MS)
    offset = BASE_OFFSET
    for chunk in chunks:
        appended = []
        for gap, count, size, timestamp in chunk:
            offset += gap
            when = NOW_MS + 5 * timestamp if timestamp >= 0 else -1
            appended.append(batch(offset, count, size=size, timestamp=when))
            offset += count
        headers = [header for header, _ in appended]
        parts = [part for _, parts in appended for part in parts]
        cleaned.append(
            np.array([header.size for header in headers]),
            np.array([header.last_offset for header in headers]),
            np.array([header.max_timestamp for header in headers]),
            parts,
        )
        appended_segment.append(headers, parts, sum(map(len, parts)))
    if has_aborted:
        cleaned.append_aborted(ABORTED)
        appended_segment.txn_index.append(ABORTED)
    cleaned.finish()
    appended_segment.seal()
    appended_segment.close()
    assert cleaned.size == appended_segment.size
    assert files(disk) == {name + CLEANED_SUFFIX: content for name, content in files(appended_disk).items()}
    cleaned.remove()
    assert files(disk) == {}


def test_files_that_a_failed_cleaning_left_are_overwritten() -> None:
    disk = sim_disk()
    disk.make_dirs(DIRECTORY)
    config = LogConfig(index_interval_bytes=0)
    header, parts = batch(BASE_OFFSET, 2)
    sizes, last_offsets, max_timestamps = (
        np.array([number]) for number in (header.size, header.last_offset, header.max_timestamp)
    )
    failed = CleanedSegment(disk, DIRECTORY, BASE_OFFSET, config)
    for _ in range(3):
        failed.append(sizes, last_offsets, max_timestamps, parts)
    failed.append_aborted(ABORTED)
    failed.finish()
    again = CleanedSegment(disk, DIRECTORY, BASE_OFFSET, config)
    again.append(sizes, last_offsets, max_timestamps, parts)
    again.finish()
    found = files(disk)
    assert sorted(name.split(".", 1)[1] for name in found) == [
        "index.cleaned",
        "log.cleaned",
        "timeindex.cleaned",
        "txnindex.cleaned",
    ]
    assert [content for name, content in sorted(found.items()) if ".txnindex" in name] == [b""]
    assert [content for name, content in sorted(found.items()) if ".log" in name] == [b"".join(parts)]
