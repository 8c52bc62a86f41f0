"""Each codec reads its own output and that of other clients, and limits the decompressed size."""

import gzip
import tracemalloc

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from ottla.model.errors import ErrorCode, KafkaError
from ottla.records.compression import (
    CODEC_NAMES,
    CODEC_OF_TYPE,
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    compress,
    decompress,
)

PACKING = [GZIP, SNAPPY, LZ4, ZSTD]
LIMIT = 1 << 20
TEXT = b"the same words again and again, " * 10_000  # several blocks of each framing


def named(codec: int) -> str:
    return CODEC_NAMES[codec]


@pytest.mark.parametrize("codec", [NONE, *PACKING], ids=named)
@examples(40)
@given(data=st.binary(max_size=2000))
def test_compressed_data_survives_a_round_trip(codec: int, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), LIMIT) == data


@pytest.mark.parametrize("codec", [NONE, *PACKING], ids=named)
def test_many_blocks_are_decompressed_from_any_kind_of_buffer(codec: int) -> None:
    packed = compress(codec, memoryview(TEXT))
    assert decompress(codec, memoryview(packed), LIMIT) == TEXT
    assert decompress(codec, bytearray(packed), LIMIT) == TEXT


@pytest.mark.parametrize(
    ("codec", "level"),
    [(GZIP, 1), (GZIP, 9), (LZ4, 1), (LZ4, 12), (LZ4, 17), (ZSTD, -5), (ZSTD, 1), (ZSTD, 19)],
)
def test_kafkas_compression_levels_are_accepted(codec: int, level: int) -> None:
    assert decompress(codec, compress(codec, TEXT, level), LIMIT) == TEXT


def test_the_framing_of_other_clients_is_read() -> None:
    assert decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)), LIMIT) == TEXT
    assert decompress(LZ4, bytes(cramjam.lz4.compress(TEXT)), LIMIT) == TEXT
    assert decompress(GZIP, gzip.compress(TEXT), LIMIT) == TEXT
    assert decompress(ZSTD, bytes(cramjam.zstd.compress(TEXT, level=1)), LIMIT) == TEXT


def test_lz4_blocks_are_independent() -> None:
    """The Java client rejects frames of dependent blocks."""
    assert compress(LZ4, TEXT)[4] & 0x20


def test_lz4_stores_incompressible_bytes_uncompressed() -> None:
    noise = bytes(range(256)) + bytes(cramjam.zstd.compress(bytes(range(256)) * 40, level=19))
    assert len(compress(LZ4, noise)) < len(noise) + 32
    assert decompress(LZ4, compress(LZ4, noise), LIMIT) == noise


@pytest.mark.parametrize("codec", PACKING, ids=named)
def test_exactly_the_limit_is_allowed_and_one_byte_more_is_not(codec: int) -> None:
    packed = compress(codec, TEXT)
    assert decompress(codec, packed, len(TEXT)) == TEXT
    with pytest.raises(KafkaError, match=f"limit of {len(TEXT) - 1} bytes") as caught:
        decompress(codec, packed, len(TEXT) - 1)
    assert caught.value.code is ErrorCode.corrupt_message


@pytest.mark.parametrize("codec", PACKING, ids=named)
def test_a_compression_bomb_takes_no_more_memory_than_a_few_limits(codec: int) -> None:
    bomb = compress(codec, bytes(64 * LIMIT))
    tracemalloc.start()
    try:
        with pytest.raises(KafkaError, match="limit"):
            decompress(codec, bomb, LIMIT)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * LIMIT


def test_a_snappy_block_that_claims_gigabytes_is_rejected_before_memory_is_allocated() -> None:
    with pytest.raises(KafkaError, match="claim to unpack"):
        decompress(SNAPPY, b"\xff\xff\xff\xff\x07" + b"\0" * 10, 1 << 40)


@pytest.mark.parametrize("codec", PACKING, ids=named)
@examples(60)
@given(data=st.data())
def test_damaged_bytes_are_a_corrupt_message_or_read_never_anything_else(
    codec: int, data: st.DataObject
) -> None:
    packed = bytearray(compress(codec, TEXT[:5000]))
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    damaged = packed[: data.draw(st.integers(0, len(packed)))]
    code = ErrorCode.corrupt_message
    try:
        decompress(codec, damaged, LIMIT)
    except KafkaError as error:
        code = error.code
    assert code is ErrorCode.corrupt_message


@pytest.mark.parametrize("codec", PACKING, ids=named)
def test_a_cut_off_stream_is_a_corrupt_message(codec: int) -> None:
    packed = compress(codec, TEXT)
    with pytest.raises(KafkaError, match=f"not valid {named(codec)}") as caught:
        decompress(codec, packed[:-3], LIMIT)
    assert caught.value.code is ErrorCode.corrupt_message


def test_the_error_for_an_unknown_codec_contains_its_id() -> None:
    for work in (compress, decompress):
        with pytest.raises(KafkaError, match="id 6") as caught:
            work(6, b"")
        assert caught.value.code is ErrorCode.unsupported_compression_type


def test_the_names_of_compression_type_are_kafkas() -> None:
    assert set(CODEC_OF_TYPE) == {"producer", "uncompressed", "none", "gzip", "snappy", "lz4", "zstd"}
    assert CODEC_OF_TYPE["producer"] is None
    assert [CODEC_OF_TYPE[name] for name in CODEC_NAMES] == [0, 1, 2, 3, 4]
