"""Batches whose records must be read: the header is checked first, and long batches are examined in a thread."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.list_offsets.v11.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.produce.v12.request import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.unit.broker.broker_bench import NO_WAIT, Bench, on_broker, produce_request, until

from ottla.broker import hosted_partition
from ottla.core.partition.leader import PartitionLeader
from ottla.model.config import ResourceType
from ottla.model.errors import ErrorCode
from ottla.records.compression import GZIP, LZ4, ZSTD
from ottla.records.header import HEADER_SIZE, read_header, sealed_parts

T = TypeVar("T")


class Gate:
    """Holds the work of the broker's record thread until the test opens it."""

    def __init__(self, bench: Bench) -> None:
        thread = bench.services.record_thread
        self._run = thread.run
        self._open = asyncio.Event()
        self.waiting = 0
        thread.run = self.run  # type: ignore[method-assign]

    async def run(self, work: Callable[[], T]) -> T:
        self.waiting += 1
        await self._open.wait()
        return await self._run(work)

    def open(self) -> None:
        self._open.set()


def long_batch(bench: Bench, **options: Any) -> bytes:
    """More records than are examined on the event loop."""
    return bench.batch(*[b"v"] * 2_000, **options)


def with_header(batch: bytes, **changes: int) -> bytes:
    return b"".join(sealed_parts(read_header(batch)._replace(**changes), batch[HEADER_SIZE:]))


def end_offset(bench: Bench, topic: str = "journal", partition: int = 0) -> int:
    return bench.services.partitions.find_replica(topic, None, partition).log.log_end_offset


@on_broker()
async def test_a_batch_that_is_rejected_by_its_header_is_not_unpacked(bench: Bench) -> None:
    await bench.create("journal", compression_type="lz4", max_message_bytes="20000")
    producer = {"producer_id": 7, "producer_epoch": 0, "codec": ZSTD}
    first = bench.batch(b"v", base_sequence=0, **producer)
    assert (await bench.produce("journal", records=first)).error_code is ErrorCode.none
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hosted_partition, "examine", lambda *_: pytest.fail("the records were read"))
        rejected = {
            "two batches": (2 * bench.batch(b"v", codec=ZSTD), ErrorCode.invalid_record),
            "too large": (bench.batch(bytes(range(256)) * 100), ErrorCode.message_too_large),
            "a gap in the sequence": (
                bench.batch(b"v", base_sequence=5, **producer),
                ErrorCode.out_of_order_sequence_number,
            ),
            "a timestamp from the future": (
                bench.batch(b"v", codec=ZSTD, timestamp=1 << 50),
                ErrorCode.invalid_timestamp,
            ),
            "a duplicate": (first, ErrorCode.none),
        }
        for what, (records, code) in rejected.items():
            assert (await bench.produce("journal", records=records)).error_code is code, what
    assert end_offset(bench) == 1


@on_broker()
async def test_the_size_limit_is_checked_again_after_recompression(bench: Bench) -> None:
    await bench.create("journal", compression_type="uncompressed", max_message_bytes="20000")
    answer = await bench.produce("journal", records=bench.batch(bytes(30_000), codec=ZSTD))
    assert answer.error_code is ErrorCode.message_too_large
    assert end_offset(bench) == 0


@on_broker()
async def test_requests_of_a_connection_keep_their_order_behind_a_long_examination(bench: Bench) -> None:
    topic_id = await bench.create("journal", cleanup_policy="compact")
    gate = Gate(bench)
    producer = {"producer_id": 7, "producer_epoch": 0}
    batches = [
        long_batch(bench, base_sequence=0, **producer),
        bench.batch(b"second", base_sequence=2_000, **producer),
    ]
    asked = [asyncio.create_task(bench.ask(produce_request("journal", records))) for records in batches]
    await until(lambda: gate.waiting == 1)
    assert end_offset(bench) == 0
    gate.open()
    answers = [(await task).responses[0].partition_responses[0] for task in asked]
    assert [(answer.error_code, answer.base_offset) for answer in answers] == [
        (ErrorCode.none, 0),
        (ErrorCode.none, 2_000),
    ]
    assert (await bench.read(topic_id, 1_999))[-1] == b"second"


