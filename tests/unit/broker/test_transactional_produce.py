"""Records in transactions: who may write them, and what a read-committed consumer sees of them."""

import asyncio
from collections.abc import Iterable
from datetime import timedelta

import pytest
from kio.schema.list_offsets.v11.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.unit.broker.broker_bench import Bench
from tests.unit.broker.group_bench import message
from tests.unit.broker.transaction_bench import (
    TransactionalProducer,
    fetch_committed,
    on_small_broker,
    read_committed,
)

from ottla.broker.coordinators.markers import TransactionMarkers
from ottla.model.config import ResourceType
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.protocol.api_keys import ApiKey

both_protocols = pytest.mark.parametrize("version_2", [True, False], ids=["version 2", "version 0"])


async def list_latest(bench: Bench, topic: str, isolation_level: int) -> int:
    request = ListOffsetsRequest(
        replica_id=-1,
        timeout=timedelta(),
        isolation_level=isolation_level,
        topics=(
            ListOffsetsTopic(name=topic, partitions=(ListOffsetsPartition(partition_index=0, timestamp=-1),)),
        ),
    )
    (answer,) = (await bench.ask(request)).topics[0].partitions
    offset: int = answer.offset
    return offset


# -- what is seen


@both_protocols
def test_a_read_committed_consumer_sees_a_transaction_whole_or_not_at_all(version_2: bool) -> None:
    @on_small_broker()
    async def run(bench: Bench) -> None:
        topic_id = await bench.create("journal", 2)
        producer = TransactionalProducer(bench, version_2=version_2)
        assert await producer.init() is ErrorCode.none
        await producer.send("journal", b"a")
        await producer.send("journal", b"b", b"c", partition=1)
        for partition in (0, 1):
            assert await read_committed(bench, topic_id, partition=partition) == []
        await producer.commit()
        assert await read_committed(bench, topic_id) == [b"a"]
        assert await read_committed(bench, topic_id, partition=1) == [b"b", b"c"]

    run()


@both_protocols
def test_no_record_of_an_aborted_transaction_is_seen(version_2: bool) -> None:
    @on_small_broker()
    async def run(bench: Bench) -> None:
        topic_id = await bench.create("journal")
        producer = TransactionalProducer(bench, version_2=version_2)
        await producer.init()
        await producer.send("journal", b"dropped")
        await bench.produce("journal", b"plain")
        await producer.abort()
        await producer.send("journal", b"kept")
        await producer.commit()
        assert await read_committed(bench, topic_id) == [b"plain", b"kept"]
        answer = await fetch_committed(bench, topic_id)
        (aborted,) = answer.aborted_transactions
        assert (aborted.producer_id, aborted.first_offset) == (producer.producer_id, 0)

    run()


@both_protocols
def test_the_last_stable_offset_with_overlapping_transactions(version_2: bool) -> None:
    """A B T1 C D T1 E F T2 G H commit-of-T1 I J: high watermark 14, last stable offset 8."""

    @on_small_broker()
    async def run(bench: Bench) -> None:
        topic_id = await bench.create("journal")
        first = TransactionalProducer(bench, "first", version_2=version_2)
        second = TransactionalProducer(bench, "second", version_2=version_2)
        await first.init()
        await second.init()
        for value in (b"A", b"B", b"T1", b"C", b"D", b"T1", b"E", b"F", b"T2", b"G", b"H", None, b"I", b"J"):
            match value:
                case None:
                    await first.commit()
                case b"T1":
                    await first.send("journal", value)
                case b"T2":
                    await second.send("journal", value)
                case _:
                    await bench.produce("journal", value)
        answer = await fetch_committed(bench, topic_id)
        assert (answer.high_watermark, answer.last_stable_offset) == (14, 8)
        assert await read_committed(bench, topic_id) == [b"A", b"B", b"T1", b"C", b"D", b"T1", b"E", b"F"]
        assert (await list_latest(bench, "journal", 0), await list_latest(bench, "journal", 1)) == (14, 8)
        uncommitted = await bench.read(topic_id)
        assert uncommitted[8] == b"T2"
        assert uncommitted[-1] == b"J"
        await second.abort()
        assert await list_latest(bench, "journal", 1) == 15
        assert await read_committed(bench, topic_id, 8) == [b"G", b"H", b"I", b"J"]

    run()


