"""Our Produce codec and kio's agree in both directions and in every version; malformed messages are rejected."""

from datetime import datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from tests.unit.protocol.kio_oracle import MESSAGES, MUTATIONS, kio_bytes, milliseconds, mutations
from tests.unit.protocol.produce_client import decode_produce_response, encode_produce_request

from ottla.model.ids import ZERO_UUID
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import MalformedRequest
from ottla.protocol.primitives import LeaderIdAndEpoch, NodeEndpoint
from ottla.protocol.produce_codec import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    ProduceTopicResponse,
    decode_produce_request,
    encode_produce_response,
)

VERSIONS = range(3, 14)
TOPIC_ID = UUID("6f3b1b7e-8f7c-4b25-9d0c-0a8f5a1d2c3e")


def timestamp(moment: datetime | None) -> int:
    return -1 if moment is None else round(moment.timestamp() * 1000)


def topic_key(topic: Any, version: int) -> tuple[str | None, UUID | None]:
    return (None, topic.topic_id or ZERO_UUID) if version >= 13 else (topic.name, None)


def our_request(message: Any, version: int) -> ProduceRequest:
    return ProduceRequest(
        message.transactional_id,
        message.acks,
        milliseconds(message.timeout),
        [
            ProduceTopic(
                *topic_key(topic, version),
                [ProducePartition(part.index, part.records) for part in topic.partition_data],
            )
            for topic in message.topic_data
        ],
    )


def our_partition_response(part: Any, version: int) -> ProducePartitionResponse:
    leader: LeaderIdAndEpoch | None = None
    if version >= 10:
        leader = LeaderIdAndEpoch(part.current_leader.leader_id, part.current_leader.leader_epoch)
    return ProducePartitionResponse(
        part.index,
        part.error_code,
        part.base_offset,
        timestamp(part.log_append_time),
        part.log_start_offset if version >= 5 else -1,
        [(error.batch_index, error.batch_index_error_message) for error in part.record_errors]
        if version >= 8
        else [],
        part.error_message if version >= 8 else None,
        None if leader == (-1, -1) else leader,  # the default of a tagged field is not sent
    )


def our_response(message: Any, version: int) -> ProduceResponse:
    return ProduceResponse(
        [
            ProduceTopicResponse(
                *topic_key(topic, version),
                [our_partition_response(part, version) for part in topic.partition_responses],
            )
            for topic in message.responses
        ],
        milliseconds(message.throttle_time),
        [NodeEndpoint(node.node_id, node.host, node.port, node.rack) for node in message.node_endpoints]
        if version >= 10
        else [],
    )


def one_record_request(version: int) -> ProduceRequest:
    name, topic_id = (None, TOPIC_ID) if version >= 13 else ("orders", None)
    partition = ProducePartition(3, memoryview(b"a batch"))
    return ProduceRequest(None, -1, 30_000, [ProduceTopic(name, topic_id, [partition])])


@pytest.mark.parametrize("version", VERSIONS)
@MESSAGES
@given(data=st.data())
def test_a_produce_request_reads_and_writes_as_in_kio(version: int, data: st.DataObject) -> None:
    message = data.draw(st.from_type(load_request_schema(ApiKey.PRODUCE, version)))
    raw = kio_bytes(message)
    request = decode_produce_request(memoryview(raw), version)
    assert request == our_request(message, version)
    assert encode_produce_request(request, version) == raw


@pytest.mark.parametrize("version", VERSIONS)
@MESSAGES
@given(data=st.data())
def test_a_produce_response_reads_and_writes_as_in_kio(version: int, data: st.DataObject) -> None:
    message = data.draw(st.from_type(load_response_schema(ApiKey.PRODUCE, version)))
    raw = kio_bytes(message)
    response = our_response(message, version)
    assert encode_produce_response(response, version) == raw
    assert decode_produce_response(memoryview(raw), version) == response


@pytest.mark.parametrize("version", VERSIONS)
def test_records_are_slices_of_the_request_not_copies(version: int) -> None:
    body = bytearray(encode_produce_request(one_record_request(version), version))
    records = decode_produce_request(memoryview(body), version).topics[0].partitions[0].records
    assert records is not None
    body[body.index(b"a batch")] = ord("A")
    assert bytes(records) == b"A batch"


@pytest.mark.parametrize("version", VERSIONS)
def test_every_truncation_is_malformed_and_bytes_after_the_end_are_ignored(version: int) -> None:
    body = encode_produce_request(one_record_request(version), version)
    for size in range(len(body)):
        with pytest.raises(MalformedRequest, match=f"Produce v{version}"):
            decode_produce_request(memoryview(body[:size]), version)
    # As Kafka: librdkafka has sent extra bytes before.
    assert decode_produce_request(memoryview(body + b"\0\1"), version) == decode_produce_request(
        memoryview(body), version
    )


@pytest.mark.parametrize("version", VERSIONS)
@MUTATIONS
@given(data=st.data())
def test_changed_bytes_of_a_request_are_read_or_malformed_never_anything_else(
    version: int, data: st.DataObject
) -> None:
    body = data.draw(mutations(encode_produce_request(one_record_request(version), version)))
    try:
        decode_produce_request(body, version)
    except MalformedRequest:
        pass


def test_a_lying_array_length_is_malformed_at_once() -> None:
    for body, version in (
        (b"\xff\xff\xff\xff\0\0\0\0\x7f\xff\xff\xff", 3),
        (b"\0\xff\xff\0\0\0\0\xff\xff\xff\xff\x0f", 9),
    ):
        with pytest.raises(MalformedRequest):
            decode_produce_request(memoryview(body), version)


def test_unknown_tagged_fields_of_a_request_are_skipped() -> None:
    body = encode_produce_request(one_record_request(9), 9)
    newer = body[:-3] + b"\x01\x63\x02hi" + b"\x01\x07\x00" + b"\x02\x05\x01x\x06\x00"
    assert decode_produce_request(memoryview(newer), 9) == one_record_request(9)


def test_fields_of_newer_versions_are_left_out_of_older_responses() -> None:
    partition = ProducePartitionResponse(
        0, 6, -1, current_leader=LeaderIdAndEpoch(2, 7), error_message="moved"
    )
    response = ProduceResponse([ProduceTopicResponse("t", None, [partition])], 0, [NodeEndpoint(2, "b", 1)])
    for version in range(3, 10):
        [topic] = decode_produce_response(
            memoryview(encode_produce_response(response, version)), version
        ).topics
        assert topic.partitions[0].current_leader is None
        assert topic.partitions[0].error_message == ("moved" if version >= 8 else None)
