"""Metadata v4, by hand, against kio."""

from datetime import timedelta

import pytest
from kio.schema.metadata.v4.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v4.response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32
from tests.unit.protocol.kio_oracle import kio_bytes

from ottla.model.errors import ErrorCode
from ottla.rpc import Address, ResponseError
from ottla.rpc.metadata import (
    Metadata,
    PartitionMetadata,
    TopicMetadata,
    decode_metadata_response,
    encode_metadata_request,
)


def partition(number: int, leader: int, error: ErrorCode = ErrorCode.none) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=error,
        partition_index=i32(number),
        leader_id=BrokerId(leader),
        replica_nodes=(BrokerId(7), BrokerId(8)),
        isr_nodes=(BrokerId(7),),
    )


def response(*topics: MetadataResponseTopic) -> bytes:
    brokers = (
        MetadataResponseBroker(node_id=BrokerId(7), host="seven", port=i32(9092), rack="r"),
        MetadataResponseBroker(node_id=BrokerId(8), host="eight", port=i32(9093), rack=None),
    )
    message = MetadataResponse(
        throttle_time=timedelta(),
        brokers=brokers,
        cluster_id="c",
        controller_id=BrokerId(7),
        topics=topics,
    )
    return kio_bytes(message)


TOPIC = MetadataResponseTopic(
    error_code=ErrorCode.none,
    name=TopicName("t"),
    is_internal=False,
    partitions=(partition(0, 8), partition(1, -1, ErrorCode.leader_not_available)),
)
MISSING = MetadataResponseTopic(
    error_code=ErrorCode.unknown_topic_or_partition, name=TopicName("m"), is_internal=False, partitions=()
)


def test_a_request_is_written_as_by_kio() -> None:
    topic = MetadataRequestTopic(name=TopicName("orders"))
    assert encode_metadata_request("orders") == kio_bytes(
        MetadataRequest(topics=(topic,), allow_auto_topic_creation=False)
    )


def test_a_response_of_kio_is_read() -> None:
    assert decode_metadata_response(memoryview(response(TOPIC, MISSING))) == Metadata(
        {7: Address("seven", 9092), 8: Address("eight", 9093)},
        [
            TopicMetadata(0, "t", [PartitionMetadata(0, 0, 8), PartitionMetadata(5, 1, -1)]),
            TopicMetadata(3, "m", []),
        ],
    )


def test_a_response_that_is_cut_off_is_an_error() -> None:
    whole = response(TOPIC)
    for size in range(len(whole)):
        with pytest.raises(ResponseError, match="Metadata v4"):
            decode_metadata_response(memoryview(whole[:size]))
