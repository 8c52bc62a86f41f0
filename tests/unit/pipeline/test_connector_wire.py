"""Our own Metadata and Fetch requests: addresses, leaders and answers that are not whole."""

import struct

import pytest

from ottla.pipeline.spark.offsets import TopicPartition
from ottla.pipeline.spark.wire import Address, addresses, leader_of, read_fetched, text

AT = TopicPartition("t", 1)


@pytest.mark.parametrize(
    ("servers", "found"),
    [
        ("a:1", [Address("a", 1)]),
        ("a:1, b:2,", [Address("a", 1), Address("b", 2)]),
        ("PLAINTEXT://a:1", [Address("a", 1)]),
        ("[::1]:1", [Address("::1", 1)]),
        ("a", [Address("a", 9092)]),
    ],
)
def test_bootstrap_servers_are_read_as_librdkafka_reads_them(servers: str, found: list[Address]) -> None:
    assert addresses(servers) == found


def metadata(topic_error: int, leaders: list[int]) -> bytes:
    """An answer of one broker, number 7, and one topic with partitions from 0 on."""
    broker = struct.pack(">i", 7) + text("host") + struct.pack(">i", 9) + struct.pack(">h", -1)
    partitions = b"".join(
        struct.pack(">hiiiiiii", 0, number, leader, 2, 7, 8, 1, 7) for number, leader in enumerate(leaders)
    )
    topic = struct.pack(">h", topic_error) + text("t") + b"\0" + struct.pack(">i", len(leaders)) + partitions
    return struct.pack(">ii", 0, 1) + broker + text("cluster") + struct.pack(">ii", 7, 1) + topic


def test_the_leader_of_a_partition_is_found_among_the_brokers() -> None:
    assert leader_of(metadata(0, [5, 7]), AT) == Address("host", 9)


def test_a_partition_may_be_without_a_leader_for_a_while() -> None:
    assert leader_of(metadata(0, [7, -1]), AT) is None


@pytest.mark.parametrize("answer", [metadata(3, []), metadata(0, [7])])
def test_a_partition_that_does_not_exist_is_told_from_that(answer: bytes) -> None:
    with pytest.raises(LookupError):
        leader_of(answer, AT)


def test_an_answer_that_is_cut_off_is_a_fault_of_the_connection() -> None:
    answer = (
        struct.pack(">ii", 0, 1) + text("t") + struct.pack(">iihqqiqqi", 1, 1, 0, 9, 9, 1, 5, 3, 4) + b"data"
    )
    fetched = read_fetched(bytearray(answer), len(answer))
    assert fetched.aborted == [(5, 3)]
    assert fetched.data[fetched.start : fetched.end] == b"data"
    for length in range(len(answer)):
        with pytest.raises(ConnectionError):
            read_fetched(bytearray(answer[:length]), length)