@on_small_broker()
async def test_a_fetch_lists_only_the_aborted_transactions_of_its_records(bench: Bench) -> None:
    topic_id = await bench.create("journal")
    producers = [TransactionalProducer(bench, name) for name in ("a", "b")]
    for producer in producers:
        await producer.init()
    first, second = producers
    await first.send("journal", b"0")
    await second.send("journal", b"1")
    await first.abort()  # 2
    await bench.produce("journal", b"3")
    await second.abort()  # 4
    await bench.produce("journal", b"5")
    await first.send("journal", b"6")
    await first.abort()  # 7

    async def aborted(offset: int, max_bytes: int = 1 << 20) -> list[tuple[int, int]]:
        answer = await fetch_committed(bench, topic_id, offset, partition_max_bytes=max_bytes)
        return [(each.producer_id, each.first_offset) for each in answer.aborted_transactions]

    of_first, of_second, later = (
        (first.producer_id, 0),
        (second.producer_id, 1),
        (first.producer_id, 6),
    )
    assert await aborted(0) == [of_first, of_second, later]
    assert await aborted(0, max_bytes=1) == [of_first]
    assert await aborted(3) == [of_second, later]
    assert await aborted(5) == [later]
    assert await aborted(5, max_bytes=1) == []
    assert await aborted(8) == []


@both_protocols
def test_a_marker_completes_a_delayed_fetch(version_2: bool) -> None:
    @on_small_broker()
    async def run(bench: Bench) -> None:
        topic_id = await bench.create("journal")
        producer = TransactionalProducer(bench, version_2=version_2)
        await producer.init()
        await producer.send("journal", b"a")
        reader = bench.new_client("reader")
        waiting = asyncio.create_task(
            fetch_committed(bench, topic_id, max_wait=timedelta(minutes=5), client=reader)
        )
        await asyncio.sleep(1)
        assert not waiting.done()
        before = bench.world.clock.now_ms()
        await producer.commit()
        answer = await waiting
        assert answer.last_stable_offset == 2
        assert bench.world.clock.now_ms() - before < 1000

    run()


# -- who may write


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (3, ErrorCode.invalid_txn_state),
        (10, ErrorCode.invalid_txn_state),
        (11, ErrorCode.transaction_abortable),
        (12, ErrorCode.none),
    ],
)
def test_records_for_a_partition_that_an_older_client_did_not_add_are_rejected(
    version: int, expected: ErrorCode
) -> None:
    @on_small_broker()
    async def run(bench: Bench) -> None:
        topic_id = await bench.create("journal", 2)
        producer = TransactionalProducer(bench)
        await producer.init()
        assert await producer.add("journal", 1) is ErrorCode.none
        answer = await producer.produce("journal", b"a", version=version)
        assert answer.error_code is expected
        assert await bench.read(topic_id) == ([b"a"] if expected is ErrorCode.none else [])

    run()


@on_small_broker(transaction_partition_verification_enable="false")
async def test_without_verification_records_of_older_clients_are_accepted(bench: Bench) -> None:
    topic_id = await bench.create("journal")
    producer = TransactionalProducer(bench, version_2=False)
    await producer.init()
    assert (await producer.produce("journal", b"a")).error_code is ErrorCode.none
    assert await bench.read(topic_id) == [b"a"]


@on_small_broker()
async def test_verification_can_be_disabled_while_the_broker_runs(bench: Bench) -> None:
    await bench.create("journal")
    producer = TransactionalProducer(bench, version_2=False)
    await producer.init()
    assert (await producer.produce("journal", b"a")).error_code is ErrorCode.transaction_abortable
    name = "transaction_partition_verification_enable"
    assert await bench.configure(ResourceType.BROKER, "", **{name: "false"}) is ErrorCode.none
    assert (await producer.produce("journal", b"a")).error_code is ErrorCode.none


@both_protocols
def test_older_clients_must_add_the_partition_to_the_next_transaction_again(version_2: bool) -> None:
    @on_small_broker()
    async def run(bench: Bench) -> None:
        topic_id = await bench.create("journal")
        producer = TransactionalProducer(bench, version_2=version_2)
        await producer.init()
        await producer.send("journal", b"a")
        await producer.commit()
        answer = await producer.produce("journal", b"b")  # no AddPartitionsToTxn before it
        # In version 2 this starts the next transaction.
        assert answer.error_code is (ErrorCode.none if version_2 else ErrorCode.transaction_abortable)
        assert await read_committed(bench, topic_id) == [b"a"]

    run()


