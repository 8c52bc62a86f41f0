"""Metadata records have the same bytes as kio's, and versions of older releases can be read."""

import uuid
from dataclasses import fields
from io import BytesIO
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_writer
from tests.examples import examples

from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.metadata_records.codec import (
    METADATA_VERSION_MIN,
    PACKERS,
    decode_record,
    encode_record,
)
from ottla.protocol.metadata_records.records import (
    RECORD_TYPES,
    BrokerRegistrationChangeRecord,
    Endpoint,
    FeatureRange,
    MetadataRecord,
    OpaqueRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)

BOUNDS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
IDS = st.uuids().filter(lambda value: value.int != 0)
TEXT = st.text(max_size=20)


def nested(entity: type[Any]) -> st.SearchStrategy[Any]:
    return st.builds(entity, **{each.name: values(each) for each in fields(entity)})


def values(each: Any) -> st.SearchStrategy[Any]:
    if each.type in (tuple[Endpoint, ...], tuple[FeatureRange, ...]):
        return st.lists(nested(get_args(each.type)[0]), max_size=2).map(tuple)
    kafka_type = each.metadata["kafka_type"]
    single: st.SearchStrategy[Any]
    if kafka_type in BOUNDS:
        bits = BOUNDS[kafka_type]
        # The recovery state, the only int8 with a hand-written encoder, is 0, 1 or no change.
        low = 0 if kafka_type == "int8" else -(2**bits)
        single = st.integers(low, 2**bits - 1)
    elif kafka_type == "uint16":
        single = st.integers(0, 65535)
    elif kafka_type == "bool":
        single = st.booleans()
    else:
        single = TEXT if kafka_type == "string" else IDS
    described = str(each.type)
    if "tuple" in described:
        single = st.lists(single, max_size=4).map(tuple)
    if described.endswith("| None"):
        return st.none() | single
    return single


@pytest.mark.parametrize("record_type", RECORD_TYPES, ids=lambda each: each.__name__)
def test_every_record_is_read_as_it_was_written(record_type: type[Any]) -> None:
    @examples(15)
    @given(nested(record_type))
    def check(record: MetadataRecord) -> None:
        assert decode_record(encode_record(record)) == record

    check()


@pytest.mark.parametrize("record_type", PACKERS, ids=lambda each: each.__name__)
def test_hand_written_encoders_have_the_bytes_that_kio_writes(record_type: type[Any]) -> None:
    @examples(60)
    @given(nested(record_type))
    def check(record: MetadataRecord) -> None:
        expected = BytesIO()
        entity_writer(record_type)(expected, record)
        assert encode_record(record)[3:] == expected.getvalue()

    check()


def test_a_record_starts_with_frame_version_type_and_version() -> None:
    topic = TopicRecord(name="a", topic_id=uuid.UUID(int=7))
    assert encode_record(topic) == b"\x01\x02\x00" + b"\x02a" + uuid.UUID(int=7).bytes + b"\x00"


def test_a_type_that_is_not_used_keeps_its_bytes() -> None:
    data = b"\x01\x0e\x00quota of some client"
    record = decode_record(data)
    assert record == OpaqueRecord(14, 0, b"quota of some client")
    assert encode_record(record) == data


def test_a_partition_of_version_0_has_no_directories() -> None:
    newest = PartitionRecord(
        partition_id=3,
        topic_id=uuid.UUID(int=7),
        replicas=(1, 2),
        isr=(1,),
        leader=1,
        leader_epoch=4,
        partition_epoch=5,
    )
    data = encode_record(newest)
    assert data[-2:] == b"\x01\x00"  # no directories, no tagged fields
    assert decode_record(b"\x01\x03\x00" + data[3:-2] + b"\x00") == newest


def test_a_registration_of_version_1_has_no_field_of_the_migration() -> None:
    newest = RegisterBrokerRecord(
        broker_id=3,
        incarnation_id=uuid.UUID(int=7),
        broker_epoch=11,
        end_points=(Endpoint(name="PLAINTEXT", host="h", port=9092, security_protocol=0),),
        features=(),
        rack=None,
        fenced=False,
        in_controlled_shutdown=True,
    )
    data = encode_record(newest)
    assert decode_record(b"\x01\x00\x01" + data[3:7] + data[8:]) == newest


def test_records_are_written_in_the_version_of_the_metadata_version() -> None:
    partition = PartitionRecord(
        partition_id=0, topic_id=uuid.UUID(int=7), replicas=(1,), isr=(1,), leader_epoch=0, partition_epoch=0
    )
    assert encode_record(partition)[2] == 2
    assert encode_record(partition, METADATA_VERSION_MIN)[2] == 1
    assert encode_record(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=2, fenced=-1))[2] == 0
    assert (
        encode_record(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=2, cordoned_log_dirs=()))[2]
        == 3
    )


def test_a_tagged_field_of_a_newer_release_is_ignored() -> None:
    topic = TopicRecord(name="a", topic_id=uuid.UUID(int=7))
    assert decode_record(encode_record(topic)[:-1] + b"\x01\x05\x02ab") == topic


def test_a_version_of_a_newer_release_is_rejected_with_its_name() -> None:
    with pytest.raises(KafkaError, match="TopicRecord has version 9") as rejected:
        decode_record(b"\x01\x02\x09")
    assert rejected.value.code is ErrorCode.unsupported_version


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x02\x02\x00", b"\x01\x02\x00\x05a", b"\x01\x02\x00"])
def test_malformed_bytes_are_rejected(data: bytes) -> None:
    with pytest.raises(KafkaError) as rejected:
        decode_record(data)
    assert rejected.value.code is ErrorCode.corrupt_message
