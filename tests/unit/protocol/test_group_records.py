"""Records of `__consumer_offsets` have the bytes of Kafka 4.3, and every older version can be read."""

import uuid
from dataclasses import fields, is_dataclass, replace
from types import NoneType
from typing import Any, get_args

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.protocol.kio_oracle import kio_bytes

from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.group_records.codec import decode_record, encode_key, encode_value
from ottla.protocol.group_records.records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ExpiringOffsetCommitValue,
    GroupKey,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.protocol.record_schema import schema_of

BITS = {"int8": 7, "int32": 31, "int64": 63}
KEY = OffsetCommitKey(group="g", topic="orders", partition=7)
TOPIC_ID = uuid.UUID("001dfe72-7593-4c30-8354-0c8a78e15dd3")
OFFSET = OffsetCommitValue(
    offset=5, leader_epoch=3, metadata="né", commit_timestamp=1_700_000_000_000, topic_id=TOPIC_ID
)
MEMBER = MemberMetadata(
    member_id="m",
    group_instance_id="i",
    client_id="c",
    client_host="/127.0.0.1",
    rebalance_timeout=300_000,
    session_timeout=45_000,
    subscription=b"sub",
    assignment=b"",
)
GROUP = GroupMetadataValue(
    protocol_type="consumer",
    generation=1,
    protocol="range",
    leader="m",
    current_state_timestamp=1_700_000_000_000,
    members=(MEMBER,),
)


def built(entity: Any) -> st.SearchStrategy[Any]:
    return st.builds(entity, **{each.name: values(each.type, each.metadata) for each in fields(entity)})


def values(annotation: Any, metadata: Any) -> st.SearchStrategy[Any]:
    parts = get_args(annotation)
    if NoneType in parts:
        (inner,) = (part for part in parts if part is not NoneType)
        return st.none() | values(inner, metadata)
    if Ellipsis in parts:
        return st.lists(values(parts[0], metadata), max_size=3).map(tuple)
    if is_dataclass(annotation):
        return built(annotation)
    kafka_type = metadata["kafka_type"]
    if kafka_type in BITS:
        return st.integers(-(2 ** BITS[kafka_type]), 2 ** BITS[kafka_type] - 1)
    if kafka_type == "uuid":
        return st.uuids().filter(lambda value: value.int != 0)
    return st.binary(max_size=20) if kafka_type == "bytes" else st.text(max_size=20)


def key_of(value_type: Any) -> Any:
    return next(key for key in get_args(GroupKey) if key.__api_key__ == value_type.__api_key__)


@pytest.mark.parametrize("value_type", get_args(GroupValue), ids=lambda each: each.__name__)
def test_every_record_is_read_as_it_was_written(value_type: Any) -> None:
    @examples(25)
    @given(built(key_of(value_type)), built(value_type))
    def check(key: GroupKey, value: GroupValue) -> None:
        assume(not isinstance(value, ExpiringOffsetCommitValue) or value.expire_timestamp != -1)
        assert decode_record(encode_key(key), encode_value(value)) == (key, value)
        assert decode_record(encode_key(key), None) == (key, None)

    check()


@examples(100)
@given(built(OffsetCommitKey), built(OffsetCommitValue))
def test_offsets_have_the_bytes_that_kio_writes(key: OffsetCommitKey, value: OffsetCommitValue) -> None:
    assert encode_key(key) == b"\x00\x01" + kio_bytes(key)
    assert encode_value(value) == b"\x00\x04" + kio_bytes(value)


@pytest.mark.parametrize("version", [0, 2, 3, 4])
def test_offsets_of_every_version_are_read(version: int) -> None:
    @examples(25)
    @given(built(schema_of(OffsetCommitValue, version)))
    def check(written: Any) -> None:
        data = version.to_bytes(2, "big") + kio_bytes(written)
        expected = OffsetCommitValue(**{each.name: getattr(written, each.name) for each in fields(written)})
        assert decode_record(encode_key(KEY), data) == (KEY, expected)

    check()


def test_an_offset_of_version_1_without_an_expiry_is_a_normal_offset() -> None:
    expiring = ExpiringOffsetCommitValue(offset=5, metadata="", commit_timestamp=9, expire_timestamp=-1)
    assert decode_record(encode_key(KEY), encode_value(expiring)) == (
        KEY,
        OffsetCommitValue(offset=5, metadata="", commit_timestamp=9),
    )


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_groups_of_every_version_are_read(version: int) -> None:
    @examples(15)
    @given(built(schema_of(GroupMetadataValue, version)))
    def check(written: Any) -> None:
        data = version.to_bytes(2, "big") + kio_bytes(written)
        key = GroupMetadataKey(group="g")
        _, read = decode_record(encode_key(key), data) or (None, None)
        assert isinstance(read, GroupMetadataValue)
        assert (read.protocol, read.generation, read.leader) == (
            written.protocol,
            written.generation,
            written.leader,
        )
        assert [member.subscription for member in read.members] == [
            member.subscription for member in written.members
        ]

    check()


