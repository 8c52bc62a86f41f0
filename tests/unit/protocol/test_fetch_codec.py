"""Our Fetch codec and kio's agree in both directions and in every version; malformed messages are rejected."""

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from tests.unit.protocol.kio_oracle import MESSAGES, MUTATIONS, kio_bytes, milliseconds, mutations

from ottla.model.ids import ZERO_UUID
from ottla.model.region import FileRegion
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import MalformedRequest
from ottla.protocol.fetch_codec import (
    COPY_BYTES_MAX,
    UNKNOWN_HIGH_WATERMARK,
    EpochEndOffset,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    FetchTopicResponse,
    ForgottenTopic,
    SnapshotId,
    decode_fetch_request,
    encode_fetch_response,
    encoded_size,
)
from ottla.protocol.primitives import LeaderIdAndEpoch, NodeEndpoint
from ottla.rpc import ResponseError
from ottla.rpc.fetch import decode_fetch_response, encode_fetch_request

VERSIONS = range(4, 19)
TOPIC_ID = UUID("6f3b1b7e-8f7c-4b25-9d0c-0a8f5a1d2c3e")


class MemoryFile:
    """A file whose bytes are their own positions."""

    def fileno(self) -> int:
        return -1

    def read_at(self, position: int, length: int) -> bytes:
        return bytes(at % 256 for at in range(position, position + length))

    def is_cached(self, position: int, length: int) -> bool:
        return True


def topic_key(topic: Any, version: int) -> tuple[str | None, UUID | None]:
    return (None, topic.topic_id or ZERO_UUID) if version >= 13 else (topic.topic, None)


def our_partition(part: Any) -> FetchPartition:
    return FetchPartition(
        part.partition,
        getattr(part, "current_leader_epoch", -1),
        part.fetch_offset,
        getattr(part, "last_fetched_epoch", -1),
        getattr(part, "log_start_offset", -1),
        part.partition_max_bytes,
        getattr(part, "replica_directory_id", None),
        getattr(part, "high_watermark", UNKNOWN_HIGH_WATERMARK),
    )


def our_request(message: Any, version: int) -> FetchRequest:
    replica = message.replica_state if version >= 15 else message
    return FetchRequest(
        replica.replica_id,
        getattr(replica, "replica_epoch", -1),
        milliseconds(message.max_wait),
        message.min_bytes,
        message.max_bytes,
        message.isolation_level,
        getattr(message, "session_id", 0),
        getattr(message, "session_epoch", -1),
        [
            FetchTopic(*topic_key(topic, version), [our_partition(part) for part in topic.partitions])
            for topic in message.topics
        ],
        [
            ForgottenTopic(*topic_key(topic, version), list(topic.partitions))
            for topic in getattr(message, "forgotten_topics_data", ())
        ],
        getattr(message, "rack_id", ""),
        getattr(message, "cluster_id", None),
    )


def our_partition_response(part: Any, version: int) -> FetchPartitionResponse:
    diverging = leader = snapshot = None
    if version >= 12:
        diverging = EpochEndOffset(part.diverging_epoch.epoch, part.diverging_epoch.end_offset)
        leader = LeaderIdAndEpoch(part.current_leader.leader_id, part.current_leader.leader_epoch)
        snapshot = SnapshotId(part.snapshot_id.end_offset, part.snapshot_id.epoch)
    aborted = part.aborted_transactions
    return FetchPartitionResponse(
        part.partition_index,
        part.error_code,
        part.high_watermark,
        part.last_stable_offset,
        getattr(part, "log_start_offset", -1),
        None if aborted is None else [(one.producer_id, one.first_offset) for one in aborted],
        getattr(part, "preferred_read_replica", -1),
        part.records,
        # The defaults of tagged fields are not sent.
        None if diverging == (-1, -1) else diverging,
        None if leader == (-1, -1) else leader,
        None if snapshot == (-1, -1) else snapshot,
    )


def our_response(message: Any, version: int) -> FetchResponse:
    return FetchResponse(
        milliseconds(message.throttle_time),
        getattr(message, "error_code", 0),
        getattr(message, "session_id", 0),
        [
            FetchTopicResponse(
                *topic_key(topic, version),
                [our_partition_response(part, version) for part in topic.partitions],
            )
            for topic in message.responses
        ],
        [
            NodeEndpoint(node.node_id, node.host, node.port, node.rack)
            for node in getattr(message, "node_endpoints", ())
        ],
    )


def session_request(version: int) -> FetchRequest:
    name, topic_id = (None, TOPIC_ID) if version >= 13 else ("orders", None)
    return FetchRequest(
        replica_id=2,
        replica_epoch=9 if version >= 15 else -1,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=1,
        session_id=7 if version >= 7 else 0,
        session_epoch=3 if version >= 7 else -1,
        topics=[
            FetchTopic(
                name,
                topic_id,
                [
                    FetchPartition(
                        index=index,
                        current_leader_epoch=4 if version >= 9 else -1,
                        fetch_offset=100,
                        last_fetched_epoch=4 if version >= 12 else -1,
                        log_start_offset=1 if version >= 5 else -1,
                        max_bytes=1 << 16,
                        replica_directory_id=TOPIC_ID if version >= 17 else None,
                        high_watermark=50 if version >= 18 else UNKNOWN_HIGH_WATERMARK,
                    )
                    for index in range(2)
                ],
            )
        ],
        forgotten=[ForgottenTopic(name, topic_id, [4, 5])] if version >= 7 else [],
        rack_id="west" if version >= 11 else "",
        cluster_id="a cluster" if version >= 12 else None,
    )


