"""The 61-byte header of a record batch (format v2), the only part of a batch that the hot path reads.

Base offset, length and leader epoch come before the checksum, so a broker can set them without changing bytes that the
producer's CRC32C covers (from `attributes` to the end of the batch).
"""

import sys
from struct import Struct
from typing import NamedTuple

from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.tuples import new_tuple
from ottla.records.checksum import crc32c

Bytes = bytes | bytearray | memoryview

HEADER = Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size
PREFIX = Struct(">qii")  # base offset, length, leader epoch: the fields that an append sets
CRC = Struct(">I")
LOG_OVERHEAD = 12  # base offset and length, which the length field does not count
MAGIC_POSITION = 16
CRC_POSITION = 17
CRC_START = 21  # the first byte that the checksum covers
MAGIC = 2

COMPRESSION_MASK = 0x07
TIMESTAMP_TYPE_MASK = 0x08
TRANSACTIONAL_MASK = 0x10
CONTROL_MASK = 0x20
DELETE_HORIZON_MASK = 0x40
FORBIDDEN_FOR_CLIENTS = CONTROL_MASK | TIMESTAMP_TYPE_MASK | TRANSACTIONAL_MASK
FORBIDDEN_IN_TRANSACTIONS = CONTROL_MASK | TIMESTAMP_TYPE_MASK
MAX_COMPRESSION = 4


