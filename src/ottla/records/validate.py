"""Validates the records of a client's batch, and changes the batch as it is stored.

All records are read if the topic requires it: keys on compacted topics, limits for timestamps (KIP-937), another codec
than the producer's, or `ottla.record.validation=full`.
"""

from dataclasses import dataclass
from typing import NamedTuple

from ottla.model.errors import ErrorCode, KafkaError
from ottla.records.compression import UnpackedTooLarge, compress, unpack, unpacked_bytes_max
from ottla.records.header import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    Bytes,
    read_header,
    sealed_parts,
)
from ottla.records.record_check import CheckedRecords, TimeBounds, check_records

RecordError = tuple[int, str]


class RecordRules(NamedTuple):
    """The topic's rules for each record, computed once per change of its configs.

    A limit is None if the topic does not set it. With LogAppendTime both are None.
    """

    require_keys: bool = False
    timestamp_before_max_ms: int | None = None
    timestamp_after_max_ms: int | None = None


NO_RULES = RecordRules()


@dataclass(frozen=True, slots=True)
class RecordSettings:
    """The topic's settings that concern single records."""

    rules: RecordRules = NO_RULES
    codec: int | None = None  # None keeps the producer's codec
    codec_level: int | None = None
    validates_fully: bool = False  # ottla.record.validation=full

    def needs_records_of(self, header: BatchHeader) -> bool:
        """Whether all records of the batch must be read before it can be appended."""
        return self.validates_fully or self.rules != NO_RULES or self.recompresses(header)

    def recompresses(self, header: BatchHeader) -> bool:
        return self.codec is not None and self.codec != header.compression


class InvalidRecords(KafkaError):
    """A batch that is rejected because of some of its records; `record_errors` are for the response (KIP-467)."""

    def __init__(self, code: ErrorCode, message: str, record_errors: list[RecordError]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


class ExaminedBatch(NamedTuple):
    """A batch whose records have been checked, in the form in which it is appended."""

    records: Bytes
    header: BatchHeader


def examine(
    batch: Bytes, header: BatchHeader, settings: RecordSettings, now_ms: int, limit: int | None = None
) -> ExaminedBatch:
    """Checks the records of `batch`, and recompresses them if the topic has another codec.

    Raises KafkaError(INVALID_RECORD) for malformed records; InvalidRecords for records that violate a rule of the topic
    (INVALID_TIMESTAMP, or INVALID_RECORD for a missing key); UnpackedTooLarge only if `limit` is set: otherwise such a
    batch gets INVALID_RECORD.
    """
    payload = memoryview(batch)[HEADER_SIZE : header.size]
    try:
        records = unpack(header.compression, payload, limit or unpacked_bytes_max(len(payload)))
    except KafkaError as error:
        if limit is not None and isinstance(error, UnpackedTooLarge):
            raise
        # The checksum was right, so the client sent these bytes: CORRUPT_MESSAGE would make it retry.
        raise KafkaError(ErrorCode.invalid_record, error.message) from error
    rules = settings.rules
    bounds = TimeBounds(
        None if rules.timestamp_before_max_ms is None else now_ms - rules.timestamp_before_max_ms,
        None if rules.timestamp_after_max_ms is None else now_ms + rules.timestamp_after_max_ms,
    )
    found = check_records(records, header, bounds)
    _check_rules(found, rules)
    if settings.recompresses(header):
        assert settings.codec is not None
        return _sealed(found, settings.codec, compress(settings.codec, records, settings.codec_level))
    if found.max_timestamp != header.max_timestamp:
        # As Kafka: the records' timestamps count. Otherwise lookups by time could miss them.
        return _sealed(found, header.compression, payload)
    return ExaminedBatch(batch, header)


def _check_rules(found: CheckedRecords, rules: RecordRules) -> None:
    keys = dict.fromkeys(found.without_key if rules.require_keys else (), _NO_KEY)
    if found.out_of_bounds:
        times = {
            index: _out_of_bounds_message(timestamp, found.bounds) for index, timestamp in found.out_of_bounds
        }
        raise InvalidRecords(
            ErrorCode.invalid_timestamp,
            "One or more records have been rejected due to invalid timestamp",
            sorted((times | keys).items()),
        )
    if keys:
        raise InvalidRecords(
            ErrorCode.invalid_record,
            f"{found.missing_keys} of {found.header.records_count} records have no key, which a compacted topic "
            "requires",
            list(keys.items()),
        )


_NO_KEY = "Compacted topic cannot accept message without key"


def _out_of_bounds_message(timestamp: int, bounds: TimeBounds) -> str:
    earliest = "any" if bounds.oldest is None else bounds.oldest
    latest = "any" if bounds.newest is None else bounds.newest
    return f"Timestamp {timestamp} is out of range: it must lie within [{earliest}, {latest}]"


def _sealed(found: CheckedRecords, codec: int, payload: Bytes) -> ExaminedBatch:
    """The batch with its records in `codec`, their actual maximum timestamp, and a new checksum."""
    header = found.header
    changed = header._replace(
        batch_length=HEADER_SIZE - LOG_OVERHEAD + len(payload),
        attributes=header.attributes & ~COMPRESSION_MASK | codec,
        max_timestamp=found.max_timestamp,
    )
    batch = b"".join(sealed_parts(changed, payload))
    return ExaminedBatch(batch, read_header(batch))