@pytest.mark.parametrize("version", [3, 11, 12])
def test_transactional_records_need_a_transactional_id(version: int) -> None:
    @on_small_broker()
    async def run(bench: Bench) -> None:
        topic_id = await bench.create("journal")
        producer = TransactionalProducer(bench)
        await producer.init()
        await producer.send("journal", b"a")
        records = bench.batch(
            b"b", producer_id=producer.producer_id, producer_epoch=0, base_sequence=1, transactional=True
        )
        response = await bench.ask(
            message(
                ApiKey.PRODUCE,
                version,
                transactional_id=None,
                acks=-1,
                timeout=timedelta(seconds=1),
                topic_data=[{"name": "journal", "partition_data": [{"index": 0, "records": records}]}],
            )
        )
        (answer,) = response.responses[0].partition_responses
        assert answer.error_code is ErrorCode.transactional_id_authorization_failed
        assert await bench.read(topic_id) == [b"a"]

    run()


@both_protocols
def test_non_transactional_records_may_be_sent_with_a_transactional_id(version_2: bool) -> None:
    @on_small_broker()
    async def run(bench: Bench) -> None:
        topic_id = await bench.create("journal")
        producer = TransactionalProducer(bench, version_2=version_2)
        await producer.init()
        answer = await producer.produce("journal", b"a", transactional=False)
        assert answer.error_code is ErrorCode.none
        await producer.send("journal", b"b")
        answer = await producer.produce("journal", b"c", transactional=False)
        assert answer.error_code is ErrorCode.invalid_txn_state  # its transaction is open
        assert await read_committed(bench, topic_id) == [b"a"]

    run()


@on_small_broker()
async def test_a_request_with_transactional_records_of_two_producers_is_rejected(bench: Bench) -> None:
    topic_id = await bench.create("journal", 2)
    producer = TransactionalProducer(bench)
    await producer.init()
    data = [
        {
            "index": index,
            "records": bench.batch(
                b"a", producer_id=producer.producer_id + index, producer_epoch=0, base_sequence=0,
                transactional=True,
            ),
        }
        for index in range(2)
    ]  # fmt: skip
    response = await producer.ask(
        ApiKey.PRODUCE,
        12,
        acks=-1,
        timeout=timedelta(seconds=1),
        topic_data=[{"name": "journal", "partition_data": data}],
    )
    codes = {answer.error_code for answer in response.responses[0].partition_responses}
    assert codes == {ErrorCode.invalid_producer_id_mapping}
    assert await bench.read(topic_id) == []


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"producer_id": 4711}, ErrorCode.invalid_producer_id_mapping),
        ({"producer_epoch": 5}, ErrorCode.invalid_producer_epoch),
    ],
)
@both_protocols
def test_records_of_another_producer_id_are_rejected(
    values: dict[str, int], expected: ErrorCode, version_2: bool
) -> None:
    @on_small_broker()
    async def run(bench: Bench) -> None:
        topic_id = await bench.create("journal")
        producer = TransactionalProducer(bench, version_2=version_2)
        await producer.init()
        assert (await producer.produce("journal", b"a", **values)).error_code is expected
        stranger = TransactionalProducer(bench, "unknown", version_2=version_2)
        stranger.producer_id, stranger.epoch = producer.producer_id, 0
        assert (await stranger.produce("journal", b"a")).error_code is ErrorCode.invalid_producer_id_mapping
        assert await bench.read(topic_id) == []

    run()


@both_protocols
def test_a_new_producer_fences_the_previous_one(version_2: bool) -> None:
    @on_small_broker()
    async def run(bench: Bench) -> None:
        topic_id = await bench.create("journal")
        zombie = TransactionalProducer(bench, version_2=version_2)
        await zombie.init()
        await zombie.send("journal", b"of the zombie")
        producer = TransactionalProducer(bench, version_2=version_2)
        assert (
            await producer.init() is ErrorCode.concurrent_transactions
        )  # the open transaction is aborted first
        assert await producer.init() is ErrorCode.none
        assert producer.producer_id == zombie.producer_id
        assert (await zombie.produce("journal", b"late")).error_code is ErrorCode.invalid_producer_epoch
        assert await zombie.end(commit=True) is ErrorCode.producer_fenced
        await producer.send("journal", b"kept")
        await producer.commit()
        assert await read_committed(bench, topic_id) == [b"kept"]

    run()