@on_broker()
async def test_another_connection_does_not_wait_for_a_long_examination(bench: Bench) -> None:
    await bench.create("journal", cleanup_policy="compact")
    gate = Gate(bench)
    slow = asyncio.create_task(bench.produce("journal", records=long_batch(bench)))
    await until(lambda: gate.waiting == 1)
    other = bench.new_client("other")
    quick = await other.request(produce_request("journal", bench.batch(b"quick")))
    assert quick.responses[0].partition_responses[0].base_offset == 0
    gate.open()
    assert (await slow).base_offset == 1
    other.close()


@on_broker()
async def test_partitions_of_one_request_are_appended_in_its_order(bench: Bench) -> None:
    await bench.create("journal", partitions=3, cleanup_policy="compact")
    batches = [bench.batch(b"a"), long_batch(bench), bench.batch(b"b"), with_bad_count(long_batch(bench))]
    request = ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout=NO_WAIT,
        topic_data=(
            TopicProduceData(
                name="journal",
                partition_data=tuple(
                    PartitionProduceData(index=index, records=records)
                    for index, records in zip((0, 1, 1, 2), batches, strict=True)
                ),
            ),
        ),
    )
    answers = (await bench.ask(request)).responses[0].partition_responses
    assert [(answer.index, answer.error_code, answer.base_offset) for answer in answers] == [
        (0, ErrorCode.none, 0),
        (1, ErrorCode.none, 0),
        (1, ErrorCode.none, 2_000),
        (2, ErrorCode.invalid_record, -1),
    ]


def with_bad_count(batch: bytes) -> bytes:
    count = read_header(batch).records_count - 1
    return with_header(batch, records_count=count, last_offset_delta=count - 1)


@on_broker()
async def test_a_batch_sent_again_while_it_is_examined_is_appended_once(bench: Bench) -> None:
    await bench.create("journal", cleanup_policy="compact")
    gate = Gate(bench)
    records = long_batch(bench, producer_id=7, producer_epoch=0, base_sequence=0)
    clients = [bench.client, bench.new_client("again")]
    asked = [asyncio.create_task(client.request(produce_request("journal", records))) for client in clients]
    await until(lambda: gate.waiting == 2)
    gate.open()
    for task in asked:
        answer = (await task).responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (ErrorCode.none, 0)
    assert end_offset(bench) == 2_000
    clients[1].close()


@on_broker()
async def test_a_topic_may_be_deleted_while_a_batch_for_it_is_examined(bench: Bench) -> None:
    await bench.create("journal", cleanup_policy="compact")
    gate = Gate(bench)
    asked = asyncio.create_task(bench.produce("journal", records=long_batch(bench)))
    await until(lambda: gate.waiting == 1)
    other = bench.new_client("other")
    await other.request(
        DeleteTopicsRequest(topics=(DeleteTopicState(name="journal", topic_id=None),), timeout=NO_WAIT)
    )
    client, bench.client = bench.client, other
    await bench.create("journal", cleanup_policy="compact")
    gate.open()
    assert (await asked).error_code is ErrorCode.unknown_topic_or_partition
    assert end_offset(bench) == 0
    client.close()


@on_broker()
async def test_a_batch_is_appended_in_the_leader_epoch_of_that_time(bench: Bench) -> None:
    await bench.create("journal", cleanup_policy="compact")
    gate = Gate(bench)
    asked = asyncio.create_task(bench.produce("journal", records=long_batch(bench)))
    await until(lambda: gate.waiting == 1)
    hosted = bench.services.partitions.find_replica("journal", None, 0)
    hosted.lead(
        PartitionLeader(
            hosted.log.offsets,
            hosted.log.producers,
            hosted.log.epochs,
            leader_epoch=5,
            high_watermark=0,
            local_id=1,
            replica_ids=[1],
            isr=[1],
            settings=hosted.leader.settings,
            now_ms=bench.world.clock.now_ms(),
        )
    )
    gate.open()
    assert (await asked).error_code is ErrorCode.none
    assert read_header(hosted.log.segments.active.file.read_at(0, HEADER_SIZE)).partition_leader_epoch == 5


