"""Kafka's compression codecs in Kafka's framing, with a limit on the decompressed size of a batch.

Framing: gzip streams; snappy in blocks of the xerial library (raw snappy, which librdkafka and others write, can be
read too); LZ4 frames with independent blocks of 64 KB, as the Java client requires; zstd frames.
"""

import zlib
from collections.abc import Callable
from struct import Struct
from typing import Literal

from ottla.model.errors import ErrorCode, KafkaError

Bytes = bytes | bytearray | memoryview

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
# `compression.type` of a topic; None keeps what the producer chose.
CODEC_OF_TYPE: dict[str, int | None] = {
    "producer": None,
    "uncompressed": NONE,
    "none": NONE,
    "gzip": GZIP,
    "snappy": SNAPPY,
    "lz4": LZ4,
    "zstd": ZSTD,
}

# The limit of the decompressed size of a batch. Kafka has none, because it reads records from a stream. A producer
# fills a batch up to max.message.bytes, one megabyte by default, and real records rarely shrink to a hundredth. A
# batch of many megabytes may decompress to `_UNPACKED_RATIO_MAX` times its size.
UNPACKED_BYTES_MAX = 128 * 1024 * 1024
_UNPACKED_RATIO_MAX = 16

_GZIP_WINDOW_BITS = 31  # makes zlib use gzip's header and trailer
_GZIP_LEVEL = -1
_GZIP_PIECE = 1 << 20
_LZ4_LEVEL = 9  # Kafka's default means the fast compressor; other levels use the high compressor
_ZSTD_LEVEL = 3

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_SIZE = 32 * 1024
_XERIAL_LENGTH = Struct(">i")
# Three bytes of snappy decompress to at most 64. A larger claimed size only wants to make the broker allocate memory.
_SNAPPY_RATIO_MAX = 22

_MAGIC_OF_CODEC = (b"", b"\x1f\x8b", b"", b"\x04\x22\x4d\x18", b"\x28\xb5\x2f\xfd")  # raw snappy has none
_SKIPPABLE_MAGIC = b"\x2a\x4d\x18"  # after a byte 0x50 to 0x5F: a zstd frame without content

# Magic, version 1 with independent blocks, blocks of at most 64 KB, and the descriptor's checksum (xxHash32).
_LZ4_HEADER = bytes.fromhex("04224d18604082")
_LZ4_BLOCK_SIZE = 64 * 1024
_LZ4_LENGTH = Struct("<I")
_LZ4_STORED = 0x80000000
_LZ4_END = b"\x00\x00\x00\x00"

# Rust's message if the output buffer is too small: the only error for which a larger buffer helps.
_TOO_SMALL = "failed to write whole buffer"
_GROWTH = 4
_FIRST_BUFFER_MIN = 16 * 1024


def compress(codec: int, data: Bytes, level: int | None = None) -> bytes:
    """Compresses `data`; `level` is Kafka's `compression.<codec>.level`."""
    if codec == NONE:
        return bytes(data)
    if codec == GZIP:
        return zlib.compress(data, _GZIP_LEVEL if level is None else level, _GZIP_WINDOW_BITS)
    if codec == SNAPPY:
        return _compress_snappy(data)
    if codec == LZ4:
        return _compress_lz4(data, _LZ4_LEVEL if level is None else level)
    if codec == ZSTD:
        import cramjam

        return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL if level is None else level))
    raise _unknown(codec)


class UnpackedTooLarge(KafkaError):
    """A batch decompresses to more than the limit."""


def unpacked_bytes_max(packed_size: int) -> int:
    """The limit of the decompressed size of a batch of `packed_size` bytes."""
    return max(UNPACKED_BYTES_MAX, _UNPACKED_RATIO_MAX * packed_size)


def decompress(codec: int, data: Bytes, limit: int = UNPACKED_BYTES_MAX) -> bytes:
    """As `unpack`, but always returns bytes."""
    return bytes(unpack(codec, data, limit))


def unpack(codec: int, data: Bytes, limit: int = UNPACKED_BYTES_MAX) -> Bytes:
    """Decompresses `data`; returns it unchanged if `codec` is NONE.

    Raises KafkaError(CORRUPT_MESSAGE) if `data` is not valid, UnpackedTooLarge if it decompresses to more than `limit`.
    """
    if codec == NONE:
        return data
    if codec == GZIP:
        return _decompress_gzip(data, limit)
    if codec == SNAPPY:
        return _decompress_snappy(data, limit)
    if codec in (LZ4, ZSTD):
        import cramjam

        module = cramjam.lz4 if codec == LZ4 else cramjam.zstd
        return _decompress_growing(codec, module.decompress_into, data, limit)
    raise _unknown(codec)


