"""Records survive a round trip through a batch; malformed records raise only KafkaError."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.records.batch_strategies import CODECS, INT64, batches, record_lists

from ottla.model.errors import ErrorCode, KafkaError
from ottla.records.compression import CODEC_NAMES, NONE, ZSTD, compress
from ottla.records.header import HEADER_SIZE, LOG_OVERHEAD, check_client_batch, read_header, sealed_parts
from ottla.records.records import Record, build_batch, iter_records, read_batches
from ottla.records.varint import encode_varint, read_varint

ONE = build_batch([Record(0, 5, b"k", b"v", (("h", b"x"),))])


def with_records(payload: bytes, count: int = 1, codec: int = NONE) -> bytes:
    """A batch with a valid checksum and `payload` as its records."""
    packed = compress(codec, payload)
    header = read_header(ONE)._replace(
        batch_length=HEADER_SIZE - LOG_OVERHEAD + len(packed),
        records_count=count,
        last_offset_delta=count - 1,
        attributes=codec,
    )
    return b"".join(sealed_parts(header, packed))


@given(value=INT64, before=st.binary(max_size=3))
def test_a_varint_survives_a_round_trip(value: int, before: bytes) -> None:
    encoded = encode_varint(value)
    assert read_varint(before + encoded + b"\xff", len(before)) == (value, len(before) + len(encoded))


@pytest.mark.parametrize(
    ("value", "encoded"), [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001")]
)
def test_small_numbers_of_either_sign_take_one_byte(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded


def test_a_varint_of_eleven_bytes_is_rejected() -> None:
    with pytest.raises(ValueError, match="10 bytes"):
        read_varint(b"\x80" * 10 + b"\x01", 0)


@examples(80)
@given(records=record_lists(), codec=CODECS)
def test_records_survive_a_round_trip_in_any_codec(records: list[Record], codec: int) -> None:
    [(header, found)] = read_batches(build_batch(records, codec=codec))
    assert found == records
    assert header.compression == codec
    assert header.max_timestamp == max(record.timestamp for record in records)
    check_client_batch(header)


@examples(40)
@given(records=record_lists(gaps=True), lead=st.integers(0, 50))
def test_offset_gaps_of_compaction_are_kept(records: list[Record], lead: int) -> None:
    base_offset = max(0, records[0].offset - lead)
    [(header, found)] = read_batches(build_batch(records, base_offset=base_offset))
    assert found == records
    assert (header.base_offset, header.last_offset) == (base_offset, records[-1].offset)


def test_all_fields_of_a_header_survive_a_round_trip() -> None:
    header = read_header(
        build_batch(
            [Record(3, 10, None, b"v")],
            leader_epoch=4,
            producer_id=77,
            producer_epoch=2,
            base_sequence=9,
            transactional=True,
            log_append_time_ms=99,
        )
    )
    assert (header.partition_leader_epoch, header.producer_id) == (4, 77)
    assert (header.producer_epoch, header.base_sequence) == (2, 9)
    assert header.is_transactional
    assert header.is_log_append_time
    assert header.max_timestamp == 99


def test_header_keys_that_are_not_text_come_back_as_they_were() -> None:
    key = b"\xff\xfe".decode("utf-8", "surrogateescape")
    batch = build_batch([Record(0, 0, None, None, ((key, None),))])
    assert b"\xff\xfe" in batch
    [record] = iter_records(batch)
    assert record.headers == ((key, None),)


def test_a_batch_is_read_at_its_position() -> None:
    assert list(iter_records(b"other" + ONE, 5)) == list(iter_records(ONE))


def test_the_builder_rejects_records_that_cannot_be_a_batch() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        build_batch([])
    with pytest.raises(ValueError, match="ascend"):
        build_batch([Record(1, 0, None, None), Record(1, 0, None, None)])
    with pytest.raises(ValueError, match="ascend"):
        build_batch([Record(1, 0, None, None)], base_offset=2)


@pytest.mark.parametrize("codec", range(5), ids=CODEC_NAMES.__getitem__)
@pytest.mark.parametrize(
    ("payload", "count", "words"),
    [
        ("", 1, "end inside a number"),
        ("10", 1, "claims 8 bytes"),
        ("01", 1, "claims -1 bytes"),
        ("0a0000000101", 1, "end inside a number"),
        ("0a000000010100", 1, "fields end 1 bytes"),
        ("0c00000001010002", 2, "claims 1 bytes"),
        ("0c00000001010000", 1, "follow"),
        ("0c000000400100", 1, "field claims"),
        ("0c000000010141", 1, "headers"),
        ("0c000000010103", 1, "headers"),
        ("10000000010102010000", 1, "no key|fields end"),
        ("80808080808080808080808001", 1, "varint"),
    ],
)
def test_malformed_records_are_a_corrupt_message(payload: str, count: int, words: str, codec: int) -> None:
    with pytest.raises(KafkaError, match=words) as caught:
        list(iter_records(with_records(bytes.fromhex(payload), count, codec)))
    assert caught.value.code is ErrorCode.corrupt_message


@examples(300)
@given(payload=st.binary(max_size=60), count=st.integers(-2, 2**31 - 1))
def test_any_payload_is_records_or_a_kafka_error(payload: bytes, count: int) -> None:
    batch = with_records(payload)
    header = read_header(batch)._replace(records_count=count)
    try:
        list(iter_records(b"".join(sealed_parts(header, batch[HEADER_SIZE:]))))
    except KafkaError:
        pass


@examples(150)
@given(batch=batches(), data=st.data())
def test_a_mutated_batch_is_read_or_a_kafka_error_even_without_a_crc_check(
    batch: bytes, data: st.DataObject
) -> None:
    damaged = bytearray(batch)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    damaged = damaged[: data.draw(st.integers(0, len(damaged)))]
    for read in (iter_records, read_batches):
        try:
            list(read(damaged))
        except KafkaError:
            pass


def test_records_that_unpack_to_more_than_the_limit_are_rejected() -> None:
    batch = build_batch([Record(0, 0, None, bytes(100_000))], codec=ZSTD)
    with pytest.raises(KafkaError, match="limit of 50000 bytes"):
        list(iter_records(batch, limit=50_000))
