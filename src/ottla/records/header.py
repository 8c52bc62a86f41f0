"""The 61-byte header of a record batch (format v2), the only part of a batch that the hot path reads.

Base offset, length and leader epoch stand before the checksum, so a broker may set them without
touching what the producer's CRC32C covers (from `attributes` to the end of the batch).
"""

from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from ottla.model.errors import ErrorCode, KafkaError

Bytes = bytes | bytearray | memoryview

HEADER = Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size
LOG_OVERHEAD = 12  # base offset and length: what a batch's own length field does not count
MAGIC_POSITION = 16
CRC_POSITION = 17
CRC_START = 21  # the first byte that the checksum covers
MAGIC = 2

COMPRESSION_MASK = 0x07
TIMESTAMP_TYPE_MASK = 0x08
TRANSACTIONAL_MASK = 0x10
CONTROL_MASK = 0x20
DELETE_HORIZON_MASK = 0x40


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
        """Bytes of the whole batch, on the wire and on disk."""
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
    """The header at `position`; the caller has made sure that 61 bytes are there."""
    return BatchHeader._make(HEADER.unpack_from(buffer, position))


def crc_matches(buffer: Bytes, position: int, header: BatchHeader) -> bool:
    with memoryview(buffer) as view:
        return crc32c(view[position + CRC_START : position + header.size]) == header.crc


def scan_batches(buffer: Bytes) -> list[BatchHeader]:
    """The headers of all batches that `buffer` is made of; each whole, of magic 2, its checksum right.

    Raises KafkaError as Kafka answers it: CORRUPT_MESSAGE for bytes that are no whole batch or fail the
    checksum, UNSUPPORTED_FOR_MESSAGE_FORMAT for an older magic.
    """
    end = len(buffer)
    position = 0
    headers: list[BatchHeader] = []
    while position < end:
        if end - position < HEADER_SIZE:
            raise KafkaError(
                ErrorCode.corrupt_message,
                f"{end - position} bytes after the last whole batch are too few for a batch header ({HEADER_SIZE})",
            )
        header = read_header(buffer, position)
        if header.magic != MAGIC:
            raise KafkaError(
                ErrorCode.unsupported_for_message_format,
                f"record batches of magic {header.magic} are not accepted, only magic {MAGIC}",
            )
        if not HEADER_SIZE - LOG_OVERHEAD <= header.batch_length <= end - position - LOG_OVERHEAD:
            raise KafkaError(
                ErrorCode.corrupt_message,
                f"a batch claims {header.batch_length} bytes where {end - position - LOG_OVERHEAD} are left",
            )
        if not crc_matches(buffer, position, header):
            raise KafkaError(ErrorCode.corrupt_message, "a batch's CRC32C does not match its bytes")
        headers.append(header)
        position += header.size
    return headers