def response_with(version: int, *partitions: FetchPartitionResponse) -> FetchResponse:
    name, topic_id = (None, TOPIC_ID) if version >= 13 else ("orders", None)
    return FetchResponse(0, 0, 0, [FetchTopicResponse(name, topic_id, list(partitions))], [])


def joined(parts: list[Any]) -> bytes:
    return b"".join(part.read() if isinstance(part, FileRegion) else part for part in parts)


@pytest.mark.parametrize("version", VERSIONS)
@MESSAGES
@given(data=st.data())
def test_a_fetch_request_reads_and_writes_as_in_kio(version: int, data: st.DataObject) -> None:
    message = data.draw(st.from_type(load_request_schema(ApiKey.FETCH, version)))
    raw = kio_bytes(message)
    request = decode_fetch_request(memoryview(raw), version)
    assert request == our_request(message, version)
    assert encode_fetch_request(request, version) == raw


@pytest.mark.parametrize("version", VERSIONS)
@MESSAGES
@given(data=st.data())
def test_a_fetch_response_reads_and_writes_as_in_kio(version: int, data: st.DataObject) -> None:
    message = data.draw(st.from_type(load_response_schema(ApiKey.FETCH, version)))
    raw = kio_bytes(message)
    response = our_response(message, version)
    assert joined(encode_fetch_response(response, version)) == raw
    assert decode_fetch_response(memoryview(raw), version) == response


@pytest.mark.parametrize("version", VERSIONS)
def test_all_fields_of_a_version_survive_a_round_trip(version: int) -> None:
    request = session_request(version)
    assert decode_fetch_request(memoryview(encode_fetch_request(request, version)), version) == request


@pytest.mark.parametrize("version", VERSIONS)
def test_every_truncation_of_a_fetch_is_malformed_and_bytes_after_the_end_are_ignored(version: int) -> None:
    body = encode_fetch_request(session_request(version), version)
    for size in range(len(body)):
        with pytest.raises(MalformedRequest, match=f"Fetch v{version}"):
            decode_fetch_request(memoryview(body[:size]), version)
    # As Kafka: librdkafka has sent extra bytes before.
    assert decode_fetch_request(memoryview(body + b"\0\1"), version) == decode_fetch_request(
        memoryview(body), version
    )


@pytest.mark.parametrize("version", VERSIONS)
@MUTATIONS
@given(data=st.data())
def test_changed_bytes_of_a_fetch_are_read_or_malformed_never_anything_else(
    version: int, data: st.DataObject
) -> None:
    body = data.draw(mutations(encode_fetch_request(session_request(version), version)))
    try:
        decode_fetch_request(body, version)
    except MalformedRequest:
        pass


@pytest.mark.parametrize("version", VERSIONS)
@MUTATIONS
@given(data=st.data())
def test_changed_bytes_of_a_response_are_read_or_malformed_never_anything_else(
    version: int, data: st.DataObject
) -> None:
    partition = FetchPartitionResponse(
        0,
        aborted=[(1, 2), (3, 4)],
        records=b"some records",
        diverging_epoch=EpochEndOffset(1, 2),
        current_leader=LeaderIdAndEpoch(1, 2),
        snapshot_id=SnapshotId(1, 2),
    )
    response = response_with(version, partition)._replace(
        node_endpoints=[NodeEndpoint(1, "host", 9092, "rack")]
    )
    try:
        decode_fetch_response(data.draw(mutations(joined(encode_fetch_response(response, version)))), version)
    except ResponseError:
        pass


def test_a_wrong_partition_count_is_malformed_at_once() -> None:
    body = bytearray(encode_fetch_request(session_request(11), 11))
    count = body.index(b"\0\6orders") + 8
    body[count : count + 4] = b"\x7f\xff\xff\xff"
    with pytest.raises(MalformedRequest):
        decode_fetch_request(memoryview(body), 11)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_file_region_is_passed_through_and_its_length_is_counted(version: int) -> None:
    region = FileRegion(MemoryFile(), 1000, 300)
    partitions = FetchPartitionResponse(0, records=region), FetchPartitionResponse(1, records=b"small")
    parts = encode_fetch_response(response_with(version, *partitions), version)
    assert [type(part) for part in parts] == [bytes, FileRegion, bytes]
    assert parts[1] is region
    assert encoded_size(parts) == len(joined(parts))
    [topic] = decode_fetch_response(memoryview(joined(parts)), version).topics
    assert [part.records for part in topic.partitions] == [region.read(), b"small"]


@pytest.mark.parametrize("version", [4, 12, 18])
def test_small_partitions_are_joined_in_one_part_and_large_records_are_not_copied(version: int) -> None:
    small = [FetchPartitionResponse(index, records=b"x" * index) for index in range(100)]
    assert len(encode_fetch_response(response_with(version, *small), version)) == 1
    empty = FetchPartitionResponse(0, records=FileRegion(MemoryFile(), 0, 0))
    assert len(encode_fetch_response(response_with(version, empty), version)) == 1
    large = memoryview(bytes(COPY_BYTES_MAX))
    parts = encode_fetch_response(response_with(version, FetchPartitionResponse(0, records=large)), version)
    assert any(part is large for part in parts)
