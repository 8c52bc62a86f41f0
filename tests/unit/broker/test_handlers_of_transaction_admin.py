"""The transaction requests of administrators and other brokers, in every version, over the wire."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kio.serial.errors import OutOfBoundValue
from tests.unit.broker.broker_bench import Bench
from tests.unit.broker.group_bench import message, rejected, versions
from tests.unit.broker.transaction_bench import (
    TransactionalProducer,
    committed_offset,
    on_small_broker,
    with_transactions,
)

from ottla.core.transactions import commands
from ottla.core.transactions.commands import (
    DescribedTransaction,
    ListedTransaction,
)
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.protocol.api_keys import ApiKey

SECOND = timedelta(seconds=1)


# -- WriteTxnMarkers


def markers_request(version: int, *markers: dict[str, Any]) -> Any:
    defaults = {
        "producer_epoch": 0,
        "transaction_result": False,
        "coordinator_epoch": 9,
        "transaction_version": 0,
    }
    return message(ApiKey.WRITE_TXN_MARKERS, version, markers=[defaults | each for each in markers])


def written(response: Any) -> list[tuple[int, str, int, ErrorCode]]:
    return [
        (marker.producer_id, topic.name, part.partition_index, part.error_code)
        for marker in response.markers
        for topic in marker.topics
        for part in topic.partitions
    ]


@pytest.mark.parametrize("version", versions(ApiKey.WRITE_TXN_MARKERS))
def test_an_administrator_can_end_a_hanging_transaction(version: int) -> None:
    @on_small_broker()
    async def run(bench: Bench) -> None:
        await bench.create("journal", 2)
        producer = TransactionalProducer(bench)
        await producer.init()
        await producer.send("journal", b"a")
        leader = bench.services.partitions.find_replica("journal", None, 0).leader
        assert leader.last_stable_offset == 0
        topics = [
            {"name": "journal", "partition_indexes": (0, 5)},
            {"name": "gone", "partition_indexes": (0,)},
        ]
        request = markers_request(version, {"producer_id": producer.producer_id, "topics": topics})
        missing = ErrorCode.unknown_topic_or_partition
        assert written(await bench.ask(request)) == [
            (producer.producer_id, "journal", 0, ErrorCode.none),
            (producer.producer_id, "journal", 5, missing),
            (producer.producer_id, "gone", 0, missing),
        ]
        assert leader.last_stable_offset == 2
        assert written(await bench.ask(markers_request(version))) == []

    run()


@on_small_broker()
async def test_markers_of_old_epochs_and_old_coordinators_are_rejected(bench: Bench) -> None:
    await bench.create("journal")
    topics = [{"name": "journal", "partition_indexes": (0,)}]

    async def write(**values: Any) -> ErrorCode:
        answer = await bench.ask(markers_request(2, {"producer_id": 5, "topics": topics} | values))
        ((_, _, _, code),) = written(answer)
        return code

    assert await write(producer_epoch=3) is ErrorCode.none
    assert await write(producer_epoch=2) is ErrorCode.invalid_producer_epoch
    assert await write(producer_epoch=3, coordinator_epoch=8) is ErrorCode.transaction_coordinator_fenced
    assert await write(producer_epoch=2, transaction_version=2) is ErrorCode.invalid_producer_epoch
    assert await write(producer_epoch=4, transaction_version=2) is ErrorCode.none
    # No transaction is open: the coordinator has sent its marker again.
    assert await write(producer_epoch=4, transaction_version=2) is ErrorCode.none


@on_small_broker()
async def test_a_marker_in_an_offsets_partition_commits_or_drops_the_groups_offsets(bench: Bench) -> None:
    await bench.create("journal")
    producer = TransactionalProducer(bench)
    await producer.init()
    await producer.send_offset("g", "journal", 5)
    runtime = bench.services.groups.get().runtimes.for_key("g")
    assert runtime is not None
    topic, partition = runtime.hosted.topic_partition
    marker = {
        "producer_id": producer.producer_id,
        "transaction_result": True,
        "topics": [{"name": topic, "partition_indexes": (partition,)}],
    }
    ((_, _, _, code),) = written(await bench.ask(markers_request(2, marker)))
    assert code is ErrorCode.none
    assert await committed_offset(bench, "g", "journal", require_stable=True) == 5
    runtime.close()
    ((_, _, _, code),) = written(await bench.ask(markers_request(2, marker)))
    assert code is ErrorCode.not_leader_or_follower


@on_small_broker()
async def test_with_flush_messages_the_response_to_markers_waits_for_the_flush(bench: Bench) -> None:
    await bench.create("journal", flush_messages="1")
    marker = {"producer_id": 5, "topics": [{"name": "journal", "partition_indexes": (0,)}]}
    ((_, _, _, code),) = written(await bench.ask(markers_request(2, marker)))
    assert code is ErrorCode.none
    assert bench.services.partitions.find_replica("journal", None, 0).leader.high_watermark == 1


# -- DescribeTransactions, ListTransactions and DescribeProducers


@on_small_broker()
async def test_describe_transactions_describes_each_transactional_id(bench: Bench) -> None:
    def describe(command: commands.DescribeTransaction) -> Any:
        if command.transactional_id != "tx":
            return rejected(ErrorCode.transactional_id_not_found)
        partitions = (TopicPartition("a", 1), TopicPartition("b", 0), TopicPartition("a", 0))
        return DescribedTransaction("tx", "Ongoing", 60_000, 1_234_567, 12, 3, partitions)

    with_transactions(bench, describe)
    request = message(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=("gone", "tx"))
    gone, found = (await bench.ask(request)).transaction_states
    assert (gone.error_code, gone.transactional_id) == (ErrorCode.transactional_id_not_found, "gone")
    assert found.error_code is ErrorCode.none
    assert (found.transaction_state, found.transaction_timeout) == ("Ongoing", timedelta(minutes=1))
    assert found.transaction_start_time == datetime(1970, 1, 1, 0, 20, 34, 567_000, tzinfo=UTC)
    assert (found.producer_id, found.producer_epoch) == (12, 3)
    assert [(topic.topic, topic.partitions) for topic in found.topics] == [("a", (1, 0)), ("b", (0,))]


@on_small_broker()
async def test_a_transactional_id_without_a_transaction_has_no_start(bench: Bench) -> None:
    await TransactionalProducer(bench).init()
    request = message(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=("",))
    (empty,) = (await bench.ask(request)).transaction_states
    assert empty.error_code is ErrorCode.invalid_request
    request = message(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=("tx",))
    with pytest.raises(OutOfBoundValue, match="negative timestamp"):  # which kio cannot decode; clients can
        await bench.ask(request)


@pytest.mark.parametrize("version", versions(ApiKey.LIST_TRANSACTIONS))
def test_list_transactions_submits_its_filters(version: int) -> None:
    @on_small_broker()
    async def run(bench: Bench) -> None:
        fake = with_transactions(bench, (ListedTransaction("tx", 12, "Ongoing"),))
        request = message(
            ApiKey.LIST_TRANSACTIONS,
            version,
            state_filters=("Ongoing", "Sleeping"),
            producer_id_filters=(12, 13),
            duration_filter=500,
            transactional_id_pattern="t.*",
        )
        answer = await bench.ask(request)
        assert (answer.error_code, answer.unknown_state_filters) == (ErrorCode.none, ("Sleeping",))
        (listed,) = answer.transaction_states
        assert (listed.transactional_id, listed.producer_id, listed.transaction_state) == (
            "tx",
            12,
            "Ongoing",
        )
        assert fake.commands == [
            commands.ListTransactions(
                producer_ids=frozenset({12, 13}),
                states=frozenset({"Ongoing", "Sleeping"}),
                duration_ms=500 if version >= 1 else -1,
                transactional_id_pattern="t.*" if version >= 2 else None,
            )
        ]
        with_transactions(bench, rejected(ErrorCode.coordinator_load_in_progress))
        answer = await bench.ask(request)
        assert (answer.error_code, answer.transaction_states) == (ErrorCode.coordinator_load_in_progress, ())

    run()


@on_small_broker()
async def test_transactions_of_all_shards_are_listed(bench: Bench) -> None:
    await bench.create("journal")
    for number in range(6):
        producer = TransactionalProducer(bench, f"tx-{number}")
        await producer.init()
        if number % 2:
            await producer.send("journal", b"a")

    async def listed(**filters: Any) -> list[str]:
        answer = await bench.ask(message(ApiKey.LIST_TRANSACTIONS, 2, **filters))
        assert answer.error_code is ErrorCode.none
        return sorted(each.transactional_id for each in answer.transaction_states)

    assert await listed() == [f"tx-{number}" for number in range(6)]
    assert await listed(state_filters=("Ongoing",)) == ["tx-1", "tx-3", "tx-5"]
    assert await listed(state_filters=("None",)) == []
    assert await listed(transactional_id_pattern="tx-[0-2]") == ["tx-0", "tx-1", "tx-2"]
    answer = await bench.ask(message(ApiKey.LIST_TRANSACTIONS, 2, transactional_id_pattern="["))
    assert answer.error_code is ErrorCode.invalid_regular_expression


@on_small_broker()
async def test_describe_producers_shows_the_open_transaction_and_the_last_coordinator_epoch(
    bench: Bench,
) -> None:
    await bench.create("journal")
    producer = TransactionalProducer(bench)
    await producer.init()
    await bench.produce("journal", b"plain")
    request = message(ApiKey.DESCRIBE_PRODUCERS, 0, topics=[{"name": "journal", "partition_indexes": (0,)}])

    async def described() -> Any:
        (partition,) = (await bench.ask(request)).topics[0].partitions
        (state,) = partition.active_producers
        return state

    await producer.send("journal", b"a", b"b")
    state = await described()
    assert (state.producer_id, state.producer_epoch, state.last_sequence) == (producer.producer_id, 0, 1)
    assert (state.coordinator_epoch, state.current_txn_start_offset) == (-1, 1)
    await producer.commit()
    state = await described()
    assert (state.producer_epoch, state.last_sequence) == (1, -1)
    assert (state.coordinator_epoch, state.current_txn_start_offset) == (0, -1)


@on_small_broker()
async def test_describe_producers_of_unknown_partitions(bench: Bench) -> None:
    topics = [{"name": name, "partition_indexes": (0,)} for name in ("gone", "no/topic")]
    response = await bench.ask(message(ApiKey.DESCRIBE_PRODUCERS, 0, topics=topics))
    codes = [topic.partitions[0].error_code for topic in response.topics]
    assert codes == [ErrorCode.unknown_topic_or_partition, ErrorCode.invalid_topic_exception]


# -- the feature


@on_small_broker()
async def test_a_cluster_starts_with_transaction_version_2_and_can_be_downgraded(bench: Bench) -> None:
    await bench.create("journal")
    features = await bench.ask(
        message(ApiKey.API_VERSIONS, 4, client_software_name="a", client_software_version="1")
    )
    finalized = {each.name: each.max_version_level for each in features.finalized_features}
    supported = {each.name: (each.min_version, each.max_version) for each in features.supported_features}
    assert (finalized["transaction.version"], supported["transaction.version"]) == (2, (0, 2))
    await bench.services.transactions.get().find_coordinator("tx")
    update = [{"feature": "transaction.version", "max_version_level": 0, "upgrade_type": 2}]
    answer = await bench.ask(message(ApiKey.UPDATE_FEATURES, 2, timeout=SECOND, feature_updates=update))
    assert answer.error_code is ErrorCode.none
    assert {
        runtime.shard.settings.transaction_version for runtime in bench.services.transactions.get().runtimes
    } == {0}
    producer = TransactionalProducer(bench, version_2=False)
    await producer.init()
    await producer.send("journal", b"a")
    await producer.commit()
