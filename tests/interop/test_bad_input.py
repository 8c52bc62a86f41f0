"""Bytes that no correct client sends. The broker responds with the protocol's error or closes that connection, keeps
running with constant memory, and serves the next client."""

import contextlib
import random
import socket
import struct
import zlib
from collections.abc import Callable, Iterator

import cramjam
import pytest
from tests.interop.brokers import RunningBroker
from tests.interop.librdkafka import create_topic, produce_values, read_records, wait_until
from tests.interop.wire import (
    API_VERSIONS,
    GZIP,
    METADATA,
    PRODUCE,
    WireClient,
    address_of,
    answers_metadata,
    batch,
    fetch_request,
    frame,
    old_message,
    produce_error,
    produce_request,
    record,
    request,
)

pytestmark = pytest.mark.contract

CORRUPT_MESSAGE = 2
UNKNOWN_TOPIC_OR_PARTITION = 3
UNSUPPORTED_VERSION = 35
INVALID_RECORD = 87
ZSTD = 4
GROWTH_KB_MAX = 64_000
# The broker unpacks up to a limit (134 MB) before it rejects: its memory may grow by that and a little, not twice.
BOMB_GROWTH_KB_MAX = 200_000


@pytest.fixture
def unharmed(broker: RunningBroker) -> Iterator[RunningBroker]:
    """A broker that must run, serve and have no more memory after the test."""
    assert answers_metadata(broker.bootstrap)
    before_kb = broker.memory_kb()
    yield broker
    assert broker.is_alive(), broker.log_tail()
    assert answers_metadata(broker.bootstrap, timeout_s=10)
    if broker.name == "ottla":
        # The heap of a JVM is not predictable.
        assert broker.memory_kb() - before_kb < GROWTH_KB_MAX


BROKEN_FRAMES = {
    "a negative length": struct.pack(">i", -1) + b"x" * 16,
    "a length of two gigabytes": struct.pack(">i", 2**31 - 1) + b"x" * 16,
    "an empty frame": frame(b""),
    "half a header": frame(b"\0\x03\0"),
    "noise of the right length": frame(random.Random(1).randbytes(64)),
    "another protocol": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "an unknown API key": request(999, 0),
    "a negative API key": request(-7, 0),
    "a version from the future": request(METADATA, 99, flexible=True),
    "a negative version": request(METADATA, -1),
    # KAFKA-18659: it is offered for older clients, which look for it but do not use it.
    "version 2 of Produce": request(PRODUCE, 2, struct.pack(">hii", -1, 10_000, 0)),
    "a body that ends too early": request(PRODUCE, 7, b"\xff\xff\xff\xff\0"),
    "an array that claims two billion entries": request(METADATA, 1, struct.pack(">i", 2**31 - 1)),
    "a string that is longer than the frame": request(METADATA, 1, struct.pack(">ih", 1, 32_000) + b"short"),
    "a string that is not UTF-8's end": request(METADATA, 9, b"\x02\xff\xff\xff\xff\xff\xff", flexible=True),
}


@pytest.mark.parametrize("data", BROKEN_FRAMES.values(), ids=BROKEN_FRAMES.keys())
def test_a_broken_frame_closes_the_connection(unharmed: RunningBroker, data: bytes) -> None:
    with WireClient(unharmed.bootstrap) as client:
        client.send(data)
        assert client.is_closed_by_peer()


def test_the_response_to_an_unknown_version_of_api_versions_is_version_0(unharmed: RunningBroker) -> None:
    with WireClient(unharmed.bootstrap) as client:
        answer = client.ask(request(API_VERSIONS, 99, flexible=True, correlation_id=5))
        correlation_id, error, count = struct.unpack_from(">ihi", answer)
        assert (correlation_id, error) == (5, UNSUPPORTED_VERSION)
        # KIP-511: the one entry that the client needs is there, and nothing follows (version 0).
        ranges = [struct.unpack_from(">hhh", answer, 10 + 6 * n) for n in range(count)]
        assert API_VERSIONS in [key for key, _, _ in ranges]
        assert len(answer) == 10 + 6 * count
        # The connection continues with a version that both sides know.
        again = client.ask(request(API_VERSIONS, 0, correlation_id=6))
        assert struct.unpack_from(">ih", again) == (6, 0)