def test_a_group_of_version_0_has_no_timestamp_rebalance_timeout_or_instance_ids() -> None:
    data = bytes.fromhex(
        "0000" "0008636f6e73756d6572" "00000001" "000572616e6765" "00016d" "00000001"
        "00016d" "000163" "000a2f3132372e302e302e31" "0000afc8" "00000003737562" "00000000"
    )  # fmt: skip
    key = GroupMetadataKey(group="g")
    assert decode_record(encode_key(key), data) == (
        key,
        GroupMetadataValue(
            protocol_type="consumer",
            generation=1,
            protocol="range",
            leader="m",
            members=(
                MemberMetadata(
                    member_id="m",
                    client_id="c",
                    client_host="/127.0.0.1",
                    session_timeout=45_000,
                    subscription=b"sub",
                    assignment=b"",
                ),
            ),
        ),
    )


def test_versions_are_those_that_kafka_writes() -> None:
    expiring = ExpiringOffsetCommitValue(offset=5, metadata="", commit_timestamp=9, expire_timestamp=10)
    assert encode_value(OFFSET)[:2] == b"\x00\x04"
    assert encode_value(expiring)[:2] == b"\x00\x01"
    assert encode_value(GROUP)[:2] == b"\x00\x03"
    assert encode_value(MEMBER_OF_BOTH_PROTOCOLS)[:2] == b"\x00\x00"


def test_a_commit_has_the_bytes_of_kafkas() -> None:
    value = OffsetCommitValue(
        offset=5, leader_epoch=-1, metadata="meta\0", commit_timestamp=1794741772664, topic_id=TOPIC_ID
    )
    assert (
        encode_key(OffsetCommitKey(group="gc", topic="t", partition=0)).hex() == "00010002676300017400000000"
    )
    assert encode_value(value).hex() == (
        "00040000000000000005ffffffff066d65746100000001a1def22178010010001dfe7275934c3083540c8a78e15dd3"
    )


MEMBER_OF_BOTH_PROTOCOLS = ConsumerGroupMemberMetadataValue(
    instance_id=None,
    rack_id=None,
    client_id="c",
    client_host="/",
    subscribed_topic_names=("t",),
    subscribed_topic_regex=None,
    server_assignor=None,
    classic_member_metadata=ClassicMemberMetadata(
        session_timeout_ms=45_000, supported_protocols=(ClassicProtocol(name="range", metadata=b"xy"),)
    ),
)


def test_a_nullable_struct_in_a_tagged_field_begins_with_a_marker() -> None:
    """KIP-893: Kafka reads the byte 1 and then the struct."""
    data = encode_value(MEMBER_OF_BOTH_PROTOCOLS)
    struct = bytes.fromhex("0000afc8020672616e67650378790000")
    assert data.endswith(b"\x01\x00" + bytes([len(struct) + 1]) + b"\x01" + struct)


def test_a_member_without_classic_metadata_is_written_with_null() -> None:
    """If the tag is missing, Kafka reads an empty struct and takes the member for a classic one."""
    value = replace(MEMBER_OF_BOTH_PROTOCOLS, classic_member_metadata=None)
    assert encode_value(value).endswith(b"\x01\x00\x01\x00")
    key = ConsumerGroupMemberMetadataKey(group_id="g", member_id="m")
    assert decode_record(encode_key(key), encode_value(value)) == (key, value)


@pytest.mark.parametrize("number", [4, 9, 10, 15, 17, 23, 200])
def test_types_of_other_groups_and_of_newer_releases_are_ignored(number: int) -> None:
    assert decode_record(number.to_bytes(2, "big") + b"whatever", b"\x00\x63") is None


def test_a_key_of_type_0_is_read_as_one_of_type_1() -> None:
    assert decode_record(b"\x00\x00" + encode_key(KEY)[2:], encode_value(OFFSET)) == (KEY, OFFSET)


@pytest.mark.parametrize("key", [KEY, ConsumerGroupMemberMetadataKey(group_id="g", member_id="m")])
def test_a_value_of_a_newer_release_gets_unsupported_version(key: GroupKey) -> None:
    with pytest.raises(KafkaError, match="version 9, written by a newer release") as rejected:
        decode_record(encode_key(key), b"\x00\x09")
    assert rejected.value.code is ErrorCode.unsupported_version


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (encode_key(KEY), encode_value(OFFSET)),
        (encode_key(GroupMetadataKey(group="g")), encode_value(GROUP)),
        (
            encode_key(ConsumerGroupMemberMetadataKey(group_id="g", member_id="m")),
            encode_value(MEMBER_OF_BOTH_PROTOCOLS),
        ),
    ],
    ids=["offset", "group", "member"],
)
def test_keys_and_values_that_are_cut_off_are_corrupt(key: bytes, value: bytes) -> None:
    for size in range(len(key)):
        with pytest.raises(KafkaError) as rejected:
            decode_record(key[:size], None)
        assert rejected.value.code is ErrorCode.corrupt_message, size
    for size in range(len(value)):
        with pytest.raises(KafkaError) as rejected:
            decode_record(key, value[:size])
        assert rejected.value.code is ErrorCode.corrupt_message, size


def test_tagged_fields_of_newer_releases_are_ignored() -> None:
    newer = (
        encode_value(OffsetCommitValue(offset=5, metadata="", commit_timestamp=9))[:-1] + b"\x01\x07\x02ab"
    )
    assert decode_record(encode_key(KEY), newer) == (
        KEY,
        OffsetCommitValue(offset=5, metadata="", commit_timestamp=9),
    )
