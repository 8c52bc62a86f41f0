"""Framing and correlation without a socket: bytes come in any pieces, and bytes that are no response are an error."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.rpc import ClientProtocol, Response, ResponseError, encode_request
from ottla.rpc.client_protocol import RESPONSE_BYTES_MAX

VERSIONS = [
    (key, version) for key, spec in APIS.items() for version in range(spec.min_version, spec.max_version + 1)
]


def framed(correlation_id: int, rest: bytes) -> bytes:
    return struct.pack(">ii", 4 + len(rest), correlation_id) + rest


def receive(protocol: ClientProtocol, data: bytes, sizes: list[int] | None = None) -> list[tuple[int, bytes]]:
    """The responses in `data`, which comes in pieces of these sizes, as often as needed."""
    responses = []
    turn = 0
    while data:
        room = protocol.buffer()
        count = min(len(data), len(room), sizes[turn % len(sizes)] if sizes else len(room))
        room[:count] = data[:count]
        response = protocol.received(count)
        if response is not None:
            responses.append((response.correlation_id, bytes(response.body)))
        data, turn = data[count:], turn + 1
    return responses


def test_a_request_is_framed_with_its_header() -> None:
    frame = encode_request(ApiKey.HEARTBEAT, 3, 5, "me", b"body")
    assert frame == struct.pack(">ihhih", 16, 12, 3, 5, 2) + b"me" + b"body"


def test_the_header_of_a_flexible_version_ends_with_tagged_fields() -> None:
    frame = encode_request(ApiKey.HEARTBEAT, 4, 5, None, b"body")
    assert frame == struct.pack(">ihhih", 15, 12, 4, 5, -1) + b"\0" + b"body"


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_headers_have_tagged_fields_where_kafkas_have(key: ApiKey, version: int) -> None:
    request: Any = load_request_schema(key, version)
    response: Any = load_response_schema(key, version)
    tags = b"\0" if request.__header_schema__.__flexible__ else b""
    protocol = ClientProtocol(None)
    correlation_id, frame = protocol.send_request(key, version, b"body")
    assert frame[14:] == tags + b"body"
    tags = b"\0" if response.__header_schema__.__flexible__ else b""
    assert receive(protocol, framed(correlation_id, tags + b"body")) == [(correlation_id, b"body")]


@given(sizes=st.lists(st.integers(1, 40), min_size=1), order=st.permutations([1, 2, 3]))
def test_responses_come_in_any_pieces_and_any_order(sizes: list[int], order: list[int]) -> None:
    protocol = ClientProtocol("me")
    assert [protocol.send_request(ApiKey.HEARTBEAT, 3, b"")[0] for _ in range(3)] == [1, 2, 3]
    bodies = {1: b"", 2: b"two", 3: b"three" * 20}
    data = b"".join(framed(number, bodies[number]) for number in order)
    assert receive(protocol, data, sizes) == [(number, bodies[number]) for number in order]


def test_tagged_fields_of_a_response_header_are_skipped() -> None:
    protocol = ClientProtocol("me")
    protocol.send_request(ApiKey.HEARTBEAT, 4, b"")
    assert receive(protocol, framed(1, b"\1\7\2ab" + b"body")) == [(1, b"body")]


@pytest.mark.parametrize("tags", [b"", b"\1", b"\1\7\2a"])
def test_tagged_fields_that_are_cut_off_are_an_error(tags: bytes) -> None:
    protocol = ClientProtocol("me")
    protocol.send_request(ApiKey.HEARTBEAT, 4, b"")
    with pytest.raises(ResponseError, match="tagged fields"):
        receive(protocol, framed(1, tags))


def test_a_response_that_no_request_asked_for_is_an_error() -> None:
    with pytest.raises(ResponseError, match="correlation id 1"):
        receive(ClientProtocol("me"), framed(1, b""))


def test_a_second_response_to_one_request_is_an_error() -> None:
    protocol = ClientProtocol("me")
    protocol.send_request(ApiKey.HEARTBEAT, 3, b"")
    receive(protocol, framed(1, b"body"))
    with pytest.raises(ResponseError, match="correlation id 1"):
        receive(protocol, framed(1, b"body"))


@pytest.mark.parametrize("size", [-1, 0, 3, RESPONSE_BYTES_MAX + 1, int.from_bytes(b"HTTP", "big")])
def test_a_size_that_no_response_has_is_an_error(size: int) -> None:
    protocol = ClientProtocol("me")
    protocol.send_request(ApiKey.HEARTBEAT, 3, b"")
    with pytest.raises(ResponseError, match=f"cannot have {size} bytes"):
        receive(protocol, struct.pack(">ii", size, 1))


def test_the_largest_response_can_be_set() -> None:
    protocol = ClientProtocol("me", response_bytes_max=8)
    protocol.send_request(ApiKey.HEARTBEAT, 3, b"")
    protocol.send_request(ApiKey.HEARTBEAT, 3, b"")
    assert receive(protocol, framed(1, b"four")) == [(1, b"four")]
    with pytest.raises(ResponseError, match="cannot have 9 bytes"):
        receive(protocol, framed(2, b"five5"))


@pytest.mark.parametrize(
    ("received", "said"),
    [
        (b"", "the connection was closed$"),
        (framed(1, b"body")[:3], "in the middle of a response"),
        (framed(1, b"body")[:8], "in the middle of a response"),
        (framed(1, b"body")[:-1], "in the middle of a response"),
    ],
)
def test_a_connection_that_closes_is_an_error(received: bytes, said: str) -> None:
    protocol = ClientProtocol("me")
    protocol.send_request(ApiKey.HEARTBEAT, 3, b"")
    receive(protocol, received)
    with pytest.raises(ConnectionError, match=said):
        protocol.received(0)


def test_a_body_is_received_into_the_memory_of_the_caller() -> None:
    memory = bytearray(100)
    protocol = ClientProtocol("me", allocate=lambda size: memory)
    protocol.send_request(ApiKey.FETCH, 4, b"")
    protocol.buffer()[:] = framed(1, b"body")[:8]
    assert protocol.received(8) is None
    assert len(protocol.buffer()) == 4
    protocol.buffer()[:] = b"body"
    response = protocol.received(4)
    assert isinstance(response, Response)
    assert response.body.obj is memory
    assert memory[:5] == b"body\0"


def test_correlation_ids_begin_again_after_the_largest() -> None:
    protocol = ClientProtocol("me")
    protocol._last_correlation_id = 0x7FFFFFFE
    assert [protocol.send_request(ApiKey.HEARTBEAT, 3, b"")[0] for _ in range(2)] == [0x7FFFFFFF, 1]
