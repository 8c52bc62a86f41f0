"""Unsigned varints, the encoding of lengths, counts and tags in flexible message versions (KIP-482)."""

Buffer = bytes | bytearray | memoryview

_MAX_UVARINT_BYTES = 5  # enough for 32 bits, the largest in a message


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """The number at `position` and the position after it.

    Raises IndexError if the buffer ends inside the number, ValueError if it has more than 32 bits.
    """
    byte = buffer[position]
    position += 1
    if byte < 0x80:
        return byte, position
    value = byte & 0x7F
    for shift in range(7, 7 * _MAX_UVARINT_BYTES, 7):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, position
    raise ValueError("an unsigned varint has more than 32 bits")


def _encode(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


_SHORT = tuple(_encode(value) for value in range(1024))


def encode_uvarint(value: int) -> bytes:
    """`value` must not be negative."""
    return _SHORT[value] if value < 1024 else _encode(value)
