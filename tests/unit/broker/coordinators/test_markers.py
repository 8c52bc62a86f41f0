"""The markers of a transaction reach every partition, whatever fails meanwhile."""

import asyncio
import logging
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.broker.broker_bench import Bench, until
from tests.unit.broker.group_bench import message
from tests.unit.broker.transaction_bench import (
    TransactionalProducer,
    committed_offset,
    fetch_committed,
    on_small_broker,
    read_committed,
)

import ottla.broker.coordinators.shard_runtime as runtime_module
from ottla.broker.coordinators.markers import TransactionMarkers
from ottla.broker.coordinators.shard_runtime import RuntimeState, ShardRuntime
from ottla.broker.hosted_partition import HostedPartition
from ottla.broker.partition_flush import flush_partition
from ottla.core.partition.leader import AppendPlan, TransactionMarker
from ottla.core.transactions.commands import DescribedTransaction, DescribeTransaction
from ottla.model.config import ResourceType
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition
from ottla.protocol.api_keys import ApiKey

both_protocols = pytest.mark.parametrize("version_2", [True, False], ids=["version 2", "version 0"])


async def described(bench: Bench, transactional_id: str = "tx") -> DescribedTransaction:
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    command = DescribeTransaction(transactional_id=transactional_id)
    bench.services.transactions.get().submit(transactional_id, command).subscribe(
        answer.set_result, answer.set_exception
    )
    transaction = await answer
    assert isinstance(transaction, DescribedTransaction)
    return transaction


def hosted(bench: Bench, topic: str, partition: int = 0) -> HostedPartition:
    return bench.services.partitions.find_replica(topic, None, partition)


def has_open_transaction(bench: Bench, topic: str, partition: int = 0) -> bool:
    return hosted(bench, topic, partition).log.producers.first_unstable_offset() is not None


def all_loaded(bench: Bench) -> bool:
    runtimes = [*bench.services.transactions.get().runtimes, *bench.services.groups.get().runtimes]
    return all(runtime.state is RuntimeState.ACTIVE for runtime in runtimes)


class RejectedMarkers:
    """Rejects markers for the partitions in `partitions`, which the test may change."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, code: ErrorCode, *partitions: TopicPartition) -> None:
        self.partitions = set(partitions)
        self.attempts: list[TopicPartition] = []
        append_marker = HostedPartition.append_marker

        def reject(hosted: HostedPartition, marker: TransactionMarker, now_ms: int) -> AppendPlan:
            self.attempts.append(hosted.topic_partition)
            if hosted.topic_partition in self.partitions:
                raise KafkaError(code, "rejected by the test")
            return append_marker(hosted, marker, now_ms)

        monkeypatch.setattr(HostedPartition, "append_marker", reject)


@both_protocols
def test_the_transaction_is_complete_when_the_producer_gets_the_response_to_its_commit(
    version_2: bool,
) -> None:
    @on_small_broker()
    async def run(bench: Bench) -> None:
        await bench.create("journal", 3)
        producer = TransactionalProducer(bench, version_2=version_2)
        await producer.init()
        for partition in range(3):
            await producer.send("journal", b"a", partition=partition)
        assert (await described(bench)).state == "Ongoing"
        await producer.commit()
        assert await described(bench) == DescribedTransaction(
            "tx",
            "CompleteCommit",
            60_000,
            (await described(bench)).start_ms,
            producer.producer_id,
            producer.epoch,
            (),
        )
        assert not any(has_open_transaction(bench, "journal", partition) for partition in range(3))

    run()


@both_protocols
def test_a_coordinator_that_is_killed_between_prepare_and_complete_finishes_after_its_restart(
    version_2: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    @on_small_broker(started=False)
    async def run(bench: Bench) -> None:
        await bench.start()
        topic_id = await bench.create("journal", 2)
        producers = [
            TransactionalProducer(bench, name, version_2=version_2) for name in ("committed", "aborted")
        ]
        for producer in producers:
            await producer.init()
            await producer.send("journal", producer.transactional_id.encode())
            await producer.send("journal", producer.transactional_id.encode(), partition=1)
            await producer.send_offset(producer.transactional_id, "journal", 5)
        monkeypatch.setattr(TransactionMarkers, "write", lambda *_: None)
        await producers[0].commit()
        await producers[1].abort()
        assert (await described(bench, "committed")).state == "PrepareCommit"
        assert await read_committed(bench, topic_id) == []
        await bench.kill()
        monkeypatch.undo()
        bench.client = bench.new_client("after")
        await bench.start()
        await until(lambda: all_loaded(bench) and not has_open_transaction(bench, "journal", 1))
        await until(lambda: not has_open_transaction(bench, "journal"))
        assert await read_committed(bench, topic_id) == [b"committed"]
        assert await read_committed(bench, topic_id, partition=1) == [b"committed"]
        while (await described(bench, "aborted")).state != "CompleteAbort":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        while (await described(bench, "committed")).state != "CompleteCommit":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert await committed_offset(bench, "committed", "journal", require_stable=True) == 5
        assert await committed_offset(bench, "aborted", "journal", require_stable=True) == -1
        await producers[0].send("journal", b"next")
        await producers[0].commit()
        assert await read_committed(bench, topic_id) == [b"committed", b"next"]
        await bench.stop()

    run()


@both_protocols
def test_markers_that_were_written_before_the_crash_are_not_written_to_the_wrong_transaction(
    version_2: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One partition has its marker, the other not yet: after the restart both are written again."""

    @on_small_broker(started=False)
    async def run(bench: Bench) -> None:
        await bench.start()
        topic_id = await bench.create("journal", 2)
        producer = TransactionalProducer(bench, version_2=version_2)
        await producer.init()
        await producer.send("journal", b"a")
        await producer.send("journal", b"b", partition=1)
        RejectedMarkers(monkeypatch, ErrorCode.not_enough_replicas, TopicPartition("journal", 1))
        await producer.commit()
        assert not has_open_transaction(bench, "journal")
        assert has_open_transaction(bench, "journal", 1)
        await bench.kill()
        monkeypatch.undo()
        bench.client = bench.new_client("after")
        await bench.start()
        await until(lambda: all_loaded(bench) and not has_open_transaction(bench, "journal", 1))
        assert (await described(bench)).state == "CompleteCommit"
        assert await read_committed(bench, topic_id) == [b"a"]
        assert await read_committed(bench, topic_id, partition=1) == [b"b"]
        # The new coordinator does not know that the first has it: it writes a second marker, which has no effect.
        assert hosted(bench, "journal").log.log_end_offset == 3
        await bench.stop()

    run()


