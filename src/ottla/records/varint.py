"""Zigzag varints, the encoding of lengths and deltas in records."""

Buffer = bytes | bytearray | memoryview

_MAX_VARINT_BYTES = 10  # of a 64-bit number


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """The number at `position` and the position after it.

    Raises IndexError if the buffer ends inside the number, ValueError if it has more than 64 bits.
    """
    byte = buffer[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    value = byte & 0x7F
    shift = 7
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= 7 * _MAX_VARINT_BYTES:
            raise ValueError(f"a varint has more than {_MAX_VARINT_BYTES} bytes")
    value &= 0xFFFFFFFFFFFFFFFF
    return (value >> 1) ^ -(value & 1), position


def _encode(value: int) -> bytes:
    zigzag = ((value << 1) ^ (value >> 63)) & 0xFFFFFFFFFFFFFFFF
    encoded = bytearray()
    while zigzag >= 0x80:
        encoded.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    encoded.append(zigzag)
    return bytes(encoded)


_SHORT = {value: _encode(value) for value in range(-64, 1024)}


def encode_varint(value: int) -> bytes:
    """Encodes a signed number of up to 64 bits."""
    return _SHORT.get(value) or _encode(value)