def test_a_client_that_disconnects_in_the_middle_of_a_frame_leaves_nothing_behind(
    unharmed: RunningBroker,
) -> None:
    for size in (1, 4, 5, 1_000):
        with WireClient(unharmed.bootstrap) as client:
            client.send(frame(b"x" * 100_000)[:size])


def test_random_frames_do_no_harm(unharmed: RunningBroker) -> None:
    chance = random.Random(7)
    for _ in range(300):
        key, version = chance.randrange(0, 80), chance.randrange(0, 14)
        body = chance.randbytes(chance.randrange(0, 200))
        with WireClient(unharmed.bootstrap) as client:
            client.send(request(key, version, body, flexible=chance.random() < 0.5))


def valid_batch() -> bytes:
    return batch(record(b"honest"))


ANY_ERROR = None
BAD_RECORDS: dict[str, tuple[Callable[[], bytes], int | None]] = {
    "a wrong checksum": (lambda: batch(record(b"v"), crc=1), CORRUPT_MESSAGE),
    "a flipped bit in a record": (
        lambda: valid_batch()[:-3] + b"\x55" + valid_batch()[-2:],
        CORRUPT_MESSAGE,
    ),
    "magic 0": (lambda: old_message(b"v", 0), INVALID_RECORD),
    "magic 1": (lambda: old_message(b"v", 1), INVALID_RECORD),
    "two batches for one partition": (lambda: valid_batch() * 2, INVALID_RECORD),
    "a batch without records": (lambda: batch(b"", count=0), INVALID_RECORD),
    "a control batch": (lambda: batch(record(b"v"), attributes=0x20), INVALID_RECORD),
    "an unknown codec": (lambda: batch(record(b"v"), attributes=7), ANY_ERROR),
}
BAD_CONTENTS: dict[str, Callable[[], bytes]] = {
    "a record count that lies": lambda: batch(record(b"v"), count=5),
    "a record length that lies": lambda: batch(b"\x7e" + record(b"v")[1:]),
    "compressed noise": lambda: batch(b"not gzip", attributes=GZIP),
}


@pytest.mark.parametrize("what", BAD_RECORDS)
def test_bad_records_are_rejected_with_kafkas_code(
    unharmed: RunningBroker, topic_name: str, what: str
) -> None:
    create_topic(unharmed.bootstrap, topic_name)
    make, code = BAD_RECORDS[what]
    check_rejected(unharmed, topic_name, make(), code)


@pytest.mark.parametrize("what", BAD_CONTENTS)
def test_invalid_records_are_rejected_if_the_broker_must_read_the_batch(
    unharmed: RunningBroker, topic_name: str, what: str
) -> None:
    create_topic(unharmed.bootstrap, topic_name, config={"compression.type": "lz4"})
    check_rejected(unharmed, topic_name, BAD_CONTENTS[what](), ANY_ERROR)


def check_rejected(broker: RunningBroker, topic: str, records: bytes, code: int | None) -> None:
    with WireClient(broker.bootstrap) as client:
        rejected = produce_error(client.ask(produce_request(topic, records)), topic)
        assert rejected != 0 if code is ANY_ERROR else rejected == code
        # The same connection accepts a correct batch, at the offset that the invalid one did not take.
        assert produce_error(client.ask(produce_request(topic, valid_batch())), topic) == 0
    (only,) = read_records(broker.bootstrap, topic, 1)
    assert (only.offset(), only.value()) == (0, b"honest")


def test_garbage_for_records_is_rejected(unharmed: RunningBroker, topic_name: str) -> None:
    create_topic(unharmed.bootstrap, topic_name)
    chance = random.Random(3)
    for size in (1, 11, 60, 61, 500):
        with WireClient(unharmed.bootstrap) as client:
            client.send(produce_request(topic_name, chance.randbytes(size)))
            with contextlib.suppress(ConnectionError):
                assert produce_error(client.receive(), topic_name) != 0


def test_an_unknown_topic_is_rejected(unharmed: RunningBroker) -> None:
    for name in ("never-made", "bad/name", ""):
        with WireClient(unharmed.bootstrap) as client:
            answer = client.ask(produce_request(name, valid_batch()))
            assert produce_error(answer, name) == UNKNOWN_TOPIC_OR_PARTITION


