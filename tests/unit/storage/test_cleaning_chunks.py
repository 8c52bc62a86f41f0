"""Reads segments in chunks: first all batches, then only some of them again."""

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.storage.log_builder import batch, sim_disk

from ottla.env.disk import File
from ottla.model.errors import ErrorCode, KafkaError
from ottla.storage.cleaner.batch_columns import ScannedBatches
from ottla.storage.cleaner.chunks import Chunk, ChunkReader

SIZES = st.lists(st.integers(1, 300), min_size=1, max_size=12)


def file_of(sizes: list[int]) -> tuple[File, list[bytes]]:
    found = [b"".join(batch(offset, size=size)[1]) for offset, size in enumerate(sizes)]
    file = sim_disk().open("/log", create=True)
    file.write_at(0, found)
    return file, found


def content(chunks: Iterable[Chunk]) -> list[bytes]:
    return [
        bytes(chunk.data[start:end])
        for chunk in chunks
        for start, end in zip(chunk.batches.positions.tolist(), chunk.batches.ends.tolist(), strict=True)
    ]


def scanned(reader: ChunkReader, file: File) -> ScannedBatches:
    return ScannedBatches.concatenate(
        [ScannedBatches.of_buffer(chunk.batches, chunk.position) for chunk in reader.read(file, file.size())]
    )


@examples(100)
@given(sizes=SIZES, chunk_bytes=st.sampled_from([80, 200, 500, 5000]), data=st.data())
def test_read_again_returns_exactly_the_wanted_batches(
    sizes: list[int], chunk_bytes: int, data: st.DataObject
) -> None:
    file, batches = file_of(sizes)
    reader = ChunkReader(chunk_bytes, lambda size: None)
    assert content(reader.read(file, file.size())) == batches
    wanted = sorted(data.draw(st.sets(st.integers(0, len(sizes) - 1))))
    again = reader.read_again(file, scanned(reader, file), np.array(wanted, np.int64))
    assert content(again) == [batches[index] for index in wanted]


def test_the_last_chunk_is_marked_and_every_byte_is_throttled() -> None:
    file, batches = file_of([250] * 6)
    throttled: list[int] = []
    reader = ChunkReader(700, throttled.append)
    found = scanned(reader, file)
    assert sum(throttled) == file.size()
    throttled.clear()
    chunks = list(reader.read_again(file, found, np.array([0, 2, 3, 5])))
    assert [(len(chunk.batches), chunk.is_last) for chunk in chunks] == [(2, False), (2, True)]
    assert sum(throttled) == sum(len(batches[index]) for index in (0, 2, 3, 5))


def test_a_truncated_file_is_an_error() -> None:
    file, batches = file_of([50, 50])
    reader = ChunkReader(1000, lambda size: None)
    found = scanned(reader, file)
    file.truncate(len(batches[0]) + 10)
    with pytest.raises(KafkaError) as raised:
        list(reader.read_again(file, found, np.array([0, 1])))
    assert raised.value.code is ErrorCode.corrupt_message
