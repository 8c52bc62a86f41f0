"""Every decoder reads an input that is truncated or changed at any byte, or raises its declared error.

Any other exception would be an error in the broker's log, and the request might get no response.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_request_schema, load_response_schema
from tests.unit.protocol.kio_oracle import kio_bytes

from ottla.core.groups.consumer_protocol import (
    read_assignment,
    read_subscribed_topics,
    read_subscription,
    write_assignment,
)
from ottla.core.groups.offsets.repeated_commits import CommitTemplates
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.errors import MalformedRequest
from ottla.protocol.fetch_codec import decode_fetch_request
from ottla.protocol.framing import read_request_header
from ottla.protocol.group_records import codec as group_codec
from ottla.protocol.group_records.records import ExpiringOffsetCommitValue, OffsetCommitValue
from ottla.protocol.messages import decode_request
from ottla.protocol.metadata_records import codec as metadata_codec
from ottla.protocol.metadata_records.records import RECORD_TYPES
from ottla.protocol.offset_commit_codec import decode_offset_commit_request
from ottla.protocol.produce_codec import decode_produce_request
from ottla.protocol.record_schema import schema_of
from ottla.protocol.schema import entity_in, is_array, kafka_type
from ottla.protocol.transaction_codec import decode_add_partitions_request, decode_end_txn_request
from ottla.protocol.transaction_records import codec as transaction_codec
from ottla.protocol.transaction_records.records import TransactionLogKey, TransactionLogValue
from ottla.records import control
from ottla.records.header import HEADER_SIZE, LOG_OVERHEAD, read_header, scan_batches, sealed_parts
from ottla.records.records import Record, build_batch, read_batches
from ottla.rpc import ResponseError
from ottla.rpc.fetch import decode_fetch_response

pytestmark = pytest.mark.slow  # each test cuts a message at every byte, and changes every byte

FIRST_FLEXIBLE = {key.value: spec.first_flexible for key, spec in APIS.items()}
# Wrong lengths and counts: null, 0, 1, and the limits of a byte, an int16, an int32 and a varint.
LIES = (
    b"\x00",
    b"\x01",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\x7f\xff",
    b"\x80\x00",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xff\x0f",
)
SAMPLES: dict[str, object] = {
    "bool": True,
    "float64": 1.5,
    "string": "né",
    "bytes": b"some bytes",
    "records": b"some records",
    "uuid": UUID(int=7),
    "error_code": ErrorCode.none,
    "timedelta_i32": timedelta(seconds=1),
    "timedelta_i64": timedelta(seconds=1),
    "datetime_i64": datetime.fromtimestamp(0, UTC),
}


def filled(schema: Any) -> Any:
    """A message with two elements in each array, and a value in each field."""
    values = {}
    for field in fields(schema):
        entity = entity_in(field.type)
        value = SAMPLES.get(kafka_type(field), 1) if entity is None else filled(entity)
        values[field.name] = (value, value) if is_array(field.type) else value
    return schema(**values)


def damaged(data: bytes) -> Iterator[bytes]:
    for size in range(len(data)):
        yield data[:size]
    for position in range(len(data)):
        for lie in LIES:
            yield data[:position] + lie + data[position + len(lie) :]
        yield data[:position] + data[position + 1 :]


def check(decode: Callable[[bytes], object], data: bytes, declared: type[Exception]) -> None:
    decode(data)
    for broken in damaged(data):
        try:
            decode(broken)
        except declared:
            pass
        except Exception as error:
            error.add_note(f"the input was {broken.hex()}")
            raise


def versions(key: ApiKey) -> range:
    return range(APIS[key].min_version, APIS[key].max_version + 1)


def decode_commit(body: memoryview, version: int) -> object:
    """As the handler does."""
    CommitTemplates().find(bytes(body), version)
    return decode_offset_commit_request(body, version)


REQUEST_CODECS: dict[ApiKey, Callable[[memoryview, int], object]] = {
    ApiKey.PRODUCE: decode_produce_request,
    ApiKey.FETCH: decode_fetch_request,
    ApiKey.OFFSET_COMMIT: decode_commit,
    ApiKey.ADD_PARTITIONS_TO_TXN: decode_add_partitions_request,
    ApiKey.END_TXN: decode_end_txn_request,
}
RESPONSE_CODECS: dict[ApiKey, Callable[[memoryview, int], object]] = {
    ApiKey.FETCH: decode_fetch_response,
}


@pytest.mark.parametrize(
    ("key", "version"), [(key, version) for key in REQUEST_CODECS for version in versions(key)]
)
def test_a_damaged_request_of_a_hand_written_codec(key: ApiKey, version: int) -> None:
    decode = REQUEST_CODECS[key]
    body = kio_bytes(filled(load_request_schema(key, version)))
    check(lambda data: decode(memoryview(data), version), body, MalformedRequest)


def test_a_damaged_produce_request_with_one_partition() -> None:
    """The most common request, which has its own decoder."""
    for version in (9, 12, 13):
        schema: Any = load_request_schema(ApiKey.PRODUCE, version)
        message = filled(schema)
        (topic, _) = message.topic_data
        topic = type(topic)(**{**vars_of(topic), "partition_data": topic.partition_data[:1]})
        message = schema(**{**vars_of(message), "transactional_id": None, "topic_data": (topic,)})
        check(
            lambda data, version=version: decode_produce_request(memoryview(data), version),  # type: ignore[misc]
            kio_bytes(message),
            MalformedRequest,
        )


def vars_of(message: Any) -> dict[str, Any]:
    return {field.name: getattr(message, field.name) for field in fields(message)}


@pytest.mark.parametrize(
    ("key", "version"), [(key, version) for key in RESPONSE_CODECS for version in versions(key)]
)
def test_a_damaged_response_of_a_hand_written_codec(key: ApiKey, version: int) -> None:
    decode = RESPONSE_CODECS[key]
    body = kio_bytes(filled(load_response_schema(key, version)))
    check(lambda data: decode(memoryview(data), version), body, ResponseError)


@pytest.mark.parametrize("key", APIS, ids=lambda key: key.name)
def test_a_damaged_request_of_any_api(key: ApiKey) -> None:
    for version in {APIS[key].min_version, APIS[key].max_version}:
        body = kio_bytes(filled(load_request_schema(key, version)))
        check(
            lambda data, version=version: decode_request(key, version, memoryview(data)),  # type: ignore[misc]
            body,
            MalformedRequest,
        )


@pytest.mark.parametrize("version", [8, 9])
def test_a_damaged_request_header(version: int) -> None:
    tags = b"\x02\x00\x02ab\x07\x01c" if version >= FIRST_FLEXIBLE[ApiKey.METADATA] else b""
    header = bytes.fromhex("0003") + version.to_bytes(2, "big") + bytes.fromhex("00000007 0002 6d65") + tags
    check(lambda data: read_request_header(data, FIRST_FLEXIBLE), header, MalformedRequest)


@pytest.mark.parametrize("key_type", group_codec.KEY_TYPES.values(), ids=lambda each: each.__name__)
def test_a_damaged_record_of_a_group(key_type: Any) -> None:
    key = group_codec.encode_key(filled(key_type))
    check(lambda data: group_codec.decode_record(data, None), key, KafkaError)
    value_type: Any = group_codec.VALUE_TYPES[key_type.__api_key__]
    values = [group_codec.encode_value(filled(value_type))]
    if value_type is OffsetCommitValue:
        values.append(group_codec.encode_value(filled(ExpiringOffsetCommitValue)))
    for version in range(value_type.__version__):
        if value_type is not OffsetCommitValue or version != ExpiringOffsetCommitValue.__version__:
            shape = schema_of(value_type, version)
            values.append(version.to_bytes(2, "big") + kio_bytes(filled(shape)))
    for value in values:
        check(lambda data: group_codec.decode_record(key, data), value, KafkaError)


def test_a_damaged_record_of_a_transaction() -> None:
    key = transaction_codec.encode_key(filled(TransactionLogKey))
    value = transaction_codec.encode_value(filled(TransactionLogValue))
    check(lambda data: transaction_codec.decode_record(data, None), key, KafkaError)
    check(lambda data: transaction_codec.decode_record(key, data), value, KafkaError)


@pytest.mark.parametrize("record_type", RECORD_TYPES, ids=lambda each: each.__name__)
def test_a_damaged_record_of_the_metadata(record_type: Any) -> None:
    check(metadata_codec.decode_record, metadata_codec.encode_record(filled(record_type)), KafkaError)


@pytest.mark.parametrize(
    "message_type", control.TYPES, ids=lambda each: f"{each.__name__} {each.__version__}"
)
def test_a_damaged_control_record(message_type: Any) -> None:
    message = message_type(**vars_of(filled(message_type)) | {"version": message_type.__version__})
    batch = control.build_control_batch([message], base_offset=0, timestamp=1)
    (record,) = read_batches(batch)[0].records
    key, value = record.key or b"", record.value or b""
    check(lambda data: control.read_control_record(record._replace(key=data)), key, KafkaError)
    check(lambda data: control.read_control_record(record._replace(value=data)), value, KafkaError)


@pytest.mark.parametrize("codec", [0, 1])
def test_a_damaged_batch(codec: int) -> None:
    records = [Record(0, 1, b"key", b"value", (("header", None),)), Record(1, 2, None, b"")]
    batch = build_batch(records, codec=codec)
    check(scan_batches, batch, KafkaError)
    check(read_batches, batch, KafkaError)
    header = read_header(batch)

    def read_sealed(payload: bytes) -> object:
        """With a matching checksum, as an attacker would send it."""
        sealed = header._replace(batch_length=HEADER_SIZE + len(payload) - LOG_OVERHEAD)
        return read_batches(b"".join(sealed_parts(sealed, payload)))

    check(read_sealed, batch[HEADER_SIZE:], KafkaError)


def test_damaged_metadata_of_a_classic_consumer_is_read_as_none() -> None:
    topics = b"\x00\x00\x00\x02" + b"\x00\x01a" + b"\x00\x01b"
    owned = b"\x00\x00\x00\x01" + b"\x00\x01a" + b"\x00\x00\x00\x02" + bytes(8)
    user_data = b"\x00\x00\x00\x03abc"
    subscription = b"\x00\x03" + topics + user_data + owned + bytes(4) + b"\x00\x02r1"
    assignment = write_assignment(1, {"a": (0, 1), "b": (2,)})
    for data in itertools.chain((subscription, assignment), damaged(subscription), damaged(assignment)):
        read_subscription(data)
        read_subscribed_topics(data)
        read_assignment(data)
