"""Our OffsetCommit codec and kio's agree in every version; malformed messages are rejected."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from tests.unit.protocol.kio_oracle import MESSAGES, MUTATIONS, kio_bytes, milliseconds, mutations

from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID
from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.errors import MalformedRequest
from ottla.protocol.offset_commit_codec import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
    decode_offset_commit_request,
    encode_offset_commit_response,
)

VERSIONS = range(APIS[ApiKey.OFFSET_COMMIT].min_version, APIS[ApiKey.OFFSET_COMMIT].max_version + 1)


def topic_key(topic: Any, version: int) -> tuple[Any, Any]:
    return (None, topic.topic_id or ZERO_UUID) if version >= 10 else (topic.name, None)


def our_request(message: Any, version: int) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        message.group_id,
        message.generation_id_or_member_epoch,
        message.member_id,
        message.group_instance_id if version >= 7 else None,
        milliseconds(message.retention_time) if version <= 4 else -1,
        [
            OffsetCommitTopic(
                *topic_key(topic, version),
                [
                    OffsetCommitPartition(
                        part.partition_index,
                        part.committed_offset,
                        part.committed_leader_epoch if version >= 6 else -1,
                        part.committed_metadata,
                        0,
                    )
                    for part in topic.partitions
                ],
            )
            for topic in message.topics
        ],
    )


@pytest.mark.parametrize("version", VERSIONS)
@MESSAGES
@given(data=st.data())
def test_a_request_reads_as_kio_wrote_it(version: int, data: st.DataObject) -> None:
    message = data.draw(st.from_type(load_request_schema(ApiKey.OFFSET_COMMIT, version)))
    body = kio_bytes(message)
    request = decode_offset_commit_request(memoryview(body), version)
    assert without_positions(request) == our_request(message, version)
    for topic in request.topics:
        for part in topic.partitions:
            assert int.from_bytes(body[part.position : part.position + 8], "big", signed=True) == part.offset


def without_positions(request: OffsetCommitRequest) -> OffsetCommitRequest:
    topics = [
        topic._replace(partitions=[part._replace(position=0) for part in topic.partitions])
        for topic in request.topics
    ]
    return request._replace(topics=topics)


@pytest.mark.parametrize("version", VERSIONS)
@MESSAGES
@given(data=st.data())
def test_a_response_has_the_bytes_that_kio_writes(version: int, data: st.DataObject) -> None:
    message: Any = data.draw(st.from_type(load_response_schema(ApiKey.OFFSET_COMMIT, version)))
    if version >= 3:
        object.__setattr__(message, "throttle_time", type(message.throttle_time)())
    topics = [
        OffsetCommitTopic(
            *topic_key(topic, version),
            [OffsetCommitPartition(part.partition_index, 0, -1, None, 0) for part in topic.partitions],
        )
        for topic in message.topics
    ]
    codes = iter([part.error_code for topic in message.topics for part in topic.partitions])
    assert encode_offset_commit_response(topics, codes, version) == kio_bytes(message)


@pytest.mark.parametrize("version", [2, 7, 9, 10])
@MUTATIONS
@given(data=st.data())
def test_a_damaged_request_is_malformed_or_another_request(version: int, data: st.DataObject) -> None:
    schema: Any = load_request_schema(ApiKey.OFFSET_COMMIT, version)
    body = data.draw(mutations(kio_bytes(data.draw(st.from_type(schema)))))
    with suppress(MalformedRequest):
        assert isinstance(decode_offset_commit_request(body, version), OffsetCommitRequest)


def test_metadata_that_is_too_long_for_a_record_is_malformed() -> None:
    schema: Any = load_request_schema(ApiKey.OFFSET_COMMIT, 9)
    request = our_message(schema, "é" * 16_384)
    with pytest.raises(MalformedRequest, match="more than 32767 bytes"):
        decode_offset_commit_request(memoryview(request), 9)
    assert decode_offset_commit_request(memoryview(our_message(schema, "é" * 16_383)), 9)


def our_message(schema: Any, metadata: str) -> bytes:
    topic_type: Any = schema.__annotations__["topics"].__args__[0]
    partition_type: Any = topic_type.__annotations__["partitions"].__args__[0]
    partition = partition_type(partition_index=0, committed_offset=1, committed_metadata=metadata)
    return kio_bytes(
        schema(group_id="g", member_id="", topics=(topic_type(name="t", partitions=(partition,)),))
    )


def test_error_codes_are_in_the_order_of_the_request() -> None:
    partitions = [OffsetCommitPartition(7, 0, -1, None, 0), OffsetCommitPartition(3, 0, -1, None, 0)]
    codes = iter([ErrorCode.none, ErrorCode.offset_metadata_too_large])
    assert encode_offset_commit_response(
        [OffsetCommitTopic("t", None, partitions)], codes, 2
    ) == bytes.fromhex("000000010001740000000200000007000000000003000c")
