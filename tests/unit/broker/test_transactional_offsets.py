"""TxnOffsetCommit while the group moves, or while the transaction ends."""

import asyncio
from typing import Any

import pytest
from tests.unit.broker.broker_bench import Bench, until
from tests.unit.broker.roles import lead_alone, step_down
from tests.unit.broker.transaction_bench import TransactionalProducer, committed_offset, on_small_broker

from ottla.broker.handlers import k28_txn_offset_commit
from ottla.broker.promise import Promise
from ottla.core.coordination import Command
from ottla.core.partition.leader import TransactionMarker
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition
from ottla.protocol.api_keys import ApiKey


class HeldVerification:
    """Takes the place of `verify_partitions`: the coordinator responds when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._promises: list[Promise[dict[TopicPartition, KafkaError]]] = []
        monkeypatch.setattr(k28_txn_offset_commit, "verify_partitions", self._verify)

    def _verify(self, *asked: Any) -> Promise[dict[TopicPartition, KafkaError]]:
        self._promises.append(Promise())
        return self._promises[-1]

    async def until_asked(self, times: int = 1) -> None:
        await until(lambda: len(self._promises) == times)

    def succeed(self) -> None:
        for promise in self._promises:
            promise.complete({})


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize("leads_again", [False, True])
def test_offsets_whose_group_moves_during_the_verification_get_not_coordinator(
    version: int, leads_again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    @on_small_broker()
    async def run(bench: Bench) -> None:
        await bench.create("journal")
        producer = TransactionalProducer(bench)
        await producer.init()
        await producer.send_offset("g", "journal", 1)
        await producer.commit()
        runtime = bench.services.groups.get().runtimes.for_key("g")
        assert runtime is not None
        hosted = runtime.hosted
        verification = HeldVerification(monkeypatch)
        committing = asyncio.create_task(producer.commit_offset("g", "journal", 7, version))
        await verification.until_asked()
        step_down(bench, *hosted.topic_partition)
        hosted.truncate(0, bench.world.clock.now_ms())
        if leads_again:
            lead_alone(bench, *hosted.topic_partition)
        verification.succeed()
        assert await committing is ErrorCode.not_coordinator

    run()


@pytest.mark.parametrize("version", [4, 5])
def test_offsets_are_accepted_if_another_request_has_opened_the_transaction_meanwhile(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a connection is lost: the retry is verified beside the first request."""

    @on_small_broker()
    async def run(bench: Bench) -> None:
        await bench.create("journal")
        await bench.services.groups.get().find_coordinator("g")
        producer = TransactionalProducer(bench)
        await producer.init()
        retry = TransactionalProducer(bench, client=bench.new_client("other"))
        retry.producer_id, retry.epoch = producer.producer_id, producer.epoch
        verification = HeldVerification(monkeypatch)
        committing = [
            asyncio.create_task(each.commit_offset("g", "journal", 7, version)) for each in (producer, retry)
        ]
        await verification.until_asked(2)
        verification.succeed()
        assert await asyncio.gather(*committing) == [ErrorCode.none] * 2

    run()


async def commit_many(producer: TransactionalProducer, version: int) -> set[ErrorCode]:
    """Commits so many offsets that they take several slices."""
    partition = {"partition_index": 0, "committed_leader_epoch": -1, "committed_metadata": ""}
    partitions = [partition | {"committed_offset": offset} for offset in range(2500)]
    topics = [{"name": "journal", "partitions": partitions}]
    response = await producer.ask(ApiKey.TXN_OFFSET_COMMIT, version, group_id="g", topics=topics)
    return {part.error_code for part in response.topics[0].partitions}


@pytest.mark.parametrize("version_2", [False, True])
def test_very_many_offsets_are_committed_with_their_transaction(version_2: bool) -> None:
    @on_small_broker()
    async def run(bench: Bench) -> None:
        await bench.create("journal")
        producer = TransactionalProducer(bench, version_2=version_2)
        await producer.init()
        await producer.find(0, "g")
        if not version_2:
            await producer.add_offsets("g")
        assert await commit_many(producer, 5 if version_2 else 4) == {ErrorCode.none}
        await producer.commit()
        assert await committed_offset(bench, "g", "journal", require_stable=True) == 2499

    run()


@pytest.mark.parametrize("was_open", [False, True])
@pytest.mark.parametrize(
    ("version", "epochs", "transaction_version", "code"),
    [
        (3, 0, 0, ErrorCode.invalid_txn_state),
        (4, 0, 1, ErrorCode.invalid_txn_state),
        (4, 1, 0, ErrorCode.invalid_producer_epoch),  # aborted by the coordinator
        (5, 1, 2, ErrorCode.invalid_producer_epoch),
    ],
)
def test_a_transaction_that_ends_between_two_slices_is_not_opened_again(
    version: int,
    epochs: int,
    transaction_version: int,
    code: ErrorCode,
    was_open: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @on_small_broker()
    async def run(bench: Bench) -> None:
        await bench.create("journal")
        producer = TransactionalProducer(bench)
        await producer.init()
        await producer.find(0, "g")
        await producer.add_offsets("g")
        if was_open:
            assert await producer.commit_offset("g", "journal", 7, version) is ErrorCode.none
        groups = bench.services.groups.get()
        runtime = groups.runtimes.for_key("g")
        assert runtime is not None
        shard, submit, submitted = runtime.shard, groups.submit, []

        def submit_and_end(group_id: str, command: Command[Any]) -> Promise[Any]:
            submitted.append(command)
            result = submit(group_id, command)
            if len(submitted) == 1:
                epoch = producer.epoch + epochs
                runtime.complete_transaction(
                    TransactionMarker(producer.producer_id, epoch, False, 0, transaction_version)
                )
            return result

        monkeypatch.setattr(groups, "submit", submit_and_end)
        assert await commit_many(producer, version) == {code}
        assert len(submitted) == 1
        assert not runtime.hosted.log.producers.has_open_transaction(producer.producer_id)
        assert runtime.shard is shard  # a client's error does not reload the group's shard

    run()