def _compress_snappy(data: Bytes) -> bytes:
    import cramjam

    view = memoryview(data)
    parts: list[bytes] = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_SIZE]))
        parts += (_XERIAL_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _compress_lz4(data: Bytes, level: int) -> bytes:
    import cramjam

    mode: Literal["default", "high_compression"] = "default" if level == _LZ4_LEVEL else "high_compression"
    view = memoryview(data)
    parts: list[Bytes] = [_LZ4_HEADER]
    for start in range(0, len(view), _LZ4_BLOCK_SIZE):
        block = view[start : start + _LZ4_BLOCK_SIZE]
        packed = bytes(cramjam.lz4.compress_block(block, mode=mode, compression=level, store_size=False))
        if len(packed) < len(block):
            parts += (_LZ4_LENGTH.pack(len(packed)), packed)
        else:
            parts += (_LZ4_LENGTH.pack(len(block) | _LZ4_STORED), block)
    parts.append(_LZ4_END)
    return b"".join(parts)


def _decompress_gzip(data: Bytes, limit: int) -> bytearray:
    stream = zlib.decompressobj(_GZIP_WINDOW_BITS)
    # In pieces: otherwise zlib would use twice the memory of the limit before it notices a decompression bomb.
    output = bytearray()
    left = limit + 1
    rest: Bytes = data
    try:
        while left > 0 and not stream.eof:
            piece = stream.decompress(rest, min(left, _GZIP_PIECE))
            if not piece:
                break
            output += piece
            left -= len(piece)
            rest = stream.unconsumed_tail
    except zlib.error as error:
        raise _corrupt(GZIP, str(error)) from error
    if left <= 0:
        raise _too_large(GZIP, limit)
    if not stream.eof:
        raise _corrupt(GZIP, "the stream ends early")
    if stream.unused_data:
        raise _corrupt(GZIP, f"{len(stream.unused_data)} bytes follow the stream")
    return output


def _decompress_snappy(data: Bytes, limit: int) -> Bytes:
    view = memoryview(data)
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, limit, limit)
    output = bytearray()
    left = limit
    position = len(_XERIAL_HEADER)
    while position < len(view):
        if len(view) - position < _XERIAL_LENGTH.size:
            raise _corrupt(SNAPPY, "a block's length is cut off")
        (length,) = _XERIAL_LENGTH.unpack_from(view, position)
        position += _XERIAL_LENGTH.size
        if not 0 <= length <= len(view) - position:
            raise _corrupt(SNAPPY, f"a block claims {length} bytes where {len(view) - position} are left")
        block = _decompress_snappy_block(view[position : position + length], left, limit)
        output += block
        left -= len(block)
        position += length
    return output


def _decompress_snappy_block(block: memoryview, left: int, limit: int) -> bytes:
    import cramjam

    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > left:
            raise _too_large(SNAPPY, limit)
        if size > _SNAPPY_RATIO_MAX * len(block):
            raise _corrupt(SNAPPY, f"{len(block)} bytes claim to unpack to {size}")
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise _corrupt(SNAPPY, str(error)) from error


def _decompress_growing(
    codec: int, decompress_into: Callable[[Bytes, bytearray], int], data: Bytes, limit: int
) -> bytearray:
    """Decompresses into a buffer that starts small, because the decompressed size is not known in advance."""
    import cramjam

    capacity = min(limit, max(_FIRST_BUFFER_MIN, _GROWTH * len(data)))
    while True:
        output = bytearray(capacity)  # the kernel allocates memory only when it is written
        try:
            size = decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if _TOO_SMALL not in str(error):
                raise _corrupt(codec, str(error)) from error
            if capacity == limit:
                raise _too_large(codec, limit) from error
            capacity = min(limit, _GROWTH * capacity)
            del output  # so that two buffers do not exist at the same time
        else:
            del output[size:]
            return output


def _corrupt(codec: int, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.corrupt_message, f"a batch's records are not valid {CODEC_NAMES[codec]}: {reason}"
    )


def _too_large(codec: int, limit: int) -> UnpackedTooLarge:
    return UnpackedTooLarge(
        ErrorCode.corrupt_message,
        f"a batch's {CODEC_NAMES[codec]} records unpack to more than the limit of {limit} bytes",
    )


def starts_like(codec: int, data: Bytes, position: int) -> bool:
    """Whether the bytes at `position` start with the magic of `codec`: a check without decompressing them."""
    magic = _MAGIC_OF_CODEC[codec]
    if data[position : position + len(magic)] == magic:
        return True
    return (
        codec == ZSTD and data[position + 1 : position + 4] == _SKIPPABLE_MAGIC and data[position] >> 4 == 5
    )


def _unknown(codec: int) -> KafkaError:
    return KafkaError(ErrorCode.unsupported_compression_type, f"no compression type has the id {codec}")