class BatchHeader(NamedTuple):
    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size(self) -> int:
        """The size of the whole batch in bytes."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        return self.attributes & COMPRESSION_MASK

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & TIMESTAMP_TYPE_MASK != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_MASK != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_MASK != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON_MASK != 0

    @property
    def last_sequence(self) -> int:
        """Sequence numbers wrap from 2^31-1 to 0."""
        if self.base_sequence < 0:
            return self.base_sequence
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


def read_header(buffer: Bytes, position: int = 0) -> BatchHeader:
    """The header at `position`. The caller must check that 61 bytes are available."""
    return BatchHeader._make(HEADER.unpack_from(buffer, position))


def crc_matches(buffer: Bytes, position: int, header: BatchHeader) -> bool:
    view = memoryview(buffer)
    return crc32c(view[position + CRC_START : position + header.size]) == header.crc


def scan_batches(buffer: Bytes, batches_max: int = sys.maxsize) -> list[BatchHeader]:
    """The headers of the batches in `buffer`, at most `batches_max`. Checks completeness, magic and checksum.

    Raises the same errors as Kafka: CORRUPT_MESSAGE for an incomplete batch or a wrong checksum, INVALID_RECORD for the
    older formats (magic 0 and 1).
    """
    view = memoryview(buffer)
    end = len(view)
    position = 0
    headers: list[BatchHeader] = []
    while position < end:
        if end - position < HEADER_SIZE:
            raise _no_header(view[position:])
        fields = HEADER.unpack_from(view, position)
        if fields[3] != MAGIC:
            raise _wrong_magic(fields[3])
        batch_end = position + LOG_OVERHEAD + fields[1]
        if not position + HEADER_SIZE <= batch_end <= end:
            raise KafkaError(
                ErrorCode.corrupt_message,
                f"a batch claims {fields[1]} bytes where {end - position - LOG_OVERHEAD} are left",
            )
        if crc32c(view[position + CRC_START : batch_end]) != fields[4]:
            raise KafkaError(ErrorCode.corrupt_message, "a batch's CRC32C does not match its bytes")
        headers.append(new_tuple(BatchHeader, fields))
        if len(headers) == batches_max:
            break
        position = batch_end
    return headers


def scan_complete_batches(buffer: Bytes) -> list[BatchHeader]:
    """As `scan_batches`, for the records of a fetch response, which may end inside a batch. That one is left out."""
    view = memoryview(buffer)
    position, end = 0, len(view)
    while end - position >= PREFIX.size:
        batch_end = position + LOG_OVERHEAD + PREFIX.unpack_from(view, position)[1]
        if not position < batch_end <= end:
            break
        position = batch_end
    return scan_batches(view[:position])


def _no_header(tail: memoryview) -> KafkaError:
    # A message of magic 0 or 1 can be shorter than a batch header, but has its magic at the same position.
    if len(tail) > MAGIC_POSITION and tail[MAGIC_POSITION] < MAGIC:
        return _wrong_magic(tail[MAGIC_POSITION])
    return KafkaError(
        ErrorCode.corrupt_message,
        f"{len(tail)} bytes after the last whole batch are too few for a batch header ({HEADER_SIZE})",
    )


def _wrong_magic(magic: int) -> KafkaError:
    known = 0 <= magic < MAGIC
    return KafkaError(
        ErrorCode.invalid_record if known else ErrorCode.corrupt_message,
        f"record batches of magic {magic} are not accepted, only magic {MAGIC}",
    )


def check_client_batch(header: BatchHeader, forbidden: int = FORBIDDEN_FOR_CLIENTS) -> None:
    """Raises KafkaError if Kafka would reject a client's batch because of its header.

    `forbidden` is a mask of attributes. If the request has no transactional id, it includes the transactional bit.
    """
    # Unpacked at once: this runs for every batch.
    _, _, _, _, _, attributes, last_delta, _, _, producer_id, producer_epoch, base_sequence, count = header
    if (
        last_delta + 1 == count > 0
        and not attributes & forbidden
        and attributes & COMPRESSION_MASK <= MAX_COMPRESSION
        and (
            (producer_epoch >= 0 and base_sequence >= 0)
            if producer_id >= 0
            else not attributes & TRANSACTIONAL_MASK
        )
    ):
        return
    raise _client_batch_error(header)


def _client_batch_error(header: BatchHeader) -> KafkaError:
    if header.records_count <= 0:
        return KafkaError(
            ErrorCode.invalid_record,
            f"a batch must have records, but its record count is {header.records_count}",
        )
    if header.last_offset_delta + 1 != header.records_count:
        return KafkaError(
            ErrorCode.invalid_record,
            f"a batch of {header.records_count} records has the last offset delta "
            f"{header.last_offset_delta}, not {header.records_count - 1}",
        )
    if header.is_control:
        return KafkaError(ErrorCode.invalid_record, "clients are not allowed to write control records")
    if header.is_log_append_time:
        return KafkaError(
            ErrorCode.invalid_timestamp, "a producer must not set the timestamp type to LogAppendTime"
        )
    if header.compression > MAX_COMPRESSION:
        return KafkaError(
            ErrorCode.unsupported_compression_type, f"no compression type has the id {header.compression}"
        )
    if header.producer_id < 0:
        return KafkaError(ErrorCode.invalid_record, "a transactional batch must carry a producer id")
    if header.producer_epoch >= 0 and header.base_sequence >= 0:
        return KafkaError(
            ErrorCode.transactional_id_authorization_failed,
            "a transactional batch was sent without a transactional id",
        )
    return KafkaError(
        ErrorCode.invalid_record,
        f"a batch of producer id {header.producer_id} has epoch {header.producer_epoch} and "
        f"base sequence {header.base_sequence}: neither may be negative",
    )


def planned_parts(buffer: Bytes, position: int, header: BatchHeader) -> list[Bytes]:
    """The bytes to write for the batch at `position`, with the final base offset and leader epoch of `header`.

    Both come before the checksum, so the rest are the producer's bytes, without a copy.
    """
    return [
        PREFIX.pack(header.base_offset, header.batch_length, header.partition_leader_epoch),
        memoryview(buffer)[position + MAGIC_POSITION : position + header.size],
    ]


def rewrite_header(buffer: Bytes, position: int, header: BatchHeader) -> list[Bytes]:
    """The bytes to write if fields that the checksum covers have changed (LogAppendTime: attributes, max timestamp).

    The checksum is computed over the new header and the records, which are not copied.
    """
    return sealed_parts(header, memoryview(buffer)[position + HEADER_SIZE : position + header.size])


def sealed_parts(header: BatchHeader, payload: Bytes) -> list[Bytes]:
    """`header` with the checksum of header and `payload`, and `payload`."""
    head = bytearray(HEADER.pack(*header))
    CRC.pack_into(head, CRC_POSITION, crc32c(payload, crc32c(memoryview(head)[CRC_START:])))
    return [head, payload]
