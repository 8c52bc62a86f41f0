"""Builds batches with fewer records than before. Their offsets and sequence numbers do not change.

So the broker still recognizes a producer's retry by its sequence, and a consumer finds every record at its offset.
"""

from collections.abc import Sequence

from ottla.model.ids import NO_TIMESTAMP
from ottla.records.compression import NONE, compress
from ottla.records.header import (
    COMPRESSION_MASK,
    DELETE_HORIZON_MASK,
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    Bytes,
    sealed_parts,
)
from ottla.records.varint import encode_varint, read_varint

Span = tuple[int, int]


def empty_batch(header: BatchHeader) -> list[Bytes]:
    """A batch without records, which is kept for its header."""
    attributes = header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_MASK)
    return _sealed(
        header._replace(attributes=attributes | NONE, base_timestamp=NO_TIMESTAMP, records_count=0), b""
    )


def batch_of_records(
    header: BatchHeader, data: Bytes, spans: Sequence[Span], count: int, max_timestamp: int
) -> list[Bytes]:
    """A batch of the records in `spans` of `data`, which do not change; only the header is new."""
    view = memoryview(data)
    payload: Bytes = b"".join([view[start:end] for start, end in spans])
    if header.compression != NONE:
        payload = compress(header.compression, payload)
    if not header.is_log_append_time:
        header = header._replace(max_timestamp=max_timestamp)
    return _sealed(header._replace(records_count=count), payload)


def batch_with_horizon(
    header: BatchHeader, data: Bytes, bodies: Sequence[Span], max_timestamp: int, horizon_ms: int
) -> list[Bytes]:
    """A batch with a delete horizon, the time until which its tombstones or its marker are kept (KIP-534).

    The horizon takes the place of the base timestamp, so the timestamp delta of every record changes. `bodies` are the
    records without their length field.
    """
    shift = header.base_timestamp - horizon_ms
    view = memoryview(data)
    pieces: list[Bytes] = []
    for start, end in bodies:
        delta, after_delta = read_varint(data, start + 1)
        timestamp = encode_varint(delta + shift)
        pieces += (
            encode_varint(1 + len(timestamp) + end - after_delta),
            view[start : start + 1],
            timestamp,
            view[after_delta:end],
        )
    payload: Bytes = b"".join(pieces)
    if header.compression != NONE:
        payload = compress(header.compression, payload)
    if not header.is_log_append_time:
        header = header._replace(max_timestamp=max_timestamp)
    return _sealed(
        header._replace(
            attributes=header.attributes | DELETE_HORIZON_MASK,
            base_timestamp=horizon_ms,
            records_count=len(bodies),
        ),
        payload,
    )


def _sealed(header: BatchHeader, payload: Bytes) -> list[Bytes]:
    return sealed_parts(header._replace(batch_length=HEADER_SIZE - LOG_OVERHEAD + len(payload)), payload)
