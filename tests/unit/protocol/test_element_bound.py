"""The hand-written codecs count the elements of a request like the general decoder."""

from collections.abc import Callable
from struct import pack

import pytest

from ottla.protocol.errors import MalformedRequest
from ottla.protocol.fetch_codec import decode_fetch_request
from ottla.protocol.offset_commit_codec import decode_offset_commit_request
from ottla.protocol.primitives import ELEMENTS_MAX
from ottla.protocol.produce_codec import decode_produce_request
from ottla.protocol.transaction_codec import decode_add_partitions_request
from ottla.protocol.varint import encode_uvarint

TOPIC = b"\x02t"
RIGID_TOPIC = pack(">h", 1) + b"t"


def compact(count: int) -> bytes:
    return encode_uvarint(count + 1)


def rigid(count: int) -> bytes:
    return pack(">i", count)


HALF = ELEMENTS_MAX // 2
FETCH = pack(">iiiibii", -1, 0, 1, 1, 0, 0, -1)
REQUESTS: dict[str, tuple[Callable[[memoryview, int], object], int, bytes]] = {
    "topics of Fetch v12": (decode_fetch_request, 12, FETCH + compact(ELEMENTS_MAX + 1)),
    "partitions of Fetch v12": (decode_fetch_request, 12, FETCH + compact(1) + TOPIC + compact(ELEMENTS_MAX)),
    "forgotten of Fetch v12": (
        decode_fetch_request, 12, FETCH + compact(0) + compact(1) + TOPIC + compact(ELEMENTS_MAX),
    ),
    "partitions of Fetch v11": (decode_fetch_request, 11, FETCH + rigid(1) + RIGID_TOPIC + rigid(ELEMENTS_MAX)),
    "partitions of OffsetCommit v8": (
        decode_offset_commit_request, 8, b"\x01" + rigid(0) + b"\x01\0" + compact(1) + TOPIC + compact(ELEMENTS_MAX),
    ),
    "partitions of OffsetCommit v7": (
        decode_offset_commit_request, 7,
        b"\0\0" + rigid(0) + b"\0\0" + b"\xff\xff" + rigid(1) + RIGID_TOPIC + rigid(ELEMENTS_MAX),
    ),
    "partitions of AddPartitionsToTxn v3": (
        decode_add_partitions_request, 3, b"\x01" + pack(">qh", 1, 1) + compact(1) + TOPIC + compact(ELEMENTS_MAX),
    ),
    "partitions of AddPartitionsToTxn v2": (
        decode_add_partitions_request, 2,
        b"\0\0" + pack(">qh", 1, 1) + rigid(1) + RIGID_TOPIC + rigid(ELEMENTS_MAX),
    ),
    "partitions of AddPartitionsToTxn v4": (
        decode_add_partitions_request, 4,
        compact(1) + b"\x01" + pack(">qh?", 1, 1, False) + compact(1) + TOPIC + compact(ELEMENTS_MAX - 1),
    ),
    "partitions of Produce v9": (
        decode_produce_request, 9, b"\0" + pack(">hi", 1, 1) + compact(1) + TOPIC + compact(ELEMENTS_MAX),
    ),
    "partitions of Produce v8": (
        decode_produce_request, 8, b"\xff\xff" + pack(">hi", 1, 1) + rigid(1) + RIGID_TOPIC + rigid(ELEMENTS_MAX),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_with_too_many_elements_is_rejected_before_they_are_read(name: str) -> None:
    decode, version, body = REQUESTS[name]
    with pytest.raises(MalformedRequest, match="its arrays have 250001 elements or more"):
        decode(memoryview(body), version)


def test_the_partitions_of_all_topics_count() -> None:
    indexes = bytes(4 * HALF)
    topics = compact(2) + (TOPIC + compact(HALF) + indexes + b"\0") * 2
    with pytest.raises(MalformedRequest, match="its arrays have 250002 elements or more"):
        decode_add_partitions_request(memoryview(b"\x01" + pack(">qh", 1, 1) + topics + b"\0"), 3)
