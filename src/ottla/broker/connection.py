"""One client connection: frames in, responses out, in the order of the requests.

As in Kafka, a connection serves one request at a time: the next one starts when the response to the previous one has
been passed to the stream. This gives the order that idempotent producers rely on, and it is the back-pressure: while a
slow client has not taken its response, or a delayed request has others behind it, nothing more is read. So a client
occupies the memory of one request, one response and one read of the socket, never more.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from ottla.broker.promise import Promise
from ottla.broker.request_memory import RequestMemory
from ottla.env.network import Part, Stream
from ottla.model.errors import KafkaError
from ottla.protocol.errors import MalformedRequest
from ottla.protocol.framing import Frame, FrameAssembler

logger = logging.getLogger("ottla.network")

# Responses to pipelined requests are sent together: a system call costs as much as a small request.
_RESPONSES_PER_SEND = 64

# None if there is no response (acks=0).
ResponseParts = Sequence[Part] | None


class Dispatch(Protocol):
    def __call__(
        self, connection: "ClientConnection", frame: Frame
    ) -> "ResponseParts | Promise[ResponseParts]":
        """Raises MalformedRequest if the connection must be closed."""
        ...


class ClientConnection:
    """A Receiver (see ottla.env.network) for the broker's side of a stream."""

    def __init__(
        self,
        stream: Stream,
        assembler: FrameAssembler,
        dispatch: Dispatch,
        now_ms: Callable[[], int],
        on_closed: Callable[["ClientConnection"], None],
        memory: RequestMemory | None = None,
        *,
        listener_name: str = "",
    ) -> None:
        self.stream = stream
        self.listener_name = listener_name
        self.on_disconnect: Callable[[], None] | None = None  # set by a handler that needs to know
        self.last_active_ms = now_ms()
        self.forwards_requests = False  # a broker, which has checked the requests of its clients (KIP-590)
        self.client_software = ("unknown", "unknown")  # name and version, from ApiVersions v3 (KIP-511)
        self.is_closed = False
        self.received_bytes = 0  # counted only if metrics are served
        self._assembler = assembler
        self.dispatch = dispatch
        self._now_ms = now_ms
        self._on_closed = on_closed
        self._frames: deque[Frame] = deque()
        self._out: list[Part] = []
        self._is_waiting = False  # for the response to a request
        self._is_blocked = False  # by a response that the socket has not taken yet
        self._is_processing = False
        self._is_paused = False
        self._awaited: Promise[ResponseParts] | None = None
        self._memory = memory
        self._served_bytes = 0  # of the request that is being served
        self._held_bytes = 0  # as reported to `memory`
        self._sent_bytes = 0  # as of the last `is_idle_since`

    def is_idle_since(self, oldest_ms: int) -> bool:
        """Whether nothing was received and nothing was sent since `oldest_ms`.

        As in Kafka, this includes a client with a delayed fetch, one that does not read its response, and one that has
        stopped in the middle of a request.
        """
        sent_bytes = self.stream.sent_bytes
        if sent_bytes != self._sent_bytes:
            self._sent_bytes = sent_bytes
            self.last_active_ms = self._now_ms()
        return self.last_active_ms < oldest_ms

    @property
    def unfinished_bytes(self) -> int:
        return self._assembler.unfinished_bytes

    def buffer(self) -> memoryview:
        return self._assembler.buffer()

    def received(self, count: int) -> None:
        try:
            frames = self._assembler.received(count)
        except MalformedRequest as error:
            self.fail(error)
            return
        if frames:
            self._frames.extend(frames)
            self._process()
        else:
            self.last_active_ms = self._now_ms()
            if self._memory is not None:
                self._update_reading()

    def drained(self) -> None:
        self._is_blocked = False
        self._process()

    def closed(self, error: OSError | None) -> None:
        self.is_closed = True
        self._is_blocked = False
        self._assembler.discard()
        self._serve_the_rest()
        if self.on_disconnect is not None:
            self.on_disconnect()
        if self._memory is not None:
            self._memory.forget(self)
        self._on_closed(self)

    def _serve_the_rest(self) -> None:
        """Serves requests that were received before the client disconnected: it may have closed right after them.

        As in Kafka: a client does not wait for the response to a produce request with acks=0, or to LeaveGroup.
        """
        awaited = self._awaited
        if awaited is not None and not self._frames:
            self._awaited = None
            awaited.abandon()
        elif awaited is not None and not awaited.cancel():
            self._awaited, self._is_waiting = None, False
        self._process()

    def close(self) -> None:
        self._frames.clear()
        self.stream.close()

    def fail(self, error: Exception) -> None:
        logger.warning("closing %s: %s", self.stream.peer, error)
        if self._out and not self._is_blocked:
            self._flush()  # responses to the requests before this one
        self.close()

    def _process(self) -> None:
        if self._is_processing:  # a promise was completed inside the loop below, which continues by itself
            return
        self._is_processing = True
        try:
            while self._frames and not self._is_waiting and not self._is_blocked:
                frame = self._frames.popleft()
                response = self.dispatch(self, frame)
                if response is None:
                    continue
                if isinstance(response, Promise):
                    if self.is_closed and not response.cancel():
                        continue
                    self._is_waiting = True
                    self._served_bytes = len(frame)
                    self._awaited = response
                    response.subscribe(self._on_response, self._on_failure)
                    continue
                self._out += response
                if len(self._out) > _RESPONSES_PER_SEND:
                    self._flush()
            if self._out:
                self._flush()
        except MalformedRequest as error:
            self.fail(error)
        except Exception as error:
            logger.exception("an unexpected error while serving %s", self.stream.peer)
            self.fail(error)
        finally:
            self._is_processing = False
        self.last_active_ms = self._now_ms()
        if not self.is_closed:
            self._update_reading()

    def memory_available(self) -> None:
        if not self.is_closed and not self._is_processing:
            self._pause_or_resume()

    def _update_reading(self) -> None:
        if self._memory is not None:
            held = self._assembler.unfinished_bytes + self._served_bytes
            if self._frames:
                held += sum(map(len, self._frames))
            if held != self._held_bytes:
                self._held_bytes = held
                self._memory.hold(self, held)
        self._pause_or_resume()

    def _pause_or_resume(self) -> None:
        memory = self._memory
        if self._frames or (memory is not None and memory.is_used_up and not memory.may_read(self)):
            self._is_paused = True
            self.stream.pause_reading()
        elif self._is_paused:
            self._is_paused = False
            self.stream.resume_reading()

    def _on_response(self, response: ResponseParts) -> None:
        self._is_waiting = False
        self._served_bytes = 0
        self._awaited = None
        if response is not None:
            self._out.extend(response)
        self._process()

    def _on_failure(self, error: Exception) -> None:
        """There will be no response: the client must not wait for it."""
        self._awaited = None
        # These are no bugs: the request is malformed, the node stops, or its metadata log has failed.
        if not isinstance(error, KafkaError | MalformedRequest):
            logger.error("a request of %s failed", self.stream.peer, exc_info=error)
        self.fail(error)

    def _flush(self) -> None:
        parts, self._out = self._out, []
        if not self.is_closed and not self.stream.send(parts):
            self._is_blocked = True
