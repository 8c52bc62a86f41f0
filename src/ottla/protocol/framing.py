"""Frames and headers without I/O: assembles requests from the bytes of a stream, and frames responses.

A frame is a 4-byte length and that many bytes. Small frames are copied from a buffer that all connections share. A
frame that has not arrived completely gets its own buffer, which grows as bytes arrive, so that a client that announces
100 MB and sends ten bytes does not occupy 100 MB.
"""

from struct import Struct
from typing import NamedTuple

from ottla.model.tuples import new_tuple
from ottla.protocol.errors import MalformedRequest
from ottla.protocol.varint import read_uvarint

Frame = bytes | bytearray

_INT32 = Struct(">i")
_HEADER = Struct(">hhih")
_RESPONSE_V0 = Struct(">ii")
_RESPONSE_V1 = Struct(">iib")
_BUFFER_BYTES_MIN = 4096
_GROWTH = 4
_ACTIVE_SENDER_BYTES = 32 * 1024
_LARGE_BUFFER_BYTES = 1 << 20


class FrameTooLarge(MalformedRequest):
    pass


class FrameAssembler:
    """`buffer()` is where the next bytes must be written; `received(n)` then returns the complete frames."""

    def __init__(self, shared: bytearray, max_frame_bytes: int) -> None:
        self._shared = memoryview(shared)
        self._max_frame_bytes = max_frame_bytes
        self._head = b""  # an incomplete length prefix
        self._frame: bytearray | None = None
        self._frame_size = 0
        self._filled = 0
        self._view: memoryview | None = None

    @property
    def unfinished_bytes(self) -> int:
        """The size of the buffer of an incomplete frame."""
        return 0 if self._frame is None else len(self._frame)

    def discard(self) -> None:
        """Frees the buffer of an incomplete frame when the connection is closed."""
        if self._view is not None:
            self._view.release()
            self._view = None
        self._frame = None

    def buffer(self) -> memoryview:
        if self._frame is None:
            return self._shared
        view = memoryview(self._frame)
        self._view = view[self._filled :]
        view.release()
        return self._view

    def received(self, count: int) -> list[Frame]:
        if self._frame is None:
            return self._cut_frames(count)
        if self._view is not None:
            self._view.release()
            self._view = None
        self._filled += count
        if self._filled == self._frame_size:
            frame, self._frame = self._frame, None
            return [frame]
        if self._filled == len(self._frame):
            self._frame.extend(bytes(_buffer_size(self._frame_size, self._filled) - self._filled))
        return []

    def _cut_frames(self, count: int) -> list[Frame]:
        if not self._head and count > 4:
            (size,) = _INT32.unpack_from(self._shared)
            if size == count - 4 and size <= self._max_frame_bytes:  # most reads are exactly one frame
                return [bytes(self._shared[4:count])]
        data: memoryview | bytes = self._shared[:count]
        if self._head:
            data = self._head + bytes(data)
            count = len(data)
            self._head = b""
        frames: list[Frame] = []
        position = 0
        while count - position >= 4:
            (size,) = _INT32.unpack_from(data, position)
            if not 0 <= size <= self._max_frame_bytes:
                raise FrameTooLarge(
                    f"a frame of {size} bytes was announced; allowed are 0 to {self._max_frame_bytes} "
                    "(socket.request.max.bytes)"
                )
            position += 4
            if count - position < size:
                self._start_frame(size, data[position:])
                return frames
            frames.append(bytes(data[position : position + size]))
            position += size
        self._head = bytes(data[position:])
        return frames

    def _start_frame(self, size: int, begin: memoryview | bytes) -> None:
        self._frame = bytearray(_buffer_size(size, len(begin)))
        self._frame[: len(begin)] = begin
        self._frame_size = size
        self._filled = len(begin)


def _buffer_size(frame_size: int, filled: int) -> int:
    """The size of a frame's buffer when `filled` bytes have arrived. It depends on the bytes that arrived, not on the
    announced size.

    After `_ACTIVE_SENDER_BYTES` the buffer is 1 MB at once, the size of most batches. Growing to it in steps allocates
    new pages each time, which doubled the cost of producing.
    """
    if filled < _ACTIVE_SENDER_BYTES:
        return min(frame_size, max(_BUFFER_BYTES_MIN, _GROWTH * filled))
    return min(frame_size, max(_LARGE_BUFFER_BYTES, 2 * filled))


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int


def read_request_header(frame: Frame, first_flexible: dict[int, int]) -> RequestHeader:
    """The header of a request: v1, or v2 with tagged fields if the API version is flexible."""
    if len(frame) < _HEADER.size:
        raise MalformedRequest(f"a request of {len(frame)} bytes is too short for a request header")
    api_key, version, correlation_id, length = _HEADER.unpack_from(frame)
    position = _HEADER.size
    client_id = None
    if length >= 0:
        end = position + length
        if end > len(frame):
            raise MalformedRequest("the client id is longer than the request")
        try:
            client_id = str(frame[position:end], "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedRequest("the client id is not UTF-8") from error
        position = end
    if version >= first_flexible.get(api_key, 1 << 15):
        if position < len(frame) and frame[position] == 0:  # no known client sends tags in the header
            position += 1
        else:
            position = _skip_tagged_fields(frame, position)
    return new_tuple(RequestHeader, (api_key, version, correlation_id, client_id, position))


def _skip_tagged_fields(frame: Frame, position: int) -> int:
    try:
        count, position = read_uvarint(frame, position)
        for _ in range(count):
            _, position = read_uvarint(frame, position)
            size, position = read_uvarint(frame, position)
            position += size
    except (IndexError, ValueError) as error:
        raise MalformedRequest("a tagged field of the request header is cut off") from error
    if position > len(frame):
        raise MalformedRequest("a tagged field of the request header is longer than the request")
    return position


def response_prefix(correlation_id: int, body_size: int, flexible_header: bool) -> bytes:
    """The length and the response header (v0, or v1 without tags) for a body of `body_size` bytes."""
    if flexible_header:
        return _RESPONSE_V1.pack(body_size + 5, correlation_id, 0)
    return _RESPONSE_V0.pack(body_size + 4, correlation_id)
