"""Batches of aiokafka, kafka-python and librdkafka can be read, and these clients can read our batches."""

import socket
import struct
import warnings
from collections.abc import Iterator
from typing import Any

import aiokafka.record.default_records as aiokafka_records
import confluent_kafka
import pytest

from ottla.protocol.fetch_codec import FetchPartition, FetchRequest, FetchTopic
from ottla.records.compression import CODEC_NAMES
from ottla.records.records import Batch, Record, build_batch, read_batches
from ottla.rpc.fetch import decode_fetch_response, encode_fetch_request

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its own files in an old way
    import kafka.codec
    import kafka.record.default_records as kafka_python_records

RECORDS = [
    Record(
        offset=index,
        timestamp=1_700_000_000_000 + index,
        key=None if index % 3 == 0 else b"key %d" % index,
        value=None if index % 7 == 0 else b"value %d " % index * 200,
        headers=(("header", b"%d" % index), ("empty", b""), ("null", None)) if index % 2 else (),
    )
    for index in range(120)
]
CODECS = range(5)
# kafka-python has only gzip; for other codecs it needs libraries that are used only here.
KAFKA_PYTHON_CODECS = [
    0,
    1,
    *(codec for codec, there in ((2, kafka.codec.has_snappy()), (3, kafka.codec.has_lz4())) if there),
]
FETCH_VERSION = 11
FETCH_KEY = 1


def built_by(builder: Any) -> bytes:
    for record in RECORDS:
        assert builder.append(*record[:4], list(record.headers)) is not None
    return bytes(builder.build())


def read_by(batch: Any) -> list[Record]:
    assert batch.validate_crc()
    return [
        Record(found.offset, found.timestamp, found.key, found.value, tuple(found.headers)) for found in batch
    ]


@pytest.mark.parametrize("codec", CODECS, ids=CODEC_NAMES.__getitem__)
def test_batches_of_aiokafka_are_read(codec: int) -> None:
    builder = aiokafka_records.DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 20)
    assert [batch.records for batch in read_batches(built_by(builder))] == [RECORDS]


@pytest.mark.parametrize("codec", CODECS, ids=CODEC_NAMES.__getitem__)
def test_aiokafka_reads_our_batches(codec: int) -> None:
    batch = build_batch(RECORDS, codec=codec)
    assert read_by(aiokafka_records.DefaultRecordBatch(bytearray(batch))) == RECORDS


@pytest.mark.parametrize("codec", KAFKA_PYTHON_CODECS, ids=CODEC_NAMES.__getitem__)
def test_batches_of_kafka_python_are_read(codec: int) -> None:
    builder = kafka_python_records.DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 1 << 20)
    assert [batch.records for batch in read_batches(built_by(builder))] == [RECORDS]


@pytest.mark.parametrize("codec", KAFKA_PYTHON_CODECS, ids=CODEC_NAMES.__getitem__)
def test_kafka_python_reads_our_batches(codec: int) -> None:
    batch = build_batch(RECORDS, codec=codec)
    assert read_by(kafka_python_records.DefaultRecordBatch(batch)) == RECORDS


def librdkafka_producer(codec: int) -> confluent_kafka.Producer:
    """A producer with librdkafka's mock broker, which stores batches unchanged."""
    return confluent_kafka.Producer(
        {
            "test.mock.num.brokers": 1,
            "bootstrap.servers": "the mock replaces this",
            "compression.type": CODEC_NAMES[codec],
            "linger.ms": 200,
            "log_level": 0,
        }
    )


def exchange(host: str, port: int, body: bytes) -> memoryview:
    """One Fetch request and the body of its response."""
    request = struct.pack(">hhih", FETCH_KEY, FETCH_VERSION, 1, -1) + body
    with (
        socket.create_connection((host, port), timeout=10) as connection,
        connection.makefile("rb") as stream,
    ):
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", stream.read(4))
        return memoryview(stream.read(size))[4:]


def fetched(broker: Any, topic: str) -> Iterator[Batch]:
    offset = 0
    while offset < len(RECORDS):
        partition = FetchPartition(0, -1, offset, -1, -1, 1 << 20)
        request = FetchRequest(
            -1, -1, 1000, 1, 1 << 20, 0, 0, -1, [FetchTopic(topic, None, [partition])], forgotten=[]
        )
        body = exchange(broker.host, broker.port, encode_fetch_request(request, FETCH_VERSION))
        [response] = decode_fetch_response(body, FETCH_VERSION).topics[0].partitions
        assert response.error_code == 0
        assert isinstance(response.records, memoryview)
        for batch in read_batches(response.records):
            yield batch
            offset = batch.header.next_offset


@pytest.mark.parametrize("codec", CODECS, ids=CODEC_NAMES.__getitem__)
def test_batches_of_librdkafka_are_read_through_our_own_fetch(codec: int) -> None:
    producer = librdkafka_producer(codec)
    for record in RECORDS:
        producer.produce(
            "topic", record.value, record.key, 0, timestamp=record.timestamp, headers=list(record.headers)
        )
    assert producer.flush(10) == 0
    [broker] = producer.list_topics(timeout=10).brokers.values()
    batches = list(fetched(broker, "topic"))
    assert [record for batch in batches for record in batch.records] == RECORDS
    # On a busy machine the records may leave in several batches, and librdkafka does not compress a batch
    # that would become longer, such as one small record.
    assert {batch.header.compression for batch in batches if len(batch.records) > 1} == {codec}
