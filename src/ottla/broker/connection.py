"""One client connection: frames in, responses out, in the order of the requests.

As in Kafka, a connection has one request at work at a time: the next starts when the response of the one before has
been handed to the stream. That gives the order that idempotent producers rely on, and it is the back-pressure: while
a response is still on its way to a slow client, or a request waits in purgatory with others behind it, nothing more is
read, so a client can hold one request, one response and one read of the socket in memory, never more.
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

# Responses to pipelined requests leave together: a system call costs as much as a small request.
_RESPONSES_PER_SEND = 64

# None: no response is due (acks=0).
ResponseParts = Sequence[Part] | None


class Dispatch(Protocol):
    def __call__(
        self, connection: "ClientConnection", frame: Frame
    ) -> "ResponseParts | Promise[ResponseParts]":
        """Raises MalformedRequest where the connection cannot go on."""
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
    ) -> None:
        self.stream = stream
        self.last_active_ms = now_ms()
        self.client_software = ("unknown", "unknown")  # KIP-511, told by ApiVersions v3
        self.is_closed = False
        self._assembler = assembler
        self._dispatch = dispatch
        self._now_ms = now_ms
        self._on_closed = on_closed
        self._frames: deque[Frame] = deque()
        self._out: list[Part] = []
        self._busy = False  # a request waits for its answer
        self._blocked = False  # a response waits for the socket
        self._processing = False
        self._is_paused = False
        self._awaited: Promise[ResponseParts] | None = None
        self._memory = memory
        self._served_bytes = 0  # of the request at work
        self._held_bytes = 0  # as `memory` knows it
        self._sent_bytes = 0  # when it was last looked at

    def is_idle_since(self, oldest_ms: int) -> bool:
        """Whether nothing has come and nothing has left since `oldest_ms`, whatever the client waits for.

        As in Kafka: a fetch that waits for longer than connections.max.idle.ms ends, and so does a client that does not
        read its response, or has stopped in the middle of a request.
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
        self._blocked = False
        self._process()

    def closed(self, error: OSError | None) -> None:
        self.is_closed = True
        self._frames.clear()
        self._out.clear()
        self._assembler.discard()
        if self._awaited is not None:
            self._awaited.abandon()
            self._awaited = None
        if self._memory is not None:
            self._memory.forget(self)
        self._on_closed(self)

    def close(self) -> None:
        self._frames.clear()
        self.stream.close()

    def fail(self, error: Exception) -> None:
        logger.warning("closing %s: %s", self.stream.peer, error)
        if self._out and not self._blocked:
            self._flush()  # the requests before the bad one have their answers
        self.close()

    def _process(self) -> None:
        if self._processing:  # a Promise that completes inside the loop below: the loop goes on by itself
            return
        self._processing = True
        try:
            while self._frames and not self._busy and not self._blocked:
                frame = self._frames.popleft()
                answer = self._dispatch(self, frame)
                if answer is None:
                    continue
                if isinstance(answer, Promise):
                    self._busy = True
                    self._served_bytes = len(frame)
                    self._awaited = answer
                    answer.subscribe(self._on_answer, self._on_failure)
                    continue
                self._out += answer
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
            self._processing = False
        self.last_active_ms = self._now_ms()
        if not self.is_closed:
            self._update_reading()

    def memory_is_free(self) -> None:
        if not self.is_closed and not self._processing:
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

    def _on_answer(self, answer: ResponseParts) -> None:
        self._busy = False
        self._served_bytes = 0
        self._awaited = None
        if answer is not None:
            self._out.extend(answer)
        self._process()

    def _on_failure(self, error: Exception) -> None:
        """The request will never be answered: its client must not wait for it."""
        self._awaited = None
        # Else it cannot be read, the node stops, or its metadata log has failed.
        if not isinstance(error, KafkaError | MalformedRequest):
            logger.error("a request of %s failed", self.stream.peer, exc_info=error)
        self.fail(error)

    def _flush(self) -> None:
        parts, self._out = self._out, []
        if not self.stream.send(parts):
            self._blocked = True
