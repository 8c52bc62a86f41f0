"""The pieces that the hand-written codecs share: strings, topic ids, tagged fields, leader hints (KIP-951).

Readers take a position and return the next. They may run past the end of the buffer: slices clamp silently, but
positions only grow, so that a codec finds out by one comparison at its end. Malformed bytes raise any of MALFORMED.
"""

import uuid
from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from ottla.protocol.varint import encode_uvarint, read_uvarint

# UnicodeDecodeError is a ValueError.
MALFORMED = (IndexError, ValueError, StructError)

INT16 = Struct(">h")
INT32 = Struct(">i")
LEADER = Struct(">ii")
NO_TAGS = b"\x00"
NO_THROTTLE_TIME = bytes(4)
# Kafka keeps it for compact strings too: older versions and records have no room for more.
STRING_BYTES_MAX = 0x7FFF
# In all arrays of a request together. An element costs some microseconds and some hundred bytes from here to the
# response. No client comes near this bound: the offsets of 100,000 partitions, each of a topic of its own, are 200,000.
ELEMENTS_MAX = 250_000


class LeaderIdAndEpoch(NamedTuple):
    leader_id: int
    leader_epoch: int


class NodeEndpoint(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None = None


# Making a UUID takes longer than decoding the rest of a small request, and few topics are busy at a time.
@lru_cache(maxsize=4096)
def topic_id_of(raw: bytes) -> uuid.UUID:
    """Raises ValueError where `raw` has not 16 bytes."""
    return uuid.UUID(bytes=raw)


def read_string(buffer: memoryview, position: int) -> tuple[str | None, int]:
    """A string with an int16 length, -1 for null."""
    (length,) = INT16.unpack_from(buffer, position)
    position += 2
    if length < 0:
        if length != -1:
            raise ValueError(f"a string has the length {length}")
        return None, position
    end = position + length
    return str(buffer[position:end], "utf-8"), end


def read_compact_string(buffer: memoryview, position: int) -> tuple[str | None, int]:
    length = buffer[position]
    position += 1
    if length >= 0x80:
        length, position = read_uvarint(buffer, position - 1)
        if length - 1 > STRING_BYTES_MAX:
            raise ValueError(f"a string has more than {STRING_BYTES_MAX} bytes")
    if length == 0:
        return None, position
    end = position + length - 1
    return str(buffer[position:end], "utf-8"), end


def required(text: str | None) -> str:
    if text is None:
        raise ValueError("a string that must be there is null")
    return text


def read_count(buffer: memoryview, position: int) -> tuple[int, int]:
    """The length of an array that must not be null."""
    (count,) = INT32.unpack_from(buffer, position)
    if count < 0:
        raise ValueError(f"an array has the length {count}")
    return count, position + 4


def read_compact_count(buffer: memoryview, position: int) -> tuple[int, int]:
    count = buffer[position]
    position += 1
    if count >= 0x80:
        count, position = read_uvarint(buffer, position - 1)
    if count == 0:
        raise ValueError("an array that must be there is null")
    return count - 1, position


def count_elements(before: int, more: int) -> int:
    """The elements of a request so far, before `more` of them are read. Raises ValueError if they are too many."""
    elements = before + more
    if elements > ELEMENTS_MAX:
        raise ValueError(
            f"its arrays have {elements} elements or more where {ELEMENTS_MAX} are allowed: ask for less in one request"
        )
    return elements


def read_tags(buffer: memoryview, position: int) -> tuple[dict[int, memoryview], int]:
    """Tagged fields by tag. Those that a reader does not know it leaves alone (KIP-482)."""
    count, position = read_uvarint(buffer, position)
    tags: dict[int, memoryview] = {}
    for _ in range(count):
        tag, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        end = position + size
        if end > len(buffer) or tag in tags:
            raise ValueError(f"tagged field {tag} is cut off or there twice")
        tags[tag] = buffer[position:end]
        position = end
    return tags, position


def skip_tags(buffer: memoryview, position: int) -> int:
    if buffer[position] == 0:
        return position + 1
    return read_tags(buffer, position)[1]


def encode_string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    raw = text.encode()
    return INT16.pack(len(raw)) + raw


def encode_compact_string(text: str | None) -> bytes:
    if text is None:
        return b"\x00"
    raw = text.encode()
    return encode_uvarint(len(raw) + 1) + raw


def encode_tags(tags: dict[int, bytes]) -> bytes:
    """`tags` in ascending order."""
    parts = [encode_uvarint(len(tags))]
    for tag, value in tags.items():
        parts += (encode_uvarint(tag), encode_uvarint(len(value)), value)
    return b"".join(parts)


def encode_leader(leader: LeaderIdAndEpoch) -> bytes:
    return LEADER.pack(*leader) + NO_TAGS


def read_leader(buffer: memoryview) -> LeaderIdAndEpoch:
    finish(buffer, skip_tags(buffer, LEADER.size))
    return LeaderIdAndEpoch(*LEADER.unpack_from(buffer))


def encode_node_endpoints(endpoints: Sequence[NodeEndpoint]) -> bytes:
    parts = [encode_uvarint(len(endpoints) + 1)]
    for node_id, host, port, rack in endpoints:
        parts += (
            INT32.pack(node_id),
            encode_compact_string(host),
            INT32.pack(port),
            encode_compact_string(rack),
            NO_TAGS,
        )
    return b"".join(parts)


def read_node_endpoints(buffer: memoryview) -> list[NodeEndpoint]:
    count, position = read_compact_count(buffer, 0)
    endpoints: list[NodeEndpoint] = []
    for _ in range(count):
        (node_id,) = INT32.unpack_from(buffer, position)
        host, position = read_compact_string(buffer, position + 4)
        (port,) = INT32.unpack_from(buffer, position)
        rack, position = read_compact_string(buffer, position + 4)
        position = skip_tags(buffer, position)
        endpoints.append(NodeEndpoint(node_id, required(host), port, rack))
    finish(buffer, position)
    return endpoints


def end_request(body: memoryview, position: int) -> None:
    """No byte was read that is not there. Bytes after the end are let be, as Kafka does with what clients send."""
    if position > len(body):
        raise ValueError(f"the message ends at byte {position} of {len(body)}")


def finish(buffer: memoryview, position: int) -> None:
    """Every byte was read, and none that is not there."""
    if position != len(buffer):
        raise ValueError(f"the message ends at byte {position} of {len(buffer)}")
