"""Rules of single topics for each record: keys, timestamps, another codec."""

import pytest
from hypothesis import given
from tests.examples import examples
from tests.unit.records.batch_strategies import CODECS, record_lists

from ottla.model.errors import ErrorCode, KafkaError
from ottla.records.compression import (
    CODEC_NAMES,
    GZIP,
    LZ4,
    UNPACKED_BYTES_MAX,
    ZSTD,
    UnpackedTooLarge,
    compress,
)
from ottla.records.header import HEADER_SIZE, check_client_batch, read_header, scan_batches, sealed_parts
from ottla.records.record_check import RECORD_ERRORS_MAX
from ottla.records.records import Record, build_batch, read_batches
from ottla.records.validate import InvalidRecords, RecordRules, RecordSettings, examine

NOW = 1_000_000
KEYED = [Record(0, NOW, b"a", b"1"), Record(1, NOW, b"", None)]


def rejection(batch: bytes, rules: RecordRules) -> InvalidRecords:
    with pytest.raises(InvalidRecords) as caught:
        examine(batch, read_header(batch), RecordSettings(rules), NOW)
    return caught.value


@pytest.mark.parametrize("codec", range(5), ids=CODEC_NAMES.__getitem__)
def test_a_compacted_topic_rejects_records_without_key_and_lists_them(codec: int) -> None:
    records = [Record(index, NOW, None if index in (1, 3) else b"k", b"v") for index in range(5)]
    error = rejection(build_batch(records, codec=codec), RecordRules(require_keys=True))
    assert error.code is ErrorCode.invalid_record
    assert [index for index, _ in error.record_errors] == [1, 3]
    assert all("without key" in message for _, message in error.record_errors)
    assert "2 of 5 records" in error.message


def test_an_empty_key_is_a_key() -> None:
    batch = build_batch(KEYED)
    examine(batch, read_header(batch), RecordSettings(RecordRules(require_keys=True)), NOW)


def test_timestamps_out_of_bounds_are_invalid_and_are_listed() -> None:
    times = [NOW - 101, NOW - 100, NOW, NOW + 50, NOW + 51]
    batch = build_batch([Record(index, time, b"k", b"v") for index, time in enumerate(times)])
    error = rejection(batch, RecordRules(timestamp_before_max_ms=100, timestamp_after_max_ms=50))
    assert error.code is ErrorCode.invalid_timestamp
    assert [index for index, _ in error.record_errors] == [0, 4]
    assert f"within [{NOW - 100}, {NOW + 50}]" in error.record_errors[0][1]


def test_a_record_that_violates_both_rules_is_listed_once_with_invalid_timestamp() -> None:
    batch = build_batch([Record(0, NOW + 99, None, b"v"), Record(1, NOW, None, b"v")])
    error = rejection(batch, RecordRules(require_keys=True, timestamp_after_max_ms=50))
    assert error.code is ErrorCode.invalid_timestamp
    assert [index for index, _ in error.record_errors] == [0, 1]
    assert "without key" in error.record_errors[0][1]


def test_a_record_without_timestamp_is_within_every_bound() -> None:
    batch = build_batch([Record(0, -1, b"k", b"v")])
    examine(batch, read_header(batch), RecordSettings(RecordRules(False, 100, 100)), NOW)


def test_records_are_read_if_the_topic_requires_it() -> None:
    header = read_header(build_batch(KEYED, codec=GZIP))
    assert not RecordSettings().needs_records_of(header)
    assert not RecordSettings(codec=GZIP).needs_records_of(header)
    assert RecordSettings(codec=ZSTD).needs_records_of(header)
    assert RecordSettings(RecordRules(require_keys=True)).needs_records_of(header)
    assert RecordSettings(RecordRules(timestamp_before_max_ms=1)).needs_records_of(header)
    assert RecordSettings(validates_fully=True).needs_records_of(header)


def test_the_number_of_record_errors_in_a_response_is_bounded() -> None:
    error = rejection(
        build_batch([Record(index, NOW, None, b"v") for index in range(1_000)]),
        RecordRules(require_keys=True),
    )
    assert [index for index, _ in error.record_errors] == list(range(RECORD_ERRORS_MAX))
    assert "1000 of 1000 records" in error.message


@pytest.mark.parametrize("count", [2, 200])
def test_a_wrong_maximum_timestamp_is_corrected(count: int) -> None:
    batch = build_batch([Record(index, NOW + index, b"k", b"v") for index in range(count)], codec=LZ4)
    lying = b"".join(sealed_parts(read_header(batch)._replace(max_timestamp=5), batch[HEADER_SIZE:]))
    stored, header = examine(lying, read_header(lying), RecordSettings(validates_fully=True), NOW)
    assert header.max_timestamp == NOW + count - 1
    assert bytes(stored) == batch


def test_malformed_records_of_a_client_are_invalid_so_that_it_does_not_retry() -> None:
    batch = build_batch(KEYED, codec=ZSTD)
    broken = b"".join(sealed_parts(read_header(batch), bytes(len(batch) - HEADER_SIZE)))
    header = read_header(broken)
    for settings_of_topic in (RecordSettings(RecordRules(require_keys=True)), RecordSettings(codec=GZIP)):
        with pytest.raises(KafkaError) as caught:
            examine(broken, header, settings_of_topic, NOW)
        assert caught.value.code is ErrorCode.invalid_record


def test_a_batch_above_the_limit_has_its_own_error_only_if_a_limit_is_given() -> None:
    batch = build_batch([Record(0, NOW, b"k", bytes(1_000_000))], codec=ZSTD)
    header = read_header(batch)
    with pytest.raises(UnpackedTooLarge):
        examine(batch, header, RecordSettings(validates_fully=True), NOW, limit=100_000)
    bomb = b"".join(sealed_parts(header, compress(ZSTD, bytes(UNPACKED_BYTES_MAX + 1))))
    with pytest.raises(KafkaError) as caught:
        examine(bomb, read_header(bomb), RecordSettings(validates_fully=True), NOW)
    assert caught.value.code is ErrorCode.invalid_record


@examples(60)
@given(records=record_lists(), source=CODECS, target=CODECS)
def test_recompression_changes_only_the_codec(records: list[Record], source: int, target: int) -> None:
    batch = build_batch(records, codec=source, producer_id=4, producer_epoch=1, base_sequence=7)
    changed, _ = examine(batch, read_header(batch), RecordSettings(codec=target), NOW)
    [(header, found)] = read_batches(changed)
    assert found == records
    assert header.compression == target
    same = read_header(batch)._replace(batch_length=0, crc=0, attributes=0)
    assert header._replace(batch_length=0, crc=0, attributes=0) == same
    check_client_batch(scan_batches(changed)[0])
