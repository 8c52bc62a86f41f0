"""What only some topics ask of a client's batch, and what therefore has to read its records.

Keys on compacted topics, bounds on timestamps (KIP-937), and another compression than the producer's.
"""

from typing import NamedTuple

from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_TIMESTAMP
from ottla.records.compression import UNPACKED_BYTES_MAX, compress
from ottla.records.header import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    Bytes,
    sealed_parts,
)
from ottla.records.records import unpacked_records
from ottla.records.scan import RecordPositions, scan_records

RecordError = tuple[int, str]


class RecordRules(NamedTuple):
    """A topic's demands on each record, worked out once per change of its configuration.

    None for a bound that the topic does not set; a topic of LogAppendTime sets neither.
    """

    require_keys: bool = False
    timestamp_before_max_ms: int | None = None
    timestamp_after_max_ms: int | None = None


class InvalidRecords(KafkaError):
    """A batch refused for some of its records; `record_errors` go into the response (KIP-467)."""

    def __init__(self, code: ErrorCode, message: str, record_errors: list[RecordError]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


def check_records(
    buffer: Bytes,
    position: int,
    header: BatchHeader,
    rules: RecordRules,
    now_ms: int,
    limit: int = UNPACKED_BYTES_MAX,
) -> None:
    """Raises InvalidRecords where a record breaks `rules`: INVALID_TIMESTAMP, or INVALID_RECORD for no key.

    Reads records only where it must: the upper bound on time is settled by the header unless it is broken.
    """
    after_max_ms = rules.timestamp_after_max_ms
    newest = None if after_max_ms is None else now_ms + after_max_ms
    oldest = None if rules.timestamp_before_max_ms is None else now_ms - rules.timestamp_before_max_ms
    if not rules.require_keys and oldest is None and (newest is None or header.max_timestamp <= newest):
        return
    records = _client_records(buffer, position, header, limit)
    keys = _missing_keys(records) if rules.require_keys else []
    times = _times_out_of_range(records, oldest, newest)
    if times:
        raise InvalidRecords(
            ErrorCode.invalid_timestamp,
            "One or more records have been rejected due to invalid timestamp",
            sorted({**dict(times), **dict(keys)}.items()),
        )
    if keys:
        raise InvalidRecords(
            ErrorCode.invalid_record,
            f"{len(keys)} of {header.records_count} records have no key, which a compacted topic needs",
            keys,
        )


def _client_records(buffer: Bytes, position: int, header: BatchHeader, limit: int) -> RecordPositions:
    try:
        return scan_records(unpacked_records(buffer, position, header, limit), header)
    except KafkaError as error:
        # The checksum was right, so the client made these bytes: CORRUPT_MESSAGE would make it try again.
        raise KafkaError(ErrorCode.invalid_record, error.message) from error


def _missing_keys(records: RecordPositions) -> list[RecordError]:
    return [
        (index, "Compacted topic cannot accept message without key")
        for index, length in enumerate(records.key_lengths)
        if length < 0
    ]


def _times_out_of_range(
    records: RecordPositions, oldest: int | None, newest: int | None
) -> list[RecordError]:
    errors: list[RecordError] = []
    for index, timestamp in enumerate(records.timestamps):
        if timestamp == NO_TIMESTAMP:
            continue
        if (oldest is not None and timestamp < oldest) or (newest is not None and timestamp > newest):
            earliest = "any" if oldest is None else oldest
            latest = "any" if newest is None else newest
            errors.append(
                (index, f"Timestamp {timestamp} is out of range: it must lie within [{earliest}, {latest}]")
            )
    return errors


def recompress(
    buffer: Bytes,
    position: int,
    header: BatchHeader,
    codec: int,
    level: int | None = None,
    limit: int = UNPACKED_BYTES_MAX,
) -> bytes:
    """The batch with its records in `codec`, sealed with a new checksum; else its header stays the same."""
    try:
        records = unpacked_records(buffer, position, header, limit)
        scan_records(records, header)  # as they are in our hands: what is sealed anew is true
    except KafkaError as error:
        raise KafkaError(ErrorCode.invalid_record, error.message) from error
    payload = compress(codec, records, level)
    changed = header._replace(
        batch_length=HEADER_SIZE - LOG_OVERHEAD + len(payload),
        attributes=header.attributes & ~COMPRESSION_MASK | codec,
    )
    return b"".join(sealed_parts(changed, payload))