def gzip_bomb() -> bytes:
    """A gigabyte of zeros in a megabyte."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = bytes(10_000_000)
    return b"".join(packer.compress(block) for _ in range(90)) + packer.flush()


def zstd_bomb() -> bytes:
    """Eight gigabytes of zeros as frames one after the other, which the format allows."""
    return bytes(cramjam.zstd.compress(bytes(80_000_000))) * 100


@pytest.mark.parametrize(("bomb", "codec"), [(gzip_bomb, GZIP), (zstd_bomb, ZSTD)], ids=["gzip", "zstd"])
def test_a_compression_bomb_on_a_topic_that_recompresses_is_rejected(
    own_broker: Callable[..., RunningBroker], topic_name: str, bomb: Callable[[], bytes], codec: int
) -> None:
    # A separate broker: the peak memory (VmHWM) would otherwise be that of an earlier test.
    broker = own_broker()
    create_topic(broker.bootstrap, topic_name, config={"compression.type": "lz4"})
    most_kb = broker.memory_kb("VmHWM")
    packed = bomb()
    assert len(packed) < 1_000_000
    with WireClient(broker.bootstrap, timeout_s=60) as client:
        answer = client.ask(produce_request(topic_name, batch(packed, attributes=codec)))
        assert produce_error(answer, topic_name) != 0
    assert answers_metadata(broker.bootstrap, timeout_s=10)
    if broker.name == "ottla":
        assert broker.memory_kb("VmHWM") - most_kb < BOMB_GROWTH_KB_MAX


def test_after_a_flood_of_connections_the_next_client_is_served(unharmed: RunningBroker) -> None:
    with contextlib.ExitStack() as flood:
        for _ in range(500):
            flood.enter_context(socket.create_connection(address_of(unharmed.bootstrap), timeout=10))
        assert answers_metadata(unharmed.bootstrap, timeout_s=10)


def test_connections_beyond_the_limit_of_an_ip_address_are_closed(
    own_broker: Callable[..., RunningBroker],
) -> None:
    broker = own_broker(set={"max.connections.per.ip": "20"})
    with contextlib.ExitStack() as flood:
        clients = [served_client(broker, flood) for _ in range(20)]
        assert flood.enter_context(WireClient(broker.bootstrap)).is_closed_by_peer()
        assert clients[0].ask(request(API_VERSIONS, 0))
        clients[0].close()
        served_client(broker, flood)


def served_client(broker: RunningBroker, stack: contextlib.ExitStack) -> WireClient:
    """Retries until the broker serves the connection: it may not have noticed yet that others have closed."""
    tried: list[WireClient] = []

    def is_served() -> bool:
        tried.append(stack.enter_context(WireClient(broker.bootstrap)))
        try:
            return len(tried[-1].ask(request(API_VERSIONS, 0))) > 0
        except ConnectionError:
            return False

    wait_until(is_served, "a new connection is served")
    return tried[-1]


def test_a_frame_larger_than_socket_request_max_bytes_closes_the_connection(
    own_broker: Callable[..., RunningBroker],
) -> None:
    broker = own_broker(set={"socket.request.max.bytes": "100000"})
    with WireClient(broker.bootstrap) as client:
        client.send(struct.pack(">i", 100_001) + b"x" * 1_000)
        assert client.is_closed_by_peer()
    assert answers_metadata(broker.bootstrap)


def test_a_client_that_never_reads_does_not_increase_the_brokers_memory(
    unharmed: RunningBroker, topic_name: str
) -> None:
    create_topic(unharmed.bootstrap, topic_name)
    produce_values(unharmed.bootstrap, topic_name, [random.Random(1).randbytes(900_000)] * 10)
    asked = fetch_request(topic_name, max_bytes=8_000_000)
    with contextlib.ExitStack() as stack:
        for _ in range(10):
            client = stack.enter_context(
                socket.create_connection(address_of(unharmed.bootstrap), timeout=0.5)
            )
            # Each connection requests two hundred responses of 8 MB and reads none.
            with contextlib.suppress(TimeoutError):
                for _ in range(200):
                    client.sendall(asked)
        assert answers_metadata(unharmed.bootstrap, timeout_s=10)
        if unharmed.name == "ottla":
            assert unharmed.memory_kb() < 400_000