@pytest.mark.parametrize("code", [ErrorCode.not_enough_replicas, ErrorCode.kafka_storage_error])
def test_a_marker_is_retried_until_its_partition_accepts_it(
    code: ErrorCode, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    @on_small_broker()
    async def run(bench: Bench) -> None:
        topic_id = await bench.create("journal", 2)
        producer = TransactionalProducer(bench)
        await producer.init()
        await producer.send("journal", b"a")
        await producer.send("journal", b"b", partition=1)
        rejected_markers = RejectedMarkers(monkeypatch, code, TopicPartition("journal", 1))
        with caplog.at_level(logging.WARNING):
            await producer.commit()
        assert await read_committed(bench, topic_id) == [b"a"]  # the other partition has its marker
        assert (await described(bench)).partitions == (TopicPartition("journal", 1),)
        assert (await producer.produce("journal", b"c")).error_code is ErrorCode.concurrent_transactions
        await asyncio.sleep(60)
        assert 50 < len(rejected_markers.attempts) < 100  # with a backoff that grows to a second
        assert rejected_markers.attempts.count(TopicPartition("journal", 0)) == 1
        rejected_markers.partitions.clear()
        await until(lambda: not has_open_transaction(bench, "journal", 1))
        assert await read_committed(bench, topic_id, partition=1) == [b"b"]
        assert (await described(bench)).state == "CompleteCommit"
        (warning,) = [record.getMessage() for record in caplog.records]
        assert "'tx'" in warning
        assert "journal-1" in warning

    run()


def test_a_deleted_topic_does_not_delay_a_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    @on_small_broker()
    async def run(bench: Bench) -> None:
        await bench.create("journal")
        await bench.create("doomed")
        producer = TransactionalProducer(bench)
        await producer.init()
        await producer.send("journal", b"a")
        await producer.send("doomed", b"b")
        RejectedMarkers(monkeypatch, ErrorCode.kafka_storage_error, TopicPartition("doomed", 0))
        await producer.commit()
        assert (await described(bench)).state == "PrepareCommit"
        delete = message(
            ApiKey.DELETE_TOPICS,
            6,
            topics=[{"name": "doomed", "topic_id": None}],
            timeout=timedelta(seconds=1),
        )
        assert (await bench.ask(delete)).responses[0].error_code is ErrorCode.none
        await asyncio.sleep(2)
        assert (await described(bench)).state == "CompleteCommit"

    run()


def test_a_fenced_coordinator_leaves_the_transaction_to_the_other_coordinator(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    @on_small_broker()
    async def run(bench: Bench) -> None:
        await bench.create("journal")
        producer = TransactionalProducer(bench)
        await producer.init()
        await producer.send("journal", b"a")
        rejected_markers = RejectedMarkers(
            monkeypatch, ErrorCode.transaction_coordinator_fenced, TopicPartition("journal", 0)
        )
        with caplog.at_level(logging.ERROR):
            await producer.commit()
        await asyncio.sleep(10)
        assert len(rejected_markers.attempts) == 1
        assert "another coordinator ends the transaction of 'tx'" in caplog.text

    run()


@both_protocols
def test_with_flush_messages_a_marker_is_committed_when_it_is_flushed(version_2: bool) -> None:
    @on_small_broker()
    async def run(bench: Bench) -> None:
        topic_id = await bench.create("journal", flush_messages="1")
        producer = TransactionalProducer(bench, version_2=version_2)
        await producer.init()
        await producer.send("journal", b"a")
        reader = bench.new_client("reader")
        waiting = asyncio.create_task(
            fetch_committed(bench, topic_id, max_wait=timedelta(minutes=5), client=reader)
        )
        await producer.commit()
        assert (await waiting).last_stable_offset == 2
        while (await described(bench)).state != "CompleteCommit":  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert await read_committed(bench, topic_id) == [b"a"]

    run()


def test_a_shard_that_is_loaded_again_writes_its_markers_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    @on_small_broker()
    async def run(bench: Bench) -> None:
        topic_id = await bench.create("journal")
        producer = TransactionalProducer(bench)
        await producer.init()
        await producer.send("journal", b"a")
        rejected_markers = RejectedMarkers(
            monkeypatch, ErrorCode.not_enough_replicas, TopicPartition("journal", 0)
        )
        await producer.commit()
        runtime = bench.services.transactions.get().runtimes.for_key("tx")
        assert runtime is not None

        def broken(*_: object) -> Any:
            raise ZeroDivisionError

        monkeypatch.setattr(type(runtime.shard), "decide", broken)
        runtime.submit(DescribeTransaction(transactional_id="tx"))
        monkeypatch.undo()
        rejected_markers = RejectedMarkers(monkeypatch, ErrorCode.not_enough_replicas)
        await until(lambda: not has_open_transaction(bench, "journal"))
        await asyncio.sleep(5)
        assert len(rejected_markers.attempts) == 1  # the retries of the discarded shard have ended
        assert await read_committed(bench, topic_id) == [b"a"]
        assert (await described(bench)).state == "CompleteCommit"

    with caplog.at_level(logging.CRITICAL):
        run()


@on_small_broker(
    directories=("/one", "/two", "/meta"), metadata_log_dir="/meta", log_dirs="/one,/two", started=False
)
async def test_a_partition_whose_disk_fails_with_the_marker_has_it_after_the_restart(bench: Bench) -> None:
    await bench.start()
    topic_id = await bench.create("journal", 6, flush_messages="1")
    producer = TransactionalProducer(bench)
    await producer.init()
    runtime = bench.services.transactions.get().runtimes.for_key("tx")
    assert runtime is not None
    # A partition on another disk than the coordinator's log.
    directory_of = bench.services.log_dirs.directory_of
    home = directory_of(runtime.hosted.topic_partition)
    sick, sound = (
        next(
            index for index in range(6) if (directory_of(TopicPartition("journal", index)) == home) is is_home
        )
        for is_home in (False, True)
    )
    failing = directory_of(TopicPartition("journal", sick))
    assert failing is not None
    for partition in (sick, sound):
        await producer.send("journal", b"a", partition=partition)
    bench.disk.fail(failing, operations=frozenset({"sync"}))  # the marker is appended, but cannot be flushed
    await producer.commit()
    await until(lambda: any(each.failure is not None for each in bench.services.partitions))
    await asyncio.sleep(5)
    assert (await described(bench)).partitions == (TopicPartition("journal", sick),)
    bench.disk.heal()
    await bench.stop()
    bench.client = bench.new_client("after")
    await bench.start()
    await until(lambda: all_loaded(bench) and not has_open_transaction(bench, "journal", sick))
    assert await read_committed(bench, topic_id, partition=sick) == [b"a"]
    while (await described(bench)).state != "CompleteCommit":  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    await bench.stop()


def test_markers_are_written_even_if_the_outcome_takes_long_to_be_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @on_small_broker(request_timeout_ms="1000")
    async def run(bench: Bench) -> None:
        topic_id = await bench.create("journal")
        producer = TransactionalProducer(bench)
        await producer.init()
        await producer.send("journal", b"a")
        name = "__transaction_state"
        assert await bench.configure(ResourceType.TOPIC, name, flush_messages="1") is ErrorCode.none
        released = asyncio.Event()

        async def hold_the_flush(*args: Any) -> None:
            await released.wait()
            await flush_partition(*args)

        monkeypatch.setattr(runtime_module, "flush_partition", hold_the_flush)
        assert await producer.end(commit=True) is ErrorCode.coordinator_not_available
        await asyncio.sleep(5)
        assert has_open_transaction(bench, "journal")
        released.set()
        await until(lambda: not has_open_transaction(bench, "journal"))
        assert await producer.end(commit=True) is ErrorCode.none  # the retry gets the response
        assert await read_committed(bench, topic_id) == [b"a"]

    run()


# -- time


@both_protocols
def test_a_transaction_that_is_open_for_too_long_is_aborted(version_2: bool) -> None:
    @on_small_broker()
    async def run(bench: Bench) -> None:
        topic_id = await bench.create("journal")
        producer = TransactionalProducer(bench, version_2=version_2)
        await producer.init(timedelta(seconds=10))
        await producer.send("journal", b"slow")
        await asyncio.sleep(9)
        assert has_open_transaction(bench, "journal")
        await asyncio.sleep(1.1)
        assert not has_open_transaction(bench, "journal")
        assert (await described(bench)).state == "CompleteAbort"
        assert (await producer.produce("journal", b"late")).error_code is ErrorCode.invalid_producer_epoch
        assert await producer.end(commit=True) is not ErrorCode.none
        assert await read_committed(bench, topic_id) == []
        assert await producer.init() is ErrorCode.none
        await producer.send("journal", b"again")
        await producer.commit()
        assert await read_committed(bench, topic_id) == [b"again"]

    run()


@on_small_broker(started=False)
async def test_a_transaction_times_out_while_the_broker_is_down(bench: Bench) -> None:
    await bench.start()
    await bench.create("journal")
    producer = TransactionalProducer(bench)
    await producer.init(timedelta(seconds=10))
    await producer.send("journal", b"slow")
    await bench.stop()
    await asyncio.sleep(30)
    bench.client = bench.new_client("after")
    await bench.start()
    await until(lambda: all_loaded(bench) and not has_open_transaction(bench, "journal"))
    assert (await described(bench)).state == "CompleteAbort"
    await bench.stop()


# -- offsets


@both_protocols
def test_offsets_in_a_transaction_are_pending_until_it_is_committed(version_2: bool) -> None:
    @on_small_broker()
    async def run(bench: Bench) -> None:
        await bench.create("journal")
        producer = TransactionalProducer(bench, version_2=version_2)
        await producer.init()
        await producer.send_offset("g", "journal", 5)
        assert await committed_offset(bench, "g", "journal") == -1
        unstable = await committed_offset(bench, "g", "journal", require_stable=True)
        assert unstable is ErrorCode.unstable_offset_commit
        await producer.commit()
        assert await committed_offset(bench, "g", "journal", require_stable=True) == 5

    run()


@both_protocols
def test_offsets_of_an_aborted_transaction_are_dropped(version_2: bool) -> None:
    @on_small_broker()
    async def run(bench: Bench) -> None:
        await bench.create("journal")
        producer = TransactionalProducer(bench, version_2=version_2)
        await producer.init()
        await producer.send_offset("g", "journal", 5)
        await producer.commit()
        await producer.send_offset("g", "journal", 9)
        await producer.abort()
        assert await committed_offset(bench, "g", "journal", require_stable=True) == 5

    run()


@both_protocols
def test_offsets_and_their_outcome_survive_a_restart(version_2: bool) -> None:
    @on_small_broker(started=False)
    async def run(bench: Bench) -> None:
        await bench.start()
        await bench.create("journal")
        producer = TransactionalProducer(bench, version_2=version_2)
        await producer.init()
        await producer.send_offset("g", "journal", 5)
        await producer.commit()
        await producer.send_offset("g", "journal", 9)
        for committed in (False, True):
            await bench.kill()
            bench.client = bench.new_client(f"after-{committed}")
            await bench.start()
            await until(lambda: all_loaded(bench))
            assert await committed_offset(bench, "g", "journal") == (9 if committed else 5)
            if not committed:
                await producer.commit()
        await bench.stop()

    run()


def test_a_group_that_is_still_loading_gets_its_marker_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    @on_small_broker()
    async def run(bench: Bench) -> None:
        await bench.create("journal")
        producer = TransactionalProducer(bench)
        await producer.init()
        await producer.send_offset("g", "journal", 5)
        runtime = bench.services.groups.get().runtimes.for_key("g")
        assert isinstance(runtime, ShardRuntime)
        runtime.state = RuntimeState.LOADING
        await producer.commit()
        assert (await described(bench)).state == "PrepareCommit"
        runtime.state = RuntimeState.ACTIVE
        await asyncio.sleep(1)
        assert (await described(bench)).state == "CompleteCommit"
        assert await committed_offset(bench, "g", "journal", require_stable=True) == 5

    run()
