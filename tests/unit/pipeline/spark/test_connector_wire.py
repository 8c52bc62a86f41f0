"""The leader of a partition and the response to a fetch, as the Spark reader decodes them."""

import struct

import pytest

from ottla.model.ids import TopicPartition
from ottla.pipeline.spark.wire import Fetched, PartitionFetch, decode_fetch, encode_fetch, leader_of
from ottla.rpc import Address
from ottla.rpc.metadata import Metadata, PartitionMetadata, TopicMetadata

AT = TopicPartition("t", 1)
TOPIC_NAME = b"\0\1t"


def metadata(topic_error: int, leaders: list[int]) -> Metadata:
    """One broker, number 7, and one topic with partitions from 0 on."""
    partitions = [PartitionMetadata(0, number, leader) for number, leader in enumerate(leaders)]
    return Metadata({7: Address("host", 9)}, [TopicMetadata(topic_error, "t", partitions)])


def test_the_leader_of_a_partition_is_found_among_the_brokers() -> None:
    assert leader_of(metadata(0, [5, 7]), AT) == Address("host", 9)


def test_a_partition_may_have_no_leader() -> None:
    assert leader_of(metadata(0, [7, -1]), AT) is None


@pytest.mark.parametrize("found", [metadata(3, []), metadata(0, [7])])
def test_a_partition_that_does_not_exist_is_an_error(found: Metadata) -> None:
    with pytest.raises(LookupError):
        leader_of(found, AT)


def test_a_fetch_asks_for_one_partition() -> None:
    fetch = PartitionFetch(AT, offset=5, bytes_max=100, wait_ms=500, read_committed=True)
    limits = struct.pack(">iiiib", -1, 500, 1, 100, 1)
    assert encode_fetch(fetch) == limits + struct.pack(">i", 1) + TOPIC_NAME + struct.pack(
        ">iiqi", 1, 1, 5, 100
    )


def response(aborted: bytes, records: bytes) -> bytes:
    """Fetch v4: throttle time, one topic, one partition with high watermark and last stable offset 9."""
    partition = struct.pack(">iihqq", 1, 1, 0, 9, 9) + aborted + struct.pack(">i", len(records)) + records
    return struct.pack(">ii", 0, 1) + TOPIC_NAME + partition


def test_records_are_found_in_the_bytes_of_the_response() -> None:
    data = response(struct.pack(">iqq", 1, 5, 3), b"data")
    # The buffer of a connection may be longer than the response.
    fetched = decode_fetch(bytearray(data + b"later"), len(data))
    assert fetched.aborted == [(5, 3)]
    assert fetched.data[fetched.start : fetched.end] == b"data"


def test_a_response_may_have_no_records_and_no_list_of_aborted_transactions() -> None:
    data = bytearray(response(struct.pack(">i", -1), b""))
    assert decode_fetch(data, len(data)) == Fetched(0, data, len(data), len(data), [])


def test_a_response_that_is_cut_off_is_a_connection_error() -> None:
    data = response(struct.pack(">iqq", 1, 5, 3), b"data")
    for length in range(len(data)):
        with pytest.raises(ConnectionError):
            decode_fetch(bytearray(data[:length]), length)


def test_a_response_without_the_partition_is_a_connection_error() -> None:
    with pytest.raises(ConnectionError, match="0 partitions"):
        decode_fetch(bytearray(8), 8)
