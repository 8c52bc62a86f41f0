"""Frames are assembled however the stream is split, and a wrong length allocates no memory."""

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from ottla.protocol.errors import MalformedRequest
from ottla.protocol.framing import FrameAssembler, FrameTooLarge, read_request_header, response_prefix


def feed(assembler: FrameAssembler, data: bytes, sizes: list[int]) -> list[bytes]:
    frames: list[bytes] = []
    position = 0
    turn = 0
    while position < len(data):
        buffer = assembler.buffer()
        count = min(sizes[turn % len(sizes)], len(buffer), len(data) - position)
        buffer[:count] = data[position : position + count]
        del buffer
        frames += [bytes(frame) for frame in assembler.received(count)]
        position += count
        turn += 1
    return frames


@examples(200)
@given(
    st.lists(st.binary(max_size=300), max_size=12),
    st.lists(st.integers(1, 97), min_size=1, max_size=8),
)
def test_frames_are_complete_however_the_stream_is_split(frames: list[bytes], sizes: list[int]) -> None:
    assembler = FrameAssembler(bytearray(64), 1 << 20)
    stream = b"".join(pack(">i", len(frame)) + frame for frame in frames)
    assert feed(assembler, stream, sizes) == frames


def test_the_buffer_of_a_large_frame_grows_as_bytes_arrive() -> None:
    assembler = FrameAssembler(bytearray(1024), 10 << 20)
    payload = bytes(range(256)) * (3 << 12)
    assert feed(assembler, pack(">i", len(payload)) + payload, [100_000]) == [payload]


def test_an_announced_length_allocates_no_memory() -> None:
    assembler = FrameAssembler(bytearray(64), 100 << 20)
    assert feed(assembler, pack(">i", 100 << 20) + b"only a little", [64]) == []
    assert len(assembler.buffer()) <= 1 << 20


@pytest.mark.parametrize("length", [-1, -(2**31), (1 << 20) + 1, 2**31 - 1])
def test_a_length_outside_the_limits_is_rejected_with_the_config_of_the_limit(length: int) -> None:
    assembler = FrameAssembler(bytearray(64), 1 << 20)
    with pytest.raises(FrameTooLarge, match=r"socket\.request\.max\.bytes"):
        feed(assembler, pack(">i", length), [64])


@given(st.binary(max_size=40))
def test_any_bytes_are_a_header_or_malformed(data: bytes) -> None:
    try:
        header = read_request_header(data, {3: 9, 18: 3})
    except MalformedRequest:
        return
    assert header.body_position <= len(data)


def test_a_flexible_request_header_has_tagged_fields_that_are_skipped() -> None:
    frame = pack(">hhih", 3, 9, 7, 2) + b"me" + bytes([1, 5, 3]) + b"abc" + b"BODY"
    header = read_request_header(frame, {3: 9})
    assert (header.api_key, header.api_version, header.correlation_id, header.client_id) == (3, 9, 7, "me")
    assert frame[header.body_position :] == b"BODY"


def test_the_length_of_a_response_includes_its_header() -> None:
    assert response_prefix(5, 10, False) == pack(">ii", 14, 5)
    assert response_prefix(5, 10, True) == pack(">iib", 15, 5, 0)
