"""Reads the single records of a batch, and builds batches of records.

For internal topics, lookups by time and tools. The produce and fetch paths do not use it: there a batch is opaque.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from ottla.records.compression import NONE, compress, decompress, unpacked_bytes_max
from ottla.records.header import (
    CONTROL_MASK,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
    Bytes,
    read_header,
    scan_batches,
    sealed_parts,
)
from ottla.records.varint import encode_varint, read_varint

Header = tuple[str, bytes | None]

# The key of a record header is text, but a client may send other bytes; they must come back unchanged.
_KEY_ERRORS = "surrogateescape"
NULL = encode_varint(-1)


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


class Batch(NamedTuple):
    header: BatchHeader
    records: list[Record]


def read_batches(buffer: Bytes, limit: int | None = None) -> list[Batch]:
    """All batches of `buffer` with their records, checked by `scan_batches`."""
    batches: list[Batch] = []
    position = 0
    for header in scan_batches(buffer):
        batches.append(Batch(header, list(iter_records(buffer, position, limit))))
        position += header.size
    return batches


def iter_records(buffer: Bytes, position: int = 0, limit: int | None = None) -> Iterator[Record]:
    """The records of the batch at `position`, decompressed to at most `limit` bytes (see `unpacked_bytes_max`).

    Raises KafkaError(CORRUPT_MESSAGE) at the first malformed record. Does not check the CRC.
    """
    header = whole_header(buffer, position)
    data = unpacked_records(buffer, position, header, limit)
    try:
        yield from _parse_records(data, header)
    except (IndexError, ValueError) as error:
        raise _corrupt_records(header, error) from error


def whole_header(buffer: Bytes, position: int = 0) -> BatchHeader:
    """The header of the batch at `position`. Raises KafkaError(CORRUPT_MESSAGE) if the batch is not complete."""
    if len(buffer) - position < HEADER_SIZE:
        raise KafkaError(
            ErrorCode.corrupt_message, f"{len(buffer) - position} bytes are too few for a batch header"
        )
    header = read_header(buffer, position)
    if header.magic != MAGIC or not HEADER_SIZE <= header.size <= len(buffer) - position:
        raise KafkaError(
            ErrorCode.corrupt_message,
            f"no whole batch: magic {header.magic}, {header.size} bytes of {len(buffer) - position} left",
        )
    return header


def unpacked_records(buffer: Bytes, position: int, header: BatchHeader, limit: int | None = None) -> bytes:
    """The bytes of a batch after its header, decompressed."""
    payload = memoryview(buffer)[position + HEADER_SIZE : position + header.size]
    return decompress(header.compression, payload, limit or unpacked_bytes_max(len(payload)))


def _corrupt_records(header: BatchHeader, error: IndexError | ValueError) -> KafkaError:
    reason = "they end inside a number" if isinstance(error, IndexError) else str(error)
    return KafkaError(
        ErrorCode.corrupt_message,
        f"the batch at offset {header.base_offset} has records that cannot be read: {reason}",
    )


def _parse_records(data: bytes, header: BatchHeader) -> Iterator[Record]:
    """Raises IndexError and ValueError for malformed records."""
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    append_time = header.max_timestamp if header.is_log_append_time else None
    position = 0
    for _ in range(header.records_count):
        length, position = read_varint(data, position)
        end = position + length
        if length < 0 or end > len(data):
            raise ValueError(f"a record claims {length} bytes where {len(data) - position} are left")
        timestamp_delta, position = read_varint(data, position + 1)  # after the attributes, which are unused
        offset_delta, position = read_varint(data, position)
        key, position = _read_bytes(data, position, end)
        value, position = _read_bytes(data, position, end)
        count, position = read_varint(data, position)
        headers: tuple[Header, ...] = ()
        if count:
            headers, position = _read_headers(data, position, end, count)
        if position != end:
            raise ValueError(f"a record's fields end {position - end} bytes after its length says")
        timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
        yield Record(base_offset + offset_delta, timestamp, key, value, headers)
    if position != len(data):
        raise ValueError(f"{len(data) - position} bytes follow the last of {header.records_count} records")


def _read_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length < 0:
        return None, position
    field_end = position + length
    if field_end > end:
        raise ValueError(f"a field claims {length} bytes where its record has {end - position} left")
    return data[position:field_end], field_end


def _read_headers(data: bytes, position: int, end: int, count: int) -> tuple[tuple[Header, ...], int]:
    if not 0 <= count <= end - position:
        raise ValueError(f"a record claims {count} headers in {end - position} bytes")
    headers: list[Header] = []
    for _ in range(count):
        key, position = _read_bytes(data, position, end)
        if key is None:
            raise ValueError("a header has no key")
        value, position = _read_bytes(data, position, end)
        headers.append((key.decode("utf-8", _KEY_ERRORS), value))
    return tuple(headers), position


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int | None = None,
    leader_epoch: int = NO_LEADER_EPOCH,
    codec: int = NONE,
    level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    log_append_time_ms: int | None = None,
) -> bytes:
    """A batch of `records`, with absolute, ascending offsets; the first is the default base offset.

    With `log_append_time_ms` it is a batch with LogAppendTime: all records have that timestamp.
    """
    records = list(records)
    if not records:
        raise ValueError("a batch must have at least one record")
    first = records[0]
    base_offset = first.offset if base_offset is None else base_offset
    payload = compress(codec, _encode_records(records, base_offset, first.timestamp), level)
    attributes = codec | transactional * TRANSACTIONAL_MASK | control * CONTROL_MASK
    max_timestamp = max(record.timestamp for record in records)
    if log_append_time_ms is not None:
        attributes |= TIMESTAMP_TYPE_MASK
        max_timestamp = log_append_time_ms
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=HEADER_SIZE - LOG_OVERHEAD + len(payload),
        partition_leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=records[-1].offset - base_offset,
        base_timestamp=first.timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        records_count=len(records),
    )
    return b"".join(sealed_parts(header, payload))


def build_keyed_batch(
    pairs: Sequence[tuple[bytes, bytes | None]],
    timestamp: int,
    *,
    codec: int = NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    transactional: bool = False,
) -> tuple[BatchHeader, bytes]:
    """A batch of keys and values with one timestamp, as coordinators write it, and its header.

    It takes half the time of `build_batch` or less, which matters for commits of thousands of offsets.
    """
    return build_packed_batch(
        b"".join(encode_keyed_records(pairs)),
        len(pairs),
        timestamp,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=transactional,
    )


def encode_keyed_records(pairs: Sequence[tuple[bytes, bytes | None]]) -> list[bytes]:
    """The encoded records of `build_keyed_batch`."""
    records: list[bytes] = []
    for index, (key, value) in enumerate(pairs):
        body = b"".join(
            (
                b"\x00\x00",  # attributes and timestamp delta
                encode_varint(index),
                encode_varint(len(key)),
                key,
                NULL if value is None else encode_varint(len(value)) + value,
                b"\x00",  # no headers
            )
        )
        records.append(encode_varint(len(body)) + body)
    return records


def build_packed_batch(
    payload: bytes,
    count: int,
    timestamp: int,
    *,
    codec: int = NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    transactional: bool = False,
) -> tuple[BatchHeader, bytes]:
    """As `build_keyed_batch`, for `count` records that are already encoded."""
    if codec != NONE:
        payload = compress(codec, payload, None)
    header = BatchHeader(
        0,
        HEADER_SIZE - LOG_OVERHEAD + len(payload),
        NO_LEADER_EPOCH,
        MAGIC,
        0,
        codec | transactional * TRANSACTIONAL_MASK,
        count - 1,
        timestamp,
        timestamp,
        producer_id,
        producer_epoch,
        NO_SEQUENCE,
        count,
    )
    return header, b"".join(sealed_parts(header, payload))


def _encode_records(records: list[Record], base_offset: int, base_timestamp: int) -> bytes:
    parts: list[bytes] = []
    previous = base_offset - 1
    for record in records:
        if record.offset <= previous:
            raise ValueError(f"the offsets of a batch must ascend, but {record.offset} follows {previous}")
        previous = record.offset
        body = b"".join(
            (
                b"\x00",
                encode_varint(record.timestamp - base_timestamp),
                encode_varint(record.offset - base_offset),
                _encode_bytes(record.key),
                _encode_bytes(record.value),
                encode_varint(len(record.headers)),
                *(
                    _encode_bytes(key.encode("utf-8", _KEY_ERRORS)) + _encode_bytes(value)
                    for key, value in record.headers
                ),
            )
        )
        parts += (encode_varint(len(body)), body)
    return b"".join(parts)


def _encode_bytes(data: bytes | None) -> bytes:
    return NULL if data is None else encode_varint(len(data)) + data
