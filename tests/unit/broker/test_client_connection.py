"""ClientConnection, with a fake stream."""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from struct import pack
from typing import Any

import pytest

from ottla.broker.connection import ClientConnection, ResponseParts
from ottla.broker.promise import Promise
from ottla.env.network import Part
from ottla.protocol.errors import MalformedRequest
from ottla.protocol.framing import Frame, FrameAssembler


class FakeStream:
    peer = "10.0.0.1:5000"
    local_address = ("10.0.0.9", 9092)

    def __init__(self) -> None:
        self.sent: list[list[bytes]] = []
        self.sent_bytes = 0
        self.takes_all = True
        self.is_reading = True
        self.is_closed = False

    def send(self, parts: Sequence[Part]) -> bool:
        self.sent.append([bytes(part) for part in parts])  # type: ignore[arg-type]
        return self.takes_all

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def close(self) -> None:
        self.is_closed = True


class Broker:
    """A dispatch with a table of responses. Other requests are echoed."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.answers: dict[bytes, Any] = {}
        self.on_frame: Callable[[ClientConnection], None] = lambda connection: None

    def __call__(
        self, connection: ClientConnection, frame: Frame
    ) -> "ResponseParts | Promise[ResponseParts]":
        self.seen.append(bytes(frame))
        self.on_frame(connection)
        answer: Any = self.answers.get(bytes(frame), [bytes(frame)])
        if isinstance(answer, Exception):
            raise answer
        result: ResponseParts | Promise[ResponseParts] = answer
        return result


class Setup:
    def __init__(self) -> None:
        self.stream, self.broker, self.now_ms = FakeStream(), Broker(), 1000
        self.closed: list[ClientConnection] = []
        self.connection = ClientConnection(
            self.stream,
            FrameAssembler(bytearray(256), 1000),
            self.broker,
            lambda: self.now_ms,
            self.closed.append,
        )

    def receive(self, *frames: bytes) -> None:
        self.receive_bytes(b"".join(pack(">i", len(frame)) + frame for frame in frames))

    def receive_bytes(self, data: bytes) -> None:
        self.connection.buffer()[: len(data)] = data
        self.connection.received(len(data))


@pytest.fixture
def setup() -> Setup:
    return Setup()


def test_responses_to_pipelined_requests_are_sent_in_order_and_together(setup: Setup) -> None:
    setup.receive(b"one", b"two", b"three")
    assert setup.stream.sent == [[b"one", b"two", b"three"]]


def test_a_request_in_two_parts_is_served_when_it_is_complete(setup: Setup) -> None:
    data = pack(">i", 5) + b"hello"
    for byte in data[:-1]:
        setup.receive_bytes(bytes([byte]))
        assert setup.broker.seen == []
    setup.receive_bytes(data[-1:])
    assert setup.stream.sent == [[b"hello"]]


def test_responses_to_a_long_pipeline_are_sent_in_several_parts() -> None:
    setup = Setup()
    frames = [bytes([index]) for index in range(50)]
    for index, frame in enumerate(frames):
        setup.broker.answers[frame] = [frame, b"--"] if index % 2 else [frame]
    setup.receive(*frames)
    sent = [part for parts in setup.stream.sent for part in parts if part != b"--"]
    assert sent == frames
    assert len(setup.stream.sent) == 2


def test_a_delayed_response_blocks_the_requests_behind_it_and_stops_reading(setup: Setup) -> None:
    promise: Promise[ResponseParts] = Promise()
    setup.broker.answers[b"wait"] = promise
    setup.receive(b"one", b"wait", b"two")
    assert setup.broker.seen == [b"one", b"wait"]
    assert setup.stream.sent == [[b"one"]]
    assert not setup.stream.is_reading
    promise.complete([b"waited"])
    assert setup.broker.seen == [b"one", b"wait", b"two"]
    assert setup.stream.sent == [[b"one"], [b"waited", b"two"]]
    assert setup.stream.is_reading


def test_behind_a_delayed_request_the_next_one_is_read_but_not_started(setup: Setup) -> None:
    promise: Promise[ResponseParts] = Promise()
    setup.broker.answers[b"wait"] = promise
    setup.receive(b"wait")
    assert setup.stream.is_reading
    setup.receive(b"next")
    assert setup.broker.seen == [b"wait"]
    assert not setup.stream.is_reading
    promise.complete(None)
    assert setup.broker.seen == [b"wait", b"next"]


def test_a_promise_that_is_complete_at_once_keeps_the_order(setup: Setup) -> None:
    ready: Promise[ResponseParts] = Promise()
    ready.complete([b"ready"])
    setup.broker.answers[b"now"] = ready
    setup.receive(b"one", b"now", b"two")
    assert [part for parts in setup.stream.sent for part in parts] == [b"one", b"ready", b"two"]


def test_no_request_is_served_while_the_socket_has_not_taken_a_response(setup: Setup) -> None:
    setup.stream.takes_all = False
    setup.receive(b"one")
    setup.receive(b"two", b"three")
    assert setup.broker.seen == [b"one"]
    assert not setup.stream.is_reading
    setup.stream.takes_all = True
    setup.connection.drained()
    assert setup.broker.seen == [b"one", b"two", b"three"]
    assert setup.stream.is_reading


def test_a_request_without_a_response_sends_nothing(setup: Setup) -> None:
    setup.broker.answers[b"acks=0"] = None
    setup.receive(b"acks=0", b"acks=0")
    assert setup.broker.seen == [b"acks=0", b"acks=0"]
    assert setup.stream.sent == []


def test_a_malformed_request_closes_the_connection_after_the_responses_before_it(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    setup.broker.answers[b"bad"] = MalformedRequest("it makes no sense")
    with caplog.at_level(logging.INFO, "ottla.network"):
        setup.receive(b"one", b"bad", b"two")
    assert setup.stream.sent == [[b"one"]]
    assert setup.stream.is_closed
    assert setup.broker.seen == [b"one", b"bad"]
    assert caplog.messages == ["closing 10.0.0.1:5000: it makes no sense"]


def test_a_frame_above_the_limit_closes_the_connection_with_one_log_line(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "ottla.network"):
        setup.receive_bytes(pack(">i", 1001))
    assert setup.stream.is_closed
    (message,) = caplog.messages
    assert "a frame of 1001 bytes was announced; allowed are 0 to 1000" in message


def test_an_unexpected_exception_closes_the_connection_and_is_logged(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    other = Setup()
    setup.broker.answers[b"bug"] = ZeroDivisionError("a bug")
    setup.receive(b"bug", b"two")
    other.receive(b"three")
    assert setup.stream.is_closed
    assert setup.broker.seen == [b"bug"]
    assert not other.stream.is_closed
    assert "an unexpected error while serving 10.0.0.1:5000" in caplog.messages


def test_a_handler_that_closes_the_connection_ends_the_pipeline(setup: Setup) -> None:
    setup.broker.on_frame = ClientConnection.close
    setup.receive(b"one", b"two")
    assert setup.broker.seen == [b"one"]
    assert setup.stream.is_closed


def test_a_response_after_the_end_of_the_connection_is_dropped(setup: Setup) -> None:
    promise: Promise[ResponseParts] = Promise()
    setup.broker.answers[b"wait"] = promise
    setup.receive(b"wait")
    setup.connection.closed(None)
    assert setup.closed == [setup.connection]
    promise.complete([b"late"])
    assert setup.stream.sent == []


def test_a_connection_is_idle_if_it_neither_receives_nor_sends_even_with_a_delayed_request(
    setup: Setup,
) -> None:
    """As Kafka does for a delayed fetch, and for a client that does not read, after connections.max.idle.ms."""
    promise: Promise[ResponseParts] = Promise()
    setup.broker.answers[b"wait"] = promise
    setup.now_ms = 1000
    setup.receive(b"wait")
    assert not setup.connection.is_idle_since(1000)
    assert setup.connection.is_idle_since(1001)
    setup.now_ms = 2000
    promise.complete([b"done"])
    assert not setup.connection.is_idle_since(2000)
    assert setup.connection.is_idle_since(2001)


def test_a_client_that_reads_slowly_is_not_idle(setup: Setup) -> None:
    setup.now_ms = 1000
    setup.receive(b"one")
    setup.now_ms = 5000
    setup.stream.sent_bytes += 1
    assert not setup.connection.is_idle_since(4000)
    setup.now_ms = 9000
    assert setup.connection.is_idle_since(8000)


def test_a_connection_that_is_still_sending_a_large_request_is_active(setup: Setup) -> None:
    setup.receive_bytes(pack(">i", 100) + b"first bytes")
    setup.now_ms = 5000
    setup.receive_bytes(b"a few more")
    assert setup.connection.last_active_ms == 5000


def test_a_promise_is_completed_once() -> None:
    promise: Promise[int] = Promise()
    promise.complete(1)
    with pytest.raises(AssertionError):
        promise.complete(2)


def test_requests_received_before_the_client_disconnected_are_served(setup: Setup) -> None:
    loading: Promise[ResponseParts] = Promise()
    setup.broker.answers[b"first"] = loading.then(lambda parts: parts)
    setup.receive(b"first", b"acks=0", b"leave group")
    setup.connection.closed(None)
    assert setup.broker.seen == [b"first"]
    loading.complete([b"done"])
    assert setup.broker.seen == [b"first", b"acks=0", b"leave group"]
    assert setup.stream.sent == []


def test_requests_behind_a_cancelled_one_are_served_after_the_client_disconnected(setup: Setup) -> None:
    cancelled: list[bytes] = []
    for fetch in (b"fetch", b"another fetch"):
        setup.broker.answers[fetch] = Promise(partial(cancelled.append, fetch))
    setup.receive(b"fetch", b"one", b"another fetch", b"two")
    setup.connection.closed(None)
    assert setup.broker.seen == [b"fetch", b"one", b"another fetch", b"two"]
    assert cancelled == [b"fetch", b"another fetch"]


def test_no_request_is_served_after_the_broker_closed_the_connection(setup: Setup) -> None:
    setup.broker.answers[b"wait"] = Promise()
    setup.receive(b"wait", b"two")
    setup.connection.close()
    setup.connection.closed(None)
    assert setup.broker.seen == [b"wait"]
