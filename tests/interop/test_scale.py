"""Many partitions, much data, slow readers: the broker serves them with constant memory."""

import contextlib
import random
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec
from tests.interop.brokers import RunningBroker
from tests.interop.librdkafka import admin_of, create_topic, flush, produce_values, read_records, wait_until
from tests.interop.wire import (
    API_VERSIONS,
    METADATA,
    WireClient,
    address_of,
    answers_metadata,
    fetch_request,
    request,
)

pytestmark = pytest.mark.contract

MEGABYTE_KB = 1_000
SLOW_READERS = 30


def test_records_pass_through_500_partitions(broker: RunningBroker, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=500)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 50})
    for n in range(5_000):
        producer.produce(topic_name, str(n).encode(), partition=n % 500)
    flush(producer)
    records = read_records(broker.bootstrap, topic_name, 5_000, partitions=range(500))
    assert {int(record.value() or b"") for record in records} == set(range(5_000))
    assert set(Counter(record.partition() for record in records).values()) == {10}
    for record in records:
        offset, partition = record.offset(), record.partition()
        assert offset is not None
        assert partition is not None
        assert int(record.value() or b"") == offset * 500 + partition


def test_slow_readers_neither_increase_memory_nor_delay_others(
    broker: RunningBroker, topic_name: str
) -> None:
    create_topic(broker.bootstrap, topic_name)
    produce_values(broker.bootstrap, topic_name, [random.Random(1).randbytes(500_000)] * 60)
    before_kb = broker.memory_kb()
    asked = fetch_request(topic_name, max_bytes=30_000_000)
    with contextlib.ExitStack() as stack:
        readers = [
            stack.enter_context(socket.create_connection(address_of(broker.bootstrap), timeout=10))
            for _ in range(SLOW_READERS)
        ]
        for reader in readers:
            reader.sendall(asked)
        for _ in range(5):
            for reader in readers:
                assert reader.recv(1_000)
            began = time.monotonic()
            assert answers_metadata(broker.bootstrap, timeout_s=5)
            assert time.monotonic() - began < 2
        if broker.name == "ottla":
            # In memory, the responses would take 900 MB.
            assert broker.memory_kb() - before_kb < 100 * MEGABYTE_KB
        # A reader that continues gets the complete response.
        rest = readers[0].makefile("rb")
        assert len(rest.read(20_000_000)) == 20_000_000


def test_memory_does_not_grow_with_the_data_that_passes(broker: RunningBroker, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=4)
    value = random.Random(1).randbytes(1_000)
    settings = {"linger.ms": 5, "batch.size": 1_000_000, "queue.buffering.max.messages": 1_000_000}
    producer = Producer({"bootstrap.servers": broker.bootstrap, **settings})
    grown_kb = []
    for _ in range(3):
        for n in range(100_000):
            producer.produce(topic_name, value, partition=n % 4)
        flush(producer)
        grown_kb.append(broker.memory_kb())
    if broker.name == "ottla":
        assert grown_kb[2] - grown_kb[0] < 30 * MEGABYTE_KB
    high = [broker_end(broker, topic_name, partition) for partition in range(4)]
    assert high == [75_000] * 4


def broker_end(broker: RunningBroker, topic: str, partition: int) -> int:
    position = TopicPartition(topic, partition)
    admin = admin_of(broker.bootstrap)
    found: int = admin.list_offsets({position: OffsetSpec.latest()})[position].result(30).offset
    return found


@pytest.mark.slow
def test_2000_partitions_open_in_seconds_after_a_clean_stop(
    own_broker: Callable[..., RunningBroker], topic_name: str
) -> None:
    broker = own_broker()
    create_topic(broker.bootstrap, topic_name, partitions=2_000)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 100})
    for partition in range(2_000):
        producer.produce(topic_name, b"v", partition=partition)
    flush(producer)
    broker.stop()
    broker.start()
    assert broker.start_seconds < 20
    wait_until(
        lambda: (
            len(admin_of(broker.bootstrap).list_topics(topic_name).topics[topic_name].partitions) == 2_000
        ),
        "all partitions are there",
    )
    assert len(read_records(broker.bootstrap, topic_name, 50, partitions=range(0, 2_000, 40))) == 50


def test_pipelined_requests_of_one_connection_are_served_in_order(broker: RunningBroker) -> None:
    with WireClient(broker.bootstrap) as client:
        sent = b"".join(
            request(METADATA, 1, struct.pack(">i", 0), correlation_id=n)
            if n % 2
            else request(API_VERSIONS, 0, correlation_id=n)
            for n in range(500)
        )
        client.send(sent)
        assert [struct.unpack_from(">i", client.receive())[0] for _ in range(500)] == list(range(500))