@on_broker()
async def test_a_long_batch_without_acks_is_appended(bench: Bench) -> None:
    await bench.create("journal", cleanup_policy="compact")
    ignored = asyncio.create_task(bench.ask(produce_request("journal", long_batch(bench), acks=0)))
    await until(lambda: end_offset(bench) == 2_000)
    ignored.cancel()


# -- ottla.record.validation


@on_broker()
async def test_a_wrong_record_count_is_found_by_full_validation_and_in_a_small_batch(bench: Bench) -> None:
    await bench.create("journal")
    small = with_bad_count(bench.batch(b"a", b"b"))
    large = with_bad_count(bench.batch(*[b"v"] * 200))
    packed = with_bad_count(bench.batch(b"a", b"b", codec=LZ4))
    assert (await bench.produce("journal", records=small)).error_code is ErrorCode.invalid_record
    for records in (large, packed):
        assert (await bench.produce("journal", records=records)).error_code is ErrorCode.none
    await bench.configure(ResourceType.TOPIC, "journal", ottla_record_validation="full")
    for records in (small, large, packed):
        assert (await bench.produce("journal", records=records)).error_code is ErrorCode.invalid_record
    honest = bench.batch(b"a", b"b", codec=GZIP)
    assert (await bench.produce("journal", records=honest)).error_code is ErrorCode.none


@on_broker(ottla_record_validation="full")
async def test_the_brokers_validation_applies_to_topics_that_do_not_set_it(bench: Bench) -> None:
    await bench.create("strict")
    await bench.create("lenient", ottla_record_validation="quick")
    packed = with_bad_count(bench.batch(b"a", b"b", codec=LZ4))
    assert (await bench.produce("strict", records=packed)).error_code is ErrorCode.invalid_record
    assert (await bench.produce("lenient", records=packed)).error_code is ErrorCode.none


@on_broker(ottla_record_validation="full")
async def test_a_wrong_maximum_timestamp_is_corrected_so_that_lookups_by_time_find_the_record(
    bench: Bench,
) -> None:
    await bench.create("journal")
    now_ms = bench.world.clock.now_ms()
    await bench.produce("journal", records=with_header(bench.batch(b"v"), max_timestamp=5))
    answer = (await bench.ask(list_offsets(now_ms))).topics[0].partitions[0]
    assert (answer.error_code, answer.offset, answer.timestamp) == (ErrorCode.none, 0, now_ms)


# -- ListOffsets


def list_offsets(*timestamps: int) -> ListOffsetsRequest:
    """For the same partition, as often as there are timestamps."""
    wanted = tuple(ListOffsetsPartition(partition_index=0, timestamp=timestamp) for timestamp in timestamps)
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=(ListOffsetsTopic(name="journal", partitions=wanted),),
        timeout=NO_WAIT,
    )


@on_broker()
async def test_a_partition_named_twice_in_list_offsets_is_rejected(bench: Bench) -> None:
    await bench.create("journal")
    answers = (await bench.ask(list_offsets(0, 0, -1))).topics[0].partitions
    assert [answer.error_code for answer in answers] == [ErrorCode.invalid_request] * 3


@on_broker()
async def test_a_topic_may_be_deleted_while_its_records_are_searched(bench: Bench) -> None:
    await bench.create("journal")
    await bench.produce("journal", b"v")
    gate = Gate(bench)
    asked = asyncio.create_task(bench.ask(list_offsets(0)))
    await until(lambda: gate.waiting == 1)
    other = bench.new_client("other")
    await other.request(
        DeleteTopicsRequest(topics=(DeleteTopicState(name="journal", topic_id=None),), timeout=NO_WAIT)
    )
    gate.open()
    assert (await asked).topics[0].partitions[0].error_code is ErrorCode.unknown_topic_or_partition
    other.close()
