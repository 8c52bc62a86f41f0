"""The requests of transactions in every version, over the wire."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from kio.static.primitive import i16
from tests.unit.broker.broker_bench import Bench, on_broker
from tests.unit.broker.group_bench import message, rejected, versions
from tests.unit.broker.transaction_bench import (
    TransactionalProducer,
    committed_offset,
    on_small_broker,
    read_committed,
    with_transactions,
)

from ottla.core.controller.commands import CreateTopics, DeleteTopics, TopicToDelete
from ottla.core.transactions import commands
from ottla.core.transactions.commands import (
    PartitionVerified,
    ProducerIdAndEpoch,
)
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.transaction_records.records import TransactionLogKey

SECOND = timedelta(seconds=1)


def fenced_in(version: int, first_with_fenced: int) -> ErrorCode:
    return ErrorCode.producer_fenced if version >= first_with_fenced else ErrorCode.invalid_producer_epoch


# -- FindCoordinator


@pytest.mark.parametrize("version", range(1, 7))
def test_find_coordinator_creates_the_topic_and_returns_this_broker(version: int) -> None:
    @on_small_broker()
    async def run(bench: Bench) -> None:
        keys = {"coordinator_keys": ("tx",), "key": "tx"}
        response = await bench.ask(message(ApiKey.FIND_COORDINATOR, version, key_type=1, **keys))
        found = response.coordinators[0] if version >= 4 else response
        assert (found.error_code, found.node_id, found.port) == (ErrorCode.none, 1, 9092)
        assert len(bench.services.metadata.image.topics["__transaction_state"].partitions) == 2

    run()


@on_broker()
async def test_the_transaction_topic_has_kafkas_partitions_and_configs(bench: Bench) -> None:
    await bench.services.transactions.get().find_coordinator("tx")
    assert len(bench.services.metadata.image.topics["__transaction_state"].partitions) == 50
    assert dict(bench.services.metadata.image.config(2, "__transaction_state")) == {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "2",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    }


# -- InitProducerId


UNSTABLE: dict[str, Any] = {"unstable_api_versions_enable": "true"}  # for version 6


def init_request(version: int, **values: Any) -> Any:
    defaults = {"transactional_id": "tx", "transaction_timeout": 7 * SECOND}
    return message(ApiKey.INIT_PRODUCER_ID, version, **(defaults | values))


@pytest.mark.parametrize("version", versions(ApiKey.INIT_PRODUCER_ID))
def test_init_producer_id_submits_a_command_to_the_coordinator(version: int) -> None:
    @on_small_broker(**UNSTABLE)
    async def run(bench: Bench) -> None:
        fake = with_transactions(bench, ProducerIdAndEpoch(12, 3))
        answer = await bench.ask(
            init_request(version, producer_id=12, producer_epoch=2, enable2_pc=True, keep_prepared_txn=True)
        )
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (ErrorCode.none, 12, 3)
        assert fake.commands == [
            commands.InitProducerId(
                transactional_id="tx",
                timeout_ms=7000,
                new_producer_id=-1,
                expected=ProducerIdAndEpoch(12, 2) if version >= 3 else None,
                enable_two_phase_commit=version >= 6,
                keep_prepared=version >= 6,
            )
        ]

    run()


@pytest.mark.parametrize("version", versions(ApiKey.INIT_PRODUCER_ID))
def test_a_fenced_init_producer_id_gets_an_error_code_that_its_version_knows(version: int) -> None:
    @on_small_broker(**UNSTABLE)
    async def run(bench: Bench) -> None:
        with_transactions(bench, rejected(ErrorCode.producer_fenced))
        answer = await bench.ask(init_request(version))
        assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
        assert answer.error_code is fenced_in(version, 4)
        with_transactions(bench, rejected(ErrorCode.concurrent_transactions))
        assert (await bench.ask(init_request(version))).error_code is ErrorCode.concurrent_transactions

    run()


@pytest.mark.parametrize("values", [{"producer_id": 5}, {"producer_epoch": 5}])
def test_init_producer_id_must_have_both_id_and_epoch_or_neither(values: dict[str, int]) -> None:
    @on_small_broker(**UNSTABLE)
    async def run(bench: Bench) -> None:
        for transactional_id in ("tx", None):
            request = init_request(6, transactional_id=transactional_id, **values)
            assert (await bench.ask(request)).error_code is ErrorCode.invalid_request

    run()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"transaction_timeout": timedelta(milliseconds=900_001)}, ErrorCode.invalid_transaction_timeout),
        ({"transaction_timeout": timedelta()}, ErrorCode.invalid_transaction_timeout),
        ({"transactional_id": ""}, ErrorCode.invalid_request),
        ({"enable2_pc": True}, ErrorCode.transactional_id_authorization_failed),
        ({"keep_prepared_txn": True}, ErrorCode.unsupported_version),
        ({"producer_id": 999, "producer_epoch": 1}, ErrorCode.none),
    ],
)
def test_init_producer_id_of_a_new_transactional_id(values: dict[str, Any], expected: ErrorCode) -> None:
    @on_small_broker(**UNSTABLE)
    async def run(bench: Bench) -> None:
        await bench.services.transactions.get().find_coordinator("tx")
        answer = await bench.ask(init_request(6, **values))
        assert answer.error_code is expected

    run()


@on_small_broker()
async def test_each_producer_gets_a_new_id_and_a_transactional_id_keeps_its_id(
    bench: Bench,
) -> None:
    producers = [TransactionalProducer(bench, f"tx-{number}") for number in range(4)]
    for producer in producers:
        assert await producer.init() is ErrorCode.none
    assert len({producer.producer_id for producer in producers}) == 4
    again = TransactionalProducer(bench, "tx-2")
    assert await again.init() is ErrorCode.none
    assert (again.producer_id, again.epoch) == (producers[2].producer_id, 1)
    plain = await bench.ask(init_request(5, transactional_id=None))
    assert plain.producer_id not in {producer.producer_id for producer in producers}


# -- AddPartitionsToTxn


def add_request(version: int, topics: list[tuple[str, tuple[int, ...]]], **values: Any) -> Any:
    named = [{"name": name, "partitions": partitions} for name, partitions in topics]
    producer = {"transactional_id": "tx", "producer_id": 12, "producer_epoch": 3}
    old = {f"v3_and_below_{name}": value for name, value in producer.items()}
    return message(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        version,
        v3_and_below_topics=named,
        transactions=[producer | {"topics": named} | values],
        **old,
    )


def added(response: Any) -> list[tuple[str, int, ErrorCode]]:
    topics = getattr(response, "results_by_topic_v3_and_below", None)
    if topics is None:
        topics = [topic for result in response.results_by_transaction for topic in result.topic_results]
    return [
        (topic.name, part.partition_index, part.partition_error_code)
        for topic in topics
        for part in topic.results_by_partition
    ]


@pytest.mark.parametrize("version", versions(ApiKey.ADD_PARTITIONS_TO_TXN))
def test_add_partitions_submits_a_command_to_the_coordinator(version: int) -> None:
    @on_small_broker()
    async def run(bench: Bench) -> None:
        await bench.create("a", 2)
        await bench.create("b")
        fake = with_transactions(bench, None)
        request = add_request(version, [("a", (1, 0)), ("b", (0,))])
        assert added(await bench.ask(request)) == [
            ("a", 1, ErrorCode.none),
            ("a", 0, ErrorCode.none),
            ("b", 0, ErrorCode.none),
        ]
        assert fake.commands == [
            commands.AddPartitions(
                transactional_id="tx",
                producer_id=12,
                producer_epoch=3,
                partitions=(TopicPartition("a", 1), TopicPartition("a", 0), TopicPartition("b", 0)),
                transaction_version=2 if version >= 4 else 0,
            )
        ]

    run()


@pytest.mark.parametrize("version", versions(ApiKey.ADD_PARTITIONS_TO_TXN))
def test_an_error_of_the_coordinator_in_add_partitions_is_that_of_every_partition(version: int) -> None:
    @on_small_broker()
    async def run(bench: Bench) -> None:
        await bench.create("a", 2)
        with_transactions(bench, rejected(ErrorCode.producer_fenced))
        codes = [code for _, _, code in added(await bench.ask(add_request(version, [("a", (0, 1))])))]
        assert codes == [fenced_in(version, 2)] * 2

    run()


@pytest.mark.parametrize("version", versions(ApiKey.ADD_PARTITIONS_TO_TXN))
def test_one_unknown_partition_fails_the_whole_add_partitions(version: int) -> None:
    @on_small_broker()
    async def run(bench: Bench) -> None:
        await bench.create("a")
        fake = with_transactions(bench, None)
        request = add_request(version, [("a", (0, 7)), ("gone", (0,))])
        assert added(await bench.ask(request)) == [
            ("a", 0, ErrorCode.operation_not_attempted),
            ("a", 7, ErrorCode.unknown_topic_or_partition),
            ("gone", 0, ErrorCode.unknown_topic_or_partition),
        ]
        assert fake.commands == []

    run()


@pytest.mark.parametrize("version", versions(ApiKey.ADD_PARTITIONS_TO_TXN))
def test_clients_may_not_add_internal_topics(version: int) -> None:
    @on_small_broker()
    async def run(bench: Bench) -> None:
        await bench.services.groups.get().find_coordinator("g")
        with_transactions(bench, None)
        ((_, _, code),) = added(await bench.ask(add_request(version, [("__consumer_offsets", (0,))])))
        assert code is (ErrorCode.none if version >= 4 else ErrorCode.topic_authorization_failed)

    run()


@pytest.mark.parametrize("version", [4, 5])
def test_brokers_verify_partitions_of_several_transactions_without_adding_them(version: int) -> None:
    @on_small_broker()
    async def run(bench: Bench) -> None:
        await bench.create("a", 2)

        def verify(command: commands.VerifyPartitions) -> Any:
            if command.transactional_id == "fenced":
                return rejected(ErrorCode.producer_fenced)
            return tuple(
                PartitionVerified(each, ErrorCode.transaction_abortable if each.partition else ErrorCode.none)
                for each in command.partitions
            )

        fake = with_transactions(bench, verify)
        topics = [{"name": "a", "partitions": (0, 1)}]
        request = message(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            version,
            transactions=[
                {"transactional_id": name, "producer_id": 1, "producer_epoch": 0, "verify_only": True, "topics": topics}
                for name in ("tx", "fenced")
            ],
        )  # fmt: skip
        response = await bench.ask(request)
        assert [result.transactional_id for result in response.results_by_transaction] == ["tx", "fenced"]
        assert [code for _, _, code in added(response)] == [
            ErrorCode.none,
            ErrorCode.transaction_abortable,
            ErrorCode.producer_fenced,
            ErrorCode.producer_fenced,
        ]
        assert all(isinstance(command, commands.VerifyPartitions) for command in fake.commands)

    run()


# -- AddOffsetsToTxn and TxnOffsetCommit


@pytest.mark.parametrize("version", versions(ApiKey.ADD_OFFSETS_TO_TXN))
def test_add_offsets_adds_the_partition_of_the_group(version: int) -> None:
    @on_small_broker()
    async def run(bench: Bench) -> None:
        fake = with_transactions(bench, None)
        request = message(
            ApiKey.ADD_OFFSETS_TO_TXN,
            version,
            transactional_id="tx",
            producer_id=12,
            producer_epoch=3,
            group_id="g",
        )
        for _ in range(2):  # the first creates the offsets topic
            assert (await bench.ask(request)).error_code is ErrorCode.none
        index = bench.services.groups.get().runtimes.partition_of("g")
        assert index is not None
        expected = commands.AddPartitions(
            transactional_id="tx",
            producer_id=12,
            producer_epoch=3,
            partitions=(TopicPartition("__consumer_offsets", index),),
        )
        assert fake.commands == [expected, expected]
        with_transactions(bench, rejected(ErrorCode.producer_fenced))
        assert (await bench.ask(request)).error_code is fenced_in(version, 2)

    run()


def delete_as_soon_as_created(bench: Bench, topic: str) -> None:
    """Another client deletes the topic as soon as the broker has created it."""
    quorum: Any = bench.services.quorum
    submit = quorum.submit

    async def submit_and_delete(command: Any) -> Any:
        created = asyncio.ensure_future(submit(command))
        if isinstance(command, CreateTopics):
            await created
            await submit(DeleteTopics((TopicToDelete(name=topic),)))
        return await created

    quorum.submit = submit_and_delete


@on_small_broker()
async def test_add_offsets_gets_an_error_if_the_offsets_topic_is_deleted_meanwhile(bench: Bench) -> None:
    with_transactions(bench, None)
    delete_as_soon_as_created(bench, "__consumer_offsets")
    fields = {"transactional_id": "tx", "producer_id": 12, "producer_epoch": 3, "group_id": "g"}
    answer = await bench.ask(message(ApiKey.ADD_OFFSETS_TO_TXN, 4, **fields))
    assert answer.error_code is ErrorCode.coordinator_not_available


@pytest.mark.parametrize(("key_type", "topic"), [(0, "__consumer_offsets"), (1, "__transaction_state")])
def test_find_coordinator_gets_an_error_if_the_topic_is_deleted_meanwhile(key_type: int, topic: str) -> None:
    @on_small_broker()
    async def run(bench: Bench) -> None:
        delete_as_soon_as_created(bench, topic)
        request = message(ApiKey.FIND_COORDINATOR, 6, key_type=key_type, coordinator_keys=("key",))
        (found,) = (await bench.ask(request)).coordinators
        assert (found.error_code, found.node_id) == (ErrorCode.coordinator_not_available, -1)

    run()


@pytest.mark.parametrize("version", versions(ApiKey.TXN_OFFSET_COMMIT))
def test_transactional_offsets_need_their_partition_in_the_transaction(version: int) -> None:
    @on_small_broker()
    async def run(bench: Bench) -> None:
        await bench.create("journal")
        await bench.services.groups.get().find_coordinator("g")
        producer = TransactionalProducer(bench)
        await producer.init()
        expected = {4: ErrorCode.transaction_abortable, 5: ErrorCode.none}.get(
            version, ErrorCode.invalid_txn_state
        )
        assert await producer.commit_offset("g", "journal", 7, version) is expected
        if version < 5:
            assert await producer.add_offsets("g") is ErrorCode.none
            assert await producer.commit_offset("g", "journal", 7, version) is ErrorCode.none
        producer.version_2 = version >= 5
        await producer.commit()
        assert await committed_offset(bench, "g", "journal", require_stable=True) == 7

    run()


@pytest.mark.parametrize("version", versions(ApiKey.TXN_OFFSET_COMMIT))
def test_transactional_offsets_of_unknown_partitions_have_an_error_each(version: int) -> None:
    @on_small_broker()
    async def run(bench: Bench) -> None:
        await bench.create("journal")
        producer = TransactionalProducer(bench)
        await producer.init()
        partitions = [
            {"partition_index": index, "committed_offset": 4, "committed_metadata": None} for index in (3, 0)
        ]
        topics = [
            {"name": "gone", "partitions": partitions[:1]},
            {"name": "journal", "partitions": partitions},
        ]
        response = await producer.ask(ApiKey.TXN_OFFSET_COMMIT, version, group_id="g", topics=topics)
        codes = [part.error_code for topic in response.topics for part in topic.partitions]
        missing = ErrorCode.unknown_topic_or_partition
        assert codes == [missing, missing, ErrorCode.not_coordinator]  # the offsets topic does not exist yet
        response = await producer.ask(ApiKey.TXN_OFFSET_COMMIT, version, group_id="g", topics=topics[:1])
        assert response.topics[0].partitions[0].error_code is missing

    run()


@pytest.mark.parametrize("version", [0, 4, 5])
def test_offsets_of_a_fenced_producer_are_rejected_and_change_nothing(version: int) -> None:
    @on_small_broker()
    async def run(bench: Bench) -> None:
        await bench.create("journal")
        await bench.services.groups.get().find_coordinator("g")
        zombie = TransactionalProducer(bench)
        await zombie.init()
        await zombie.send_offset("g", "journal", 1)
        await zombie.commit()
        producer = TransactionalProducer(bench)
        await producer.init()
        await producer.send_offset("g", "journal", 5)
        runtime = bench.services.groups.get().runtimes.for_key("g")
        assert runtime is not None
        machine = runtime.shard
        assert await zombie.commit_offset("g", "journal", 99, version) is ErrorCode.invalid_producer_epoch
        await producer.commit()
        assert await zombie.commit_offset("g", "journal", 99, version) is ErrorCode.invalid_producer_epoch
        assert await committed_offset(bench, "g", "journal", require_stable=True) == 5
        assert runtime.shard is machine  # a client's error does not reload the group's shard

    run()


@pytest.mark.parametrize("version", [3, 4, 5])
def test_offsets_are_fenced_by_the_generation_of_the_group(version: int) -> None:
    @on_small_broker()
    async def run(bench: Bench) -> None:
        await bench.create("journal")
        await bench.services.groups.get().find_coordinator("g")
        producer = TransactionalProducer(bench)
        await producer.init()
        await producer.add_offsets("g")
        code = await producer.commit_offset("g", "journal", 7, version, generation_id=3, member_id="gone")
        assert code is ErrorCode.illegal_generation
        assert await producer.commit_offset("", "journal", 7, version) is ErrorCode.invalid_group_id
        await producer.abort()

    run()


@pytest.mark.parametrize("version", versions(ApiKey.TXN_OFFSET_COMMIT))
def test_while_the_coordinator_loads_older_producers_get_coordinator_not_available(version: int) -> None:
    @on_small_broker()
    async def run(bench: Bench) -> None:
        await bench.create("journal")
        await bench.services.groups.get().find_coordinator("g")
        with_transactions(bench, rejected(ErrorCode.coordinator_load_in_progress))
        producer = TransactionalProducer(bench)
        producer.producer_id, producer.epoch = 12, 0
        code = await producer.commit_offset("g", "journal", 7, version)
        assert code is (
            ErrorCode.coordinator_load_in_progress if version >= 2 else ErrorCode.coordinator_not_available
        )

    run()


@on_small_broker(transaction_partition_verification_enable="false")
async def test_without_verification_offsets_of_older_clients_are_accepted(bench: Bench) -> None:
    await bench.create("journal")
    await bench.services.groups.get().find_coordinator("g")
    producer = TransactionalProducer(bench)
    await producer.init()
    assert await producer.commit_offset("g", "journal", 7, 3) is ErrorCode.none


# -- EndTxn


@pytest.mark.parametrize("version", versions(ApiKey.END_TXN))
def test_end_txn_submits_a_command_and_returns_the_next_id_and_epoch(version: int) -> None:
    @on_small_broker()
    async def run(bench: Bench) -> None:
        fake = with_transactions(bench, ProducerIdAndEpoch(13, 0))
        request = message(
            ApiKey.END_TXN, version, transactional_id="tx", producer_id=12, producer_epoch=3, committed=True
        )
        answer = await bench.ask(request)
        assert answer.error_code is ErrorCode.none
        if version >= 5:
            assert (answer.producer_id, answer.producer_epoch) == (13, 0)
        assert fake.commands == [
            commands.EndTransaction(
                transactional_id="tx",
                producer_id=12,
                producer_epoch=3,
                commit=True,
                new_producer_id=-1,
                transaction_version=2 if version >= 5 else 0,
            )
        ]
        with_transactions(bench, rejected(ErrorCode.producer_fenced))
        answer = await bench.ask(request)
        assert answer.error_code is fenced_in(version, 2)
        if version >= 5:
            assert (answer.producer_id, answer.producer_epoch) == (-1, -1)

    run()


@on_small_broker()
async def test_a_producer_whose_epochs_are_exhausted_gets_a_new_id(bench: Bench) -> None:
    topic_id = await bench.create("journal")
    producer = TransactionalProducer(bench)
    await producer.init()
    runtime = bench.services.transactions.get().runtimes.for_key("tx")
    assert runtime is not None
    last = 2**15 - 2
    record = replace(runtime.shard.durable_state()["tx"], producer_epoch=i16(last))
    runtime.shard.replay(TransactionLogKey(transactional_id="tx"), record)
    first_id, producer.epoch = producer.producer_id, last
    await producer.send("journal", b"a")
    await producer.commit()
    assert producer.producer_id != first_id
    assert producer.epoch == 0
    await producer.send("journal", b"b")
    await producer.commit()
    assert await read_committed(bench, topic_id) == [b"a", b"b"]


def test_a_delayed_end_of_a_transaction_does_not_end_the_next_one() -> None:
    """A defect of every older Kafka; with an epoch for each transaction (KIP-890) the request is rejected."""

    @on_small_broker()
    async def run(bench: Bench) -> None:
        await bench.create("journal")
        producer = TransactionalProducer(bench)
        await producer.init()
        await producer.send("journal", b"a")
        delayed = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch, "committed": True}
        await producer.commit()
        await producer.send("journal", b"b")
        answer = await producer.ask(ApiKey.END_TXN, 5, **delayed)
        assert answer.error_code is ErrorCode.producer_fenced
        assert bench.services.partitions.find_replica("journal", None, 0).leader.last_stable_offset == 2
        await producer.abort()

    run()
