"""Produce, ListOffsets, DeleteRecords, OffsetForLeaderEpoch, InitProducerId, DescribeProducers over the wire."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.schema.delete_records.v2.request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kio.schema.describe_producers.v0.request import DescribeProducersRequest, TopicRequest
from kio.schema.init_producer_id.v5.request import InitProducerIdRequest
from kio.schema.list_offsets.v11.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.offset_for_leader_epoch.v4.request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kio.schema.produce.v13.request import PartitionProduceData, TopicProduceData
from kio.schema.produce.v13.request import ProduceRequest as ProduceRequestV13
from tests.unit.broker.broker_bench import Bench, on_broker, produce_request, until

from ottla.core.partition.producers import NO_VERIFICATION
from ottla.model.errors import ErrorCode
from ottla.records.compression import GZIP, ZSTD
from ottla.records.records import Record, build_batch

SECOND = timedelta(seconds=1)
EARLIEST, LATEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = (
    -2,
    -1,
    -3,
    -4,
    -5,
    -6,
)


@pytest.mark.parametrize("version", range(3, 13))
def test_produce_appends_in_every_version_that_names_topics(version: int) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        topic_id = await bench.create("journal")
        for expected in (0, 2):
            response = await bench.ask(produce_request("journal", bench.batch(b"a", b"b")), version)
            (answer,) = response.responses[0].partition_responses
            assert (answer.error_code, answer.base_offset) == (ErrorCode.none, expected)
            if version >= 5:
                assert answer.log_start_offset == 0
        assert await bench.read(topic_id) == [b"a", b"b"] * 2

    run()


@on_broker()
async def test_produce_by_topic_id(bench: Bench) -> None:
    topic_id = await bench.create("journal")

    def request(wanted: UUID) -> ProduceRequestV13:
        data = PartitionProduceData(index=0, records=bench.batch(b"a"))
        topic = TopicProduceData(topic_id=wanted, partition_data=(data,))
        return ProduceRequestV13(acks=-1, timeout=SECOND, topic_data=(topic,))

    (topic,) = (await bench.ask(request(topic_id))).responses
    assert topic.topic_id == topic_id
    assert topic.partition_responses[0].error_code is ErrorCode.none
    (topic,) = (await bench.ask(request(UUID(int=9)))).responses
    assert topic.partition_responses[0].error_code is ErrorCode.unknown_topic_id


def corrupted(batch: bytes) -> bytes:
    return batch[:-1] + bytes([batch[-1] ^ 1])


def with_magic(batch: bytes, magic: int) -> bytes:
    return batch[:16] + bytes([magic]) + batch[17:]


def broken_requests(bench: Bench) -> dict[str, tuple[Any, ErrorCode]]:
    good = bench.batch(b"a")
    return {
        "an unknown topic": (produce_request("nobody", good), ErrorCode.unknown_topic_or_partition),
        "an unknown partition": (
            produce_request("journal", good, partition=9),
            ErrorCode.unknown_topic_or_partition,
        ),
        "acks=2": (produce_request("journal", good, acks=2), ErrorCode.invalid_required_acks),
        "no records": (produce_request("journal", None), ErrorCode.invalid_record),
        "empty records": (produce_request("journal", b""), ErrorCode.invalid_record),
        "two batches": (produce_request("journal", good + good), ErrorCode.invalid_record),
        "a bad checksum": (produce_request("journal", corrupted(good)), ErrorCode.corrupt_message),
        "half a batch": (produce_request("journal", good[:-5]), ErrorCode.corrupt_message),
        "an old magic": (produce_request("journal", with_magic(good, 1)), ErrorCode.invalid_record),
        "too large a batch": (
            produce_request("journal", bench.batch(bytes(2_000_000))),
            ErrorCode.message_too_large,
        ),
        "a control batch": (
            produce_request("journal", bench.batch(b"a", producer_id=1, producer_epoch=0, control=True)),
            ErrorCode.invalid_record,
        ),
        "a time in the future": (
            produce_request("journal", bench.batch(b"a", timestamp=1 << 50)),
            ErrorCode.invalid_timestamp,
        ),
    }


@pytest.mark.parametrize(
    "case",
    [
        "an unknown topic",
        "an unknown partition",
        "acks=2",
        "no records",
        "empty records",
        "two batches",
        "a bad checksum",
        "half a batch",
        "an old magic",
        "too large a batch",
        "a control batch",
        "a time in the future",
    ],
)
def test_produce_rejects(case: str) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        topic_id = await bench.create("journal")
        request, expected = broken_requests(bench)[case]
        (answer,) = (await bench.ask(request)).responses[0].partition_responses
        assert (answer.error_code, answer.base_offset) == (expected, -1)
        assert answer.error_message
        assert await bench.read(topic_id) == []

    run()


@on_broker()
async def test_only_the_admin_client_may_write_to_internal_topics(bench: Bench) -> None:
    await bench.create("__consumer_offsets")
    assert (await bench.produce("__consumer_offsets", b"a")).error_code is ErrorCode.invalid_topic_exception
    bench.client = bench.new_client("__admin_client")
    assert (await bench.produce("__consumer_offsets", b"a")).error_code is ErrorCode.none


@on_broker()
async def test_acks_0_has_no_response_and_an_error_closes_the_connection(bench: Bench) -> None:
    topic_id = await bench.create("journal")

    async def send(topic: str) -> None:
        connection = await bench.client._connected()
        connection.stream.send([bench.client._frame(produce_request(topic, bench.batch(b"a"), acks=0), 1)])

    await send("journal")
    await send("journal")
    await until(lambda: bench.services.partitions.find_replica("journal", None, 0).log.log_end_offset == 2)
    assert await bench.read(topic_id) == [b"a", b"a"]
    await send("nobody")
    await until(lambda: not bench.broker.server.connections)


@on_broker()
async def test_idempotent_produce_accepts_duplicates_rejects_gaps_and_fences_old_epochs(bench: Bench) -> None:
    topic_id = await bench.create("journal")

    def batch(sequence: int, value: bytes = b"a", epoch: int = 1, **options: Any) -> bytes:
        return bench.batch(value, producer_id=7, producer_epoch=epoch, base_sequence=sequence, **options)

    first = [batch(sequence) for sequence in range(6)]
    for expected, records in enumerate(first):
        assert (await bench.produce("journal", records=records)).base_offset == expected
    for expected in (1, 2, 3, 4, 5):
        answer = await bench.produce("journal", records=first[expected])
        assert (answer.error_code, answer.base_offset) == (ErrorCode.none, expected)
    for records, expected_error in (
        (first[0], ErrorCode.out_of_order_sequence_number),  # older than the last five
        (batch(8), ErrorCode.out_of_order_sequence_number),
        (batch(0, epoch=0), ErrorCode.invalid_producer_epoch),
        (batch(5, epoch=2), ErrorCode.out_of_order_sequence_number),
    ):
        answer = await bench.produce("journal", records=records)
        assert answer.error_code is expected_error
    assert len(await bench.read(topic_id)) == 6
    assert (await bench.produce("journal", records=batch(0, epoch=2))).base_offset == 6


@on_broker()
async def test_records_without_a_key_are_rejected_by_a_compacted_topic_with_their_index(bench: Bench) -> None:
    await bench.create("journal", cleanup_policy="compact")
    now_ms = bench.world.clock.now_ms()
    records = build_batch([Record(0, now_ms, b"k", b"v"), Record(1, now_ms, None, b"v")])
    answer = await bench.produce("journal", records=records)
    assert answer.error_code is ErrorCode.invalid_record
    assert [error.batch_index for error in answer.record_errors] == [1]


@on_broker()
async def test_flush_messages_flushes_before_the_response(bench: Bench) -> None:
    await bench.create("journal", flush_messages="1")
    assert (await bench.produce("journal", b"a")).error_code is ErrorCode.none
    assert bench.services.partitions.find_replica("journal", None, 0).log.recovery_point == 1


@on_broker()
async def test_a_topic_with_a_codec_of_its_own_recompresses(bench: Bench) -> None:
    topic_id = await bench.create("journal", compression_type="zstd")
    await bench.produce("journal", records=bench.batch(b"a" * 1000, codec=GZIP))
    hosted = bench.services.partitions.find_replica("journal", None, 0)
    data = hosted.log.segments.active.file.read_at(0, 10_000)
    assert data[22] & 7 == ZSTD
    assert await bench.read(topic_id) == [b"a" * 1000]


# -- ListOffsets


def list_offsets(timestamp: int, *, topic: str = "journal", isolation_level: int = 0, **options: Any) -> Any:
    defaults: dict[str, Any] = {"partition_index": 0, "timestamp": timestamp}
    wanted = ListOffsetsPartition(**(defaults | options))
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=(ListOffsetsTopic(name=topic, partitions=(wanted,)),),
        timeout=SECOND,
    )


async def listed(bench: Bench, request: Any, version: int | None = None) -> Any:
    return (await bench.ask(request, version)).topics[0].partitions[0]


@pytest.mark.parametrize("version", range(1, 12))
def test_list_offsets_finds_earliest_latest_and_times_in_every_version(version: int) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        await bench.create("journal")
        now_ms = bench.world.clock.now_ms()
        for delta in (100, 200, 300):
            await bench.produce("journal", records=bench.batch(b"a", b"b", timestamp=now_ms + delta))
        bench.services.partitions.find_replica("journal", None, 0).delete_records(1)
        found = {}
        for timestamp in (EARLIEST, LATEST, now_ms, now_ms + 150, now_ms + 300, now_ms + 301):
            answer = await listed(bench, list_offsets(timestamp), version)
            assert answer.error_code is ErrorCode.none
            found[timestamp] = (answer.offset, answer.timestamp)
            if version >= 4:
                assert answer.leader_epoch == (0 if answer.offset >= 0 else -1)
        assert found == {
            EARLIEST: (1, -1),
            LATEST: (6, -1),
            now_ms: (1, now_ms + 100),
            now_ms + 150: (2, now_ms + 200),
            now_ms + 300: (4, now_ms + 300),
            now_ms + 301: (-1, -1),
        }

    run()


@on_broker()
async def test_list_offsets_knows_every_special_timestamp(bench: Bench) -> None:
    await bench.create("journal")
    assert (await listed(bench, list_offsets(MAX_TIMESTAMP))).offset == -1
    now_ms = bench.world.clock.now_ms()
    for delta in (100, 300, 200):
        await bench.produce("journal", records=bench.batch(b"a", timestamp=now_ms + delta))
    newest = await listed(bench, list_offsets(MAX_TIMESTAMP))
    assert (newest.offset, newest.timestamp) == (1, now_ms + 300)
    assert (await listed(bench, list_offsets(EARLIEST_LOCAL))).offset == 0
    for timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        nothing = await listed(bench, list_offsets(timestamp))
        assert (nothing.error_code, nothing.offset) == (ErrorCode.none, -1)
    assert (await listed(bench, list_offsets(-7))).error_code is ErrorCode.unsupported_version


@on_broker()
async def test_list_offsets_rejects_unknown_partitions_and_wrong_epochs(bench: Bench) -> None:
    await bench.create("journal")
    bench.services.partitions.find_replica("journal", None, 0).leader.leader_epoch = 3
    for request, expected in (
        (list_offsets(LATEST, topic="nobody"), ErrorCode.unknown_topic_or_partition),
        (list_offsets(LATEST, partition_index=5), ErrorCode.unknown_topic_or_partition),
        (list_offsets(LATEST, current_leader_epoch=2), ErrorCode.fenced_leader_epoch),
        (list_offsets(LATEST, current_leader_epoch=4), ErrorCode.unknown_leader_epoch),
        (list_offsets(LATEST, current_leader_epoch=3), ErrorCode.none),
    ):
        assert (await listed(bench, request)).error_code is expected


@on_broker()
async def test_latest_is_the_last_stable_offset_for_read_committed(bench: Bench) -> None:
    await bench.create("journal")
    await bench.produce("journal", b"a")
    batch = bench.batch(b"open", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    hosted = bench.services.partitions.find_replica("journal", None, 0)
    now_ms = bench.world.clock.now_ms()
    hosted.append_in_transaction(batch, now_ms, required_acks=-1, verification=NO_VERIFICATION)
    assert (await listed(bench, list_offsets(LATEST))).offset == 2
    assert (await listed(bench, list_offsets(LATEST, isolation_level=1))).offset == 1


# -- DeleteRecords


def delete_records(offset: int, topic: str = "journal", partition: int = 0) -> DeleteRecordsRequest:
    wanted = DeleteRecordsPartition(partition_index=partition, offset=offset)
    return DeleteRecordsRequest(
        topics=(DeleteRecordsTopic(name=topic, partitions=(wanted,)),), timeout=SECOND
    )


@pytest.mark.parametrize("version", range(3))
def test_delete_records_moves_the_log_start_offset_forward_only(version: int) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        await bench.create("journal")
        await bench.produce("journal", b"a", b"b", b"c")
        for offset, low_watermark in ((2, 2), (1, 2), (-1, 3)):
            (answer,) = (await bench.ask(delete_records(offset), version)).topics[0].partitions
            assert (answer.error_code, answer.low_watermark) == (ErrorCode.none, low_watermark)
        assert (await listed(bench, list_offsets(EARLIEST))).offset == 3

    run()


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (delete_records(4), ErrorCode.offset_out_of_range),
        (delete_records(-2), ErrorCode.offset_out_of_range),
        (delete_records(0, "nobody"), ErrorCode.unknown_topic_or_partition),
        (delete_records(0, "journal", 5), ErrorCode.unknown_topic_or_partition),
        (delete_records(0, "compacted"), ErrorCode.policy_violation),
        (delete_records(0, "__consumer_offsets"), ErrorCode.invalid_topic_exception),
    ],
)
def test_delete_records_rejects(request_: DeleteRecordsRequest, expected: ErrorCode) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        await bench.create("journal")
        await bench.create("compacted", cleanup_policy="compact")
        await bench.create("__consumer_offsets")
        await bench.produce("journal", b"a", b"b", b"c")
        (answer,) = (await bench.ask(request_)).topics[0].partitions
        assert (answer.error_code, answer.low_watermark) == (expected, -1)

    run()


# -- OffsetForLeaderEpoch


def end_of_epoch(epoch: int, *, topic: str = "journal", partition: int = 0, current: int = -1) -> Any:
    wanted = OffsetForLeaderPartition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
    return OffsetForLeaderEpochRequest(
        replica_id=-1, topics=(OffsetForLeaderTopic(topic=topic, partitions=(wanted,)),)
    )


@pytest.mark.parametrize("version", [2, 3, 4])
def test_offset_for_leader_epoch_returns_the_end_offset_of_an_epoch(version: int) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        await bench.create("journal")
        await bench.produce("journal", b"a", b"b")
        bench.services.partitions.find_replica("journal", None, 0).leader.leader_epoch = 4
        await bench.produce("journal", b"c")
        ends = {}
        for epoch in (0, 2, 4, 5):
            (answer,) = (await bench.ask(end_of_epoch(epoch), version)).topics[0].partitions
            assert answer.error_code is ErrorCode.none
            ends[epoch] = (answer.leader_epoch, answer.end_offset)
        assert ends == {0: (0, 2), 2: (0, 2), 4: (4, 3), 5: (-1, -1)}
        for request, expected in (
            (end_of_epoch(0, topic="nobody"), ErrorCode.unknown_topic_or_partition),
            (end_of_epoch(0, partition=3), ErrorCode.unknown_topic_or_partition),
            (end_of_epoch(0, current=3), ErrorCode.fenced_leader_epoch),
            (end_of_epoch(0, current=5), ErrorCode.unknown_leader_epoch),
        ):
            (answer,) = (await bench.ask(request, version)).topics[0].partitions
            assert answer.error_code is expected

    run()


# -- InitProducerId and DescribeProducers


@pytest.mark.parametrize("version", range(6))
def test_init_producer_id_gives_a_new_id_with_epoch_0(version: int) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        def request(transactional_id: str | None) -> InitProducerIdRequest:
            return InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout=SECOND)

        answers = [await bench.ask(request(None), version) for _ in range(3)]
        assert len({answer.producer_id for answer in answers}) == 3
        assert [answer.producer_epoch for answer in answers] == [0, 0, 0]
        rejected = await bench.ask(request(""), version)
        assert (rejected.error_code, rejected.producer_id) == (ErrorCode.invalid_request, -1)
        rejected = await bench.ask(request("tx"), version)
        assert rejected.error_code is ErrorCode.not_coordinator

    run()


@on_broker()
async def test_producer_ids_are_unique_across_blocks(bench: Bench) -> None:
    ids = await asyncio.gather(*(bench.services.producer_ids.next() for _ in range(2500)))
    assert len(set(ids)) == 2500


@on_broker()
async def test_describe_producers_returns_the_producers_of_a_partition(bench: Bench) -> None:
    await bench.create("journal", 2)
    batch = bench.batch(b"a", b"b", producer_id=7, producer_epoch=3, base_sequence=0)
    await bench.produce("journal", records=batch)
    request = DescribeProducersRequest(
        topics=(
            TopicRequest(name="journal", partition_indexes=(0, 1, 9)),
            TopicRequest(name="nobody", partition_indexes=(0,)),
        )
    )
    journal, nobody = (await bench.ask(request)).topics
    (producer,) = journal.partitions[0].active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (7, 3, 1)
    assert journal.partitions[1].active_producers == ()
    for unknown in (journal.partitions[2], nobody.partitions[0]):
        assert unknown.error_code is ErrorCode.unknown_topic_or_partition
        assert unknown.error_message