@both_protocols
def test_a_retried_batch_returns_its_original_offsets(version_2: bool) -> None:
    @on_small_broker()
    async def run(bench: Bench) -> None:
        topic_id = await bench.create("journal")
        producer = TransactionalProducer(bench, version_2=version_2)
        await producer.init()
        await producer.send("journal", b"a")
        answer = await producer.produce("journal", b"a", base_sequence=0)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.none, 0)
        assert await bench.read(topic_id) == [b"a"]

    run()


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (10, ErrorCode.not_enough_replicas),
        (11, ErrorCode.not_enough_replicas),
        (12, ErrorCode.concurrent_transactions),
    ],
)
def test_the_next_transaction_waits_until_the_previous_one_is_complete(
    version: int, expected: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    @on_small_broker()
    async def run(bench: Bench) -> None:
        await bench.create("journal", 2)
        producer = TransactionalProducer(bench)
        await producer.init()
        await producer.send("journal", b"a")
        monkeypatch.setattr(TransactionMarkers, "write", lambda *_: None)
        await producer.commit()
        before = bench.world.clock.now_ms()
        answer = await producer.produce("journal", b"b", partition=1, version=version)
        assert answer.error_code is expected
        waited = bench.world.clock.now_ms() - before
        assert waited >= 100 if version == 12 else waited < 100

    run()


def test_the_next_transaction_continues_as_soon_as_the_previous_one_is_complete(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @on_small_broker()
    async def run(bench: Bench) -> None:
        topic_id = await bench.create("journal", 2)
        producer = TransactionalProducer(bench)
        await producer.init()
        await producer.send("journal", b"a")
        later: list[tuple[TransactionMarkers, Iterable[TopicPartition]]] = []
        write = TransactionMarkers.write
        monkeypatch.setattr(TransactionMarkers, "write", lambda *args: later.append(args))
        await producer.commit()
        waiting = asyncio.create_task(producer.produce("journal", b"b", partition=1))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        monkeypatch.undo()
        write(*later[0])
        assert (await waiting).error_code is ErrorCode.none
        await producer.commit()
        assert await read_committed(bench, topic_id, partition=1) == [b"b"]

    run()


@pytest.mark.parametrize("version", [3, 11, 12])
def test_without_a_coordinator_the_producer_gets_a_retriable_error(version: int) -> None:
    @on_small_broker()
    async def run(bench: Bench) -> None:
        await bench.create("journal")
        producer = TransactionalProducer(bench)
        producer.producer_id, producer.epoch = 5, 0
        answer = await producer.produce("journal", b"a", version=version)
        assert answer.error_code is ErrorCode.not_enough_replicas
        if version >= 8:
            assert "NOT_COORDINATOR".lower() in answer.error_message

    run()


@on_small_broker()
async def test_an_unknown_partition_is_not_added(bench: Bench) -> None:
    await bench.create("journal")
    producer = TransactionalProducer(bench)
    await producer.init()
    answer = await producer.produce("journal", b"a", partition=9)
    assert answer.error_code is ErrorCode.unknown_topic_or_partition
    answer = await producer.produce("gone", b"a")
    assert answer.error_code is ErrorCode.unknown_topic_or_partition
    assert await producer.end(commit=True) is ErrorCode.invalid_txn_state  # no transaction was started


@pytest.mark.parametrize(
    "configs",
    [
        {"message_timestamp_type": "LogAppendTime"},
        {"cleanup_policy": "compact"},
        {"compression_type": "gzip"},
        {"segment_bytes": "1048576", "max_message_bytes": "200"},
    ],
    ids=["LogAppendTime", "compact", "gzip", "small batches"],
)
@both_protocols
def test_transactions_in_topics_with_recompression_or_log_append_time(
    configs: dict[str, str], version_2: bool
) -> None:
    @on_small_broker()
    async def run(bench: Bench) -> None:
        topic_id = await bench.create("journal", 1, **configs)
        producer = TransactionalProducer(bench, version_2=version_2)
        await producer.init()
        for value, commit in ((b"a", True), (b"b", False), (b"c", True)):
            await producer.send("journal", value)
            await (producer.commit() if commit else producer.abort())
        assert await read_committed(bench, topic_id) == [b"a", b"c"]

    run()
