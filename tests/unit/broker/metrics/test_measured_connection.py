"""The sums of request times against a list of all requests, on a connection with a fake stream and a fake clock."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from struct import pack

import pytest

from ottla.broker.metrics.measured_connection import MeasuredConnection
from ottla.broker.metrics.request_times import RequestTimes
from ottla.broker.metrics.requests import RequestMetrics
from ottla.broker.promise import Promise
from ottla.env.network import Part
from ottla.protocol.framing import Frame, FrameAssembler

PRODUCE, FETCH, METADATA = (0, 12), (1, 18), (3, 13)
API_VERSIONS = 18
ANSWERED, DELAYED, UNANSWERED = "answered", "delayed", "unanswered"


@dataclass
class Request:
    key: tuple[int, int]
    size: int
    arrived_ns: int
    began_ns: int
    ended_ns: int
    kind: str
    ready_ns: int = -1
    send_began_ns: int = -1
    sent_ns: int = -1


class Machine:
    """A connection, its dispatch and its stream. Every step takes a random time, and is written down."""

    peer = "10.0.0.1:5000"

    def __init__(self, random: Random) -> None:
        self.now_ns, self.arrived_ns, self.sent_bytes = 1_000, 0, 0
        self.random = random
        self.requests: list[Request] = []
        self.delayed: list[tuple[Request, Promise[Sequence[Part] | None]]] = []
        self.is_blocked = False
        self.blocks_next = False
        self.metrics = RequestMetrics(lambda: self.now_ns)
        self.connection = MeasuredConnection(
            lambda: self.now_ns,
            self,
            FrameAssembler(bytearray(1 << 16), 1 << 16),
            self.metrics.measured(self.dispatch),
            lambda: 0,
            lambda connection: None,
        )

    def pass_time(self) -> None:
        self.now_ns += self.random.randrange(1, 50_000)

    def dispatch(
        self, connection: object, frame: Frame
    ) -> "Sequence[Part] | Promise[Sequence[Part] | None] | None":
        began_ns, number = self.now_ns, len(self.requests)
        self.pass_time()
        kind = (ANSWERED, DELAYED, UNANSWERED)[frame[4]]
        key = (frame[0] << 8 | frame[1], frame[2] << 8 | frame[3])
        request = Request(key, len(frame), self.arrived_ns, began_ns, self.now_ns, kind)
        self.requests.append(request)
        if kind == UNANSWERED:
            request.sent_ns = self.now_ns
            return None
        if kind == ANSWERED:
            request.ready_ns = self.now_ns
            return [pack(">i", number)]
        promise: Promise[Sequence[Part] | None] = Promise()
        self.delayed.append((request, promise))
        return promise

    def send(self, parts: Sequence[Part]) -> bool:
        began_ns = self.now_ns
        for part in parts:
            assert isinstance(part, bytes)
            self.requests[int.from_bytes(part)].send_began_ns = began_ns
        self.pass_time()
        self.is_blocked, self.blocks_next = self.blocks_next, False
        if not self.is_blocked:
            self.all_sent()
        return not self.is_blocked

    def all_sent(self) -> None:
        for request in self.requests:
            if request.send_began_ns >= 0 and request.sent_ns < 0:
                request.sent_ns = self.now_ns

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None: ...

    # What happens to the connection

    def read(self, requests: Sequence[tuple[tuple[int, int], str]]) -> None:
        self.pass_time()
        self.arrived_ns = self.now_ns
        data = b""
        for key, kind in requests:
            body = pack(
                ">hhb", *key, (ANSWERED, DELAYED, UNANSWERED).index(kind)
            ) + b"x" * self.random.randrange(50)
            data += pack(">i", len(body)) + body
        buffer = self.connection.buffer()
        buffer[: len(data)] = data
        self.connection.received(len(data))

    def drain(self) -> None:
        self.pass_time()
        self.is_blocked = False
        self.all_sent()
        self.connection.drained()

    def complete(self) -> None:
        self.pass_time()
        request, promise = self.delayed.pop()
        request.ready_ns = self.now_ns
        promise.complete([pack(">i", self.requests.index(request))])

    def times(self, key: tuple[int, int]) -> RequestTimes:
        return self.metrics._times[key]


@pytest.mark.parametrize("seed", range(50))
def test_the_sums_are_those_of_all_requests(seed: int) -> None:
    random = Random(seed)
    machine = Machine(random)
    for _ in range(100):
        if machine.is_blocked:
            machine.drain()
        elif machine.delayed:
            machine.blocks_next = random.random() < 0.2
            machine.complete()
        else:
            machine.blocks_next = random.random() < 0.2
            kinds = random.choices((ANSWERED, DELAYED, UNANSWERED), (8, 1, 1), k=random.randrange(1, 90))
            keys = random.choices((PRODUCE, FETCH, METADATA), (20, 1, 1), k=len(kinds))
            machine.read(list(zip(keys, kinds, strict=True)))
    while machine.delayed or machine.is_blocked:
        (machine.drain if machine.is_blocked else machine.complete)()
    assert Counter(request.kind for request in machine.requests).keys() == {ANSWERED, DELAYED, UNANSWERED}
    for key in (PRODUCE, FETCH, METADATA):
        check(machine.times(key), [request for request in machine.requests if request.key == key])


def check(times: RequestTimes, requests: Sequence[Request]) -> None:
    sent = [request for request in requests if request.kind != UNANSWERED]
    delayed = [request for request in requests if request.kind == DELAYED]
    assert times.count == times.total.count == len(requests)
    assert times.request_bytes == sum(request.size for request in requests)
    assert times.queue_ns == sum(request.began_ns - request.arrived_ns for request in requests)
    assert times.local_ns == sum(request.ended_ns - request.began_ns for request in requests)
    assert times.remote_ns == sum(request.ready_ns - request.ended_ns for request in delayed)
    assert times.response_ns == sum(request.send_began_ns - request.ready_ns for request in sent)
    assert times.send_ns == sum(request.sent_ns - request.send_began_ns for request in sent)
    assert times.total.sum == sum(request.sent_ns - request.arrived_ns for request in requests)


def test_a_response_that_the_socket_does_not_take_at_once_is_sent_when_it_has_drained() -> None:
    machine = Machine(Random(1))
    machine.blocks_next = True
    machine.read([(PRODUCE, ANSWERED)])
    assert PRODUCE in machine.metrics._times
    assert machine.times(PRODUCE).count == 0
    machine.drain()
    check(machine.times(PRODUCE), machine.requests)


def test_all_unsupported_versions_of_an_api_are_counted_together() -> None:
    machine = Machine(Random(1))
    versions = [0, 4, *range(5, 300), -1, -(2**15), 2**15 - 1]
    for version in versions:
        machine.read([((API_VERSIONS, version), ANSWERED)] * 2)
    assert machine.metrics._times.keys() == {(API_VERSIONS, version) for version in (0, 4, -1)}
    check(
        machine.times((API_VERSIONS, -1)),
        [request for request in machine.requests if request.key[1] not in (0, 4)],
    )
    counted = asyncio.run(machine.metrics.start()).finish()[0]
    assert [text.partition("{")[2] for text in counted.splitlines()] == [
        f'request="ApiVersions",version="unsupported"}} {2 * (len(versions) - 2)}',
        'request="ApiVersions",version="0"} 2',
        'request="ApiVersions",version="4"} 2',
    ]
