"""Batches that no correct client sends: rejected as Kafka rejects them, without delaying other clients."""

import math
import struct
import time
from collections.abc import Callable, Iterator

import cramjam
import pytest
from crc32c import crc32c
from tests.interop.brokers import RunningBroker
from tests.interop.librdkafka import create_topic, read_records
from tests.interop.neighbour import WAIT_S_MAX, Neighbour
from tests.interop.wire import (
    GZIP,
    WireClient,
    batch,
    produce_error,
    produce_request,
    record,
    request,
    string,
    varint,
)

pytestmark = pytest.mark.contract

ZSTD = 4
LIST_OFFSETS = 2
INVALID_RECORD = 87
INVALID_REQUEST = 42
ANY_ERROR = None
FULL = {"ottla.record.validation": "full"}  # Kafka has no such config, and always validates fully

MEMORY_GROWTH_KB_MAX = 200_000


def records(count: int) -> bytes:
    return b"".join(record(b"v" * 20, index) for index in range(count))


def zstd(data: bytes) -> bytes:
    return bytes(cramjam.zstd.compress(data))


SMALL_INVALID_BATCHES: dict[str, tuple[Callable[[], bytes], int | None]] = {
    "garbage": (lambda: batch(bytes(range(200)), count=3), INVALID_RECORD),
    "more records than are there": (lambda: batch(records(2), count=3), INVALID_RECORD),
    "fewer records than are there": (lambda: batch(records(3), count=2), INVALID_RECORD),
    "a record longer than the batch": (lambda: batch(b"\x7e" + record(b"v")[1:]), INVALID_RECORD),
    "gzip that is none": (lambda: batch(b"not gzip", attributes=GZIP), ANY_ERROR),
    "zstd that is none": (lambda: batch(b"not zstd", attributes=ZSTD), ANY_ERROR),
}
LARGE_INVALID_BATCHES: dict[str, tuple[Callable[[], bytes], int | None]] = {
    "garbage after many records": (lambda: batch(records(300) + b"\xff" * 40, count=301), ANY_ERROR),
    "more records than are there": (lambda: batch(records(300), count=301), INVALID_RECORD),
    "fewer records than are there": (lambda: batch(records(300), count=299), INVALID_RECORD),
    "more records than are there, compressed": (
        lambda: batch(zstd(records(300)), count=301, attributes=ZSTD),
        INVALID_RECORD,
    ),
    "fewer records than are there, compressed": (
        lambda: batch(zstd(records(300)), count=299, attributes=ZSTD),
        INVALID_RECORD,
    ),
    "compressed garbage": (lambda: batch(zstd(b"\xff" * 900), count=2, attributes=ZSTD), ANY_ERROR),
    "half of a compressed batch": (
        lambda: batch(zstd(records(300))[:-20], count=300, attributes=ZSTD),
        ANY_ERROR,
    ),
}


@pytest.mark.parametrize("what", SMALL_INVALID_BATCHES)
def test_a_small_batch_whose_records_contradict_its_header_is_rejected(
    broker: RunningBroker, topic_name: str, what: str
) -> None:
    create_topic(broker.bootstrap, topic_name)
    check_rejected(broker, topic_name, *SMALL_INVALID_BATCHES[what])


def test_with_full_validation_every_batch_whose_records_contradict_its_header_is_rejected(
    own_broker: Callable[..., RunningBroker], topic_name: str
) -> None:
    broker = own_broker(set=FULL)
    for number, (what, (make, code)) in enumerate({**SMALL_INVALID_BATCHES, **LARGE_INVALID_BATCHES}.items()):
        topic = f"{topic_name}-{number}"
        create_topic(broker.bootstrap, topic)
        check_rejected(broker, topic, make, code, what)


def check_rejected(
    broker: RunningBroker,
    topic: str,
    make: Callable[[], bytes],
    code: int | None,
    what: str = "",
) -> None:
    with WireClient(broker.bootstrap) as client:
        found = produce_error(client.ask(produce_request(topic, make())), topic)
        assert found != 0 if code is ANY_ERROR else found == code, (what, found)
        assert produce_error(client.ask(produce_request(topic, batch(record(b"honest")))), topic) == 0
    (only,) = read_records(broker.bootstrap, topic, 1)
    assert (only.offset(), only.value()) == (0, b"honest")


# Attacks with few bytes, beside a well-behaved client


