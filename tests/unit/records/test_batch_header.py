"""The header of a batch: which headers are rejected, and how an append changes it without copying records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.records.batch_strategies import batches

from ottla.model.errors import ErrorCode, KafkaError
from ottla.records.header import (
    CONTROL_MASK,
    FORBIDDEN_IN_TRANSACTIONS,
    HEADER_SIZE,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
    check_client_batch,
    crc_matches,
    planned_parts,
    read_header,
    rewrite_header,
    scan_batches,
)
from ottla.records.header import HEADER as HEADER_LAYOUT
from ottla.records.records import Record, build_batch, read_batches

BATCH = build_batch([Record(7, 1000, b"key", b"value"), Record(8, 1002, None, b"more")], producer_id=5,
                    producer_epoch=0, base_sequence=3)  # fmt: skip
HEADER = read_header(BATCH)


def rejection(header: BatchHeader) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        check_client_batch(header)
    return caught.value


def test_scan_finds_each_batch_of_a_buffer() -> None:
    other = build_batch([Record(9, 5, None, b"x")])
    assert scan_batches(BATCH + other) == [HEADER, read_header(other)]
    assert scan_batches(b"") == []


def test_any_changed_byte_after_the_leader_epoch_is_detected() -> None:
    for position in range(16, len(BATCH)):
        damaged = bytearray(BATCH)
        damaged[position] ^= 0x40
        with pytest.raises(KafkaError):
            scan_batches(damaged)


def test_every_truncation_is_a_corrupt_message() -> None:
    for size in range(1, len(BATCH)):
        with pytest.raises(KafkaError) as caught:
            scan_batches(BATCH[:size])
        assert caught.value.code is ErrorCode.corrupt_message


@pytest.mark.parametrize("size", [20, 34, len(BATCH)])
@pytest.mark.parametrize("magic", [0, 1])
def test_older_message_formats_are_an_invalid_record_however_short(magic: int, size: int) -> None:
    old = bytearray(BATCH)
    old[16] = magic
    with pytest.raises(KafkaError, match=f"magic {magic}") as caught:
        scan_batches(old[:size])
    assert caught.value.code is ErrorCode.invalid_record


@pytest.mark.parametrize("magic", [3, 127, 255])
def test_an_unknown_magic_is_a_corrupt_message(magic: int) -> None:
    unknown = bytearray(BATCH)
    unknown[16] = magic
    with pytest.raises(KafkaError) as caught:
        scan_batches(unknown)
    assert caught.value.code is ErrorCode.corrupt_message


@examples(200)
@given(raw=st.binary(max_size=200))
def test_any_bytes_are_batches_or_a_kafka_error(raw: bytes) -> None:
    try:
        scan_batches(raw)
    except KafkaError:
        pass


def test_a_valid_batch_of_a_client_is_accepted() -> None:
    check_client_batch(HEADER)
    check_client_batch(HEADER._replace(attributes=TRANSACTIONAL_MASK), FORBIDDEN_IN_TRANSACTIONS)
    check_client_batch(HEADER._replace(producer_id=-1, producer_epoch=-1, base_sequence=-1))


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"records_count": 0, "last_offset_delta": -1}, ErrorCode.invalid_record, "must have records"),
        ({"records_count": -5}, ErrorCode.invalid_record, "must have records"),
        ({"records_count": 3}, ErrorCode.invalid_record, "last offset delta 1, not 2"),
        ({"last_offset_delta": 9}, ErrorCode.invalid_record, "last offset delta 9, not 1"),
        ({"attributes": CONTROL_MASK}, ErrorCode.invalid_record, "control"),
        ({"attributes": TIMESTAMP_TYPE_MASK}, ErrorCode.invalid_timestamp, "LogAppendTime"),
        ({"attributes": 5}, ErrorCode.unsupported_compression_type, "id 5"),
        ({"base_sequence": -1}, ErrorCode.invalid_record, "base sequence -1"),
        ({"producer_epoch": -1}, ErrorCode.invalid_record, "epoch -1"),
        ({"attributes": TRANSACTIONAL_MASK, "producer_id": -1}, ErrorCode.invalid_record, "producer id"),
        (
            {"attributes": TRANSACTIONAL_MASK},
            ErrorCode.transactional_id_authorization_failed,
            "without a transactional id",
        ),
    ],
)
def test_forbidden_headers_of_clients_are_rejected_with_the_reason(
    changes: dict[str, int], code: ErrorCode, words: str
) -> None:
    error = rejection(HEADER._replace(**changes))
    assert error.code is code
    assert words in error.message


def test_sequence_numbers_wrap_to_zero() -> None:
    assert HEADER._replace(base_sequence=2**31 - 1, last_offset_delta=1).last_sequence == 0
    assert HEADER._replace(base_sequence=-1).last_sequence == -1


def test_a_packed_header_reads_back() -> None:
    assert HEADER_LAYOUT.pack(*HEADER) == BATCH[:HEADER_SIZE]


@examples(50)
@given(
    batch=batches(),
    before=st.binary(max_size=5),
    offset=st.integers(0, 2**60),
    epoch=st.integers(0, 2**31 - 1),
)
def test_new_offsets_and_epoch_keep_the_producers_checksum_valid(
    batch: bytes, before: bytes, offset: int, epoch: int
) -> None:
    header = read_header(batch)._replace(base_offset=offset, partition_leader_epoch=epoch)
    written = b"".join(planned_parts(before + batch + b"next", len(before), header))
    assert scan_batches(written) == [header]
    assert written[16:] == batch[16:]


@examples(50)
@given(batch=batches(), before=st.binary(max_size=5), now=st.integers(0, 2**42))
def test_log_append_time_recomputes_the_checksum_over_the_same_records(
    batch: bytes, before: bytes, now: int
) -> None:
    header = read_header(batch)
    stamped = header._replace(
        max_timestamp=now, attributes=header.attributes | TIMESTAMP_TYPE_MASK, base_offset=50
    )
    written = b"".join(rewrite_header(before + batch + b"next", len(before), stamped))
    assert written[HEADER_SIZE:] == batch[HEADER_SIZE:]
    [(found, records)] = read_batches(written)
    assert found._replace(crc=0) == stamped._replace(crc=0)
    assert {record.timestamp for record in records} == {now}


def test_records_are_passed_on_not_copied() -> None:
    source = bytearray(BATCH)
    for parts in (planned_parts(source, 0, HEADER), rewrite_header(source, 0, HEADER)):
        view = parts[-1]
        assert isinstance(view, memoryview)
        assert view.obj is source


def test_the_checksum_is_read_at_its_position() -> None:
    assert crc_matches(b"xx" + BATCH, 2, HEADER)
    assert not crc_matches(b"xx" + BATCH[:-1] + b"!", 2, HEADER)