@pytest.fixture
def attacked(
    own_broker: Callable[..., RunningBroker], topic_name: str
) -> Iterator[tuple[RunningBroker, str]]:
    """A broker with a compacted topic to attack. The neighbour must be served all the time."""
    broker = own_broker()
    create_topic(broker.bootstrap, topic_name, config={"cleanup.policy": "compact"})
    create_topic(broker.bootstrap, f"{topic_name}-neighbour")
    # Code that the first lookup or the first large batch loads does not count.
    with WireClient(broker.bootstrap) as client:
        client.ask(list_offsets(f"{topic_name}-neighbour", 0))
    before_kb = broker.memory_kb("VmHWM")
    is_ottla = broker.name == "ottla"
    with Neighbour(broker, f"{topic_name}-neighbour", WAIT_S_MAX if is_ottla else math.inf):
        yield broker, topic_name
    if is_ottla:
        assert broker.memory_kb("VmHWM") - before_kb < MEMORY_GROWTH_KB_MAX


def list_offsets(topic: str, *timestamps: int) -> bytes:
    """ListOffsets v1 of partition 0, once for each timestamp."""
    partitions = b"".join(struct.pack(">iq", 0, timestamp) for timestamp in timestamps)
    body = struct.pack(">ii", -1, 1) + string(topic) + struct.pack(">i", len(timestamps)) + partitions
    return request(LIST_OFFSETS, 1, body)


def list_offsets_errors(response: bytes, topic: str, count: int) -> list[int]:
    start = 4 + 4 + len(string(topic)) + 4
    return [struct.unpack_from(">h", response, start + 22 * index + 4)[0] for index in range(count)]


def tiny_records(count: int) -> bytes:
    """Records with a key of one byte and an empty value: about ten bytes each."""
    parts = []
    for index in range(count):
        body = b"\0\0" + varint(index) + b"\x02k\0\0"
        parts.append(bytes([2 * len(body)]) + body)
    return b"".join(parts)


def test_a_million_tiny_records_do_not_delay_other_clients(attacked: tuple[RunningBroker, str]) -> None:
    broker, topic = attacked
    packed = zstd(tiny_records(1_000_000))
    assert len(packed) < 1_000_000
    with WireClient(broker.bootstrap, timeout_s=60) as client:
        for _ in range(3):
            answer = client.ask(produce_request(topic, batch(packed, 1_000_000, attributes=ZSTD)))
            assert produce_error(answer, topic) == 0


def test_several_batches_for_one_partition_are_rejected_without_reading_records(
    attacked: tuple[RunningBroker, str],
) -> None:
    broker, topic = attacked
    invalid = batch(zstd(record(b"") * 10_000_000), 10_000_000, attributes=ZSTD)
    assert len(invalid) < 10_000
    with WireClient(broker.bootstrap, timeout_s=60) as client:
        before_s = broker.cpu_seconds()
        for _ in range(10):
            assert produce_error(client.ask(produce_request(topic, 4 * invalid)), topic) == INVALID_RECORD
        if broker.name == "ottla":
            # Includes the requests of the neighbour. Reading the records would take ten times as long.
            assert broker.cpu_seconds() - before_s < 1.0


def test_a_batch_that_unpacks_to_many_bytes_does_not_delay_other_clients(
    attacked: tuple[RunningBroker, str],
) -> None:
    broker, topic = attacked
    bomb = batch(zstd(bytes(100_000_000)), 10_000_000, attributes=ZSTD)
    with WireClient(broker.bootstrap, timeout_s=60) as client:
        for _ in range(5):
            assert produce_error(client.ask(produce_request(topic, bomb)), topic) != 0


def test_lookups_by_timestamp_in_a_batch_of_millions_do_not_delay_other_clients(
    attacked: tuple[RunningBroker, str], broker_kind: str
) -> None:
    if broker_kind == "kafka":
        pytest.skip("Kafka does not accept the batch")
    broker, topic = attacked
    quick_topic = f"{topic}-neighbour"
    now_ms = int(time.time() * 1000)
    # Ten million records in a few kilobytes; the last bytes of the header make the lookup read all of them.
    late = with_max_timestamp(
        batch(zstd(record(b"") * 10_000_000), 10_000_000, attributes=ZSTD, timestamp_ms=now_ms - 10_000),
        now_ms + 1_000_000,
    )
    assert len(late) < 10_000
    with WireClient(broker.bootstrap, timeout_s=60) as client:
        assert produce_error(client.ask(produce_request(quick_topic, late)), quick_topic) == 0
        for _ in range(2):
            answer = client.ask(list_offsets(quick_topic, now_ms + 900_000))
            assert list_offsets_errors(answer, quick_topic, 1) == [0]
        repeated = [now_ms + 900_000] * 50
        answer = client.ask(list_offsets(quick_topic, *repeated))
        assert list_offsets_errors(answer, quick_topic, 50) == [INVALID_REQUEST] * 50


def with_max_timestamp(sealed: bytes, timestamp_ms: int) -> bytes:
    changed = sealed[21:35] + struct.pack(">q", timestamp_ms) + sealed[43:]
    return sealed[:17] + struct.pack(">I", crc32c(changed)) + changed
