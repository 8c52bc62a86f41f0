"""A shard runtime serves one leadership of its partition."""

import asyncio
from typing import Any

import pytest
from tests.unit.broker.broker_bench import Bench, on_broker, until
from tests.unit.broker.coordinators.test_shard_runtime import (
    Add,
    Perform,
    Read,
    runtime_of,
    submit,
    until_active,
)
from tests.unit.broker.group_bench import message
from tests.unit.broker.roles import (
    OTHER,
    OTHER_ADDRESS,
    hosted_partition,
    lead_alone,
    lead_with_follower,
    register_other,
    step_down,
)
from tests.unit.broker.test_leaderships import is_waiting, usurp
from tests.unit.broker.transaction_bench import TransactionalProducer, on_small_broker

import ottla.broker.coordinators.shard_loader as loader_module
from ottla.broker.coordinators.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from ottla.broker.coordinators.shard_runtime import RuntimeState
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.api_keys import ApiKey


@on_broker()
async def test_a_response_is_not_sent_by_other_records_under_a_later_leadership(bench: Bench) -> None:
    await bench.create("counters")
    lead_with_follower(bench, "counters")
    performed: list[Any] = []
    runtime = runtime_of(bench, perform=performed.append)
    written = asyncio.ensure_future(submit(runtime, Add("a")))
    effect = asyncio.ensure_future(submit(runtime, Perform("markers")))
    await is_waiting(bench, 2)
    usurp(bench, "counters")
    for answer in (await asyncio.wait_for(written, 1), await asyncio.wait_for(effect, 1)):
        assert isinstance(answer, KafkaError)
        assert answer.code is ErrorCode.not_coordinator
    await asyncio.sleep(60)
    assert performed == []


@on_broker()
async def test_nothing_is_appended_under_another_leadership(bench: Bench) -> None:
    await bench.create("counters")
    runtime = runtime_of(bench)
    await submit(runtime, Add("a"))
    step_down(bench, "counters")
    lead_alone(bench, "counters")
    end_offset = runtime.hosted.log.log_end_offset
    assert not runtime.can_be_read
    answer = await submit(runtime, Add("a"))
    assert answer.code is ErrorCode.not_coordinator
    assert runtime.state is RuntimeState.CLOSED
    assert runtime.hosted.log.log_end_offset == end_offset
    assert (await submit(runtime, Read())).code is ErrorCode.not_coordinator
    again = runtime_of(bench)
    await until_active(again)
    assert (again.epoch, again.shard.counts) == (2, {"a": 1})


@on_broker()
async def test_a_read_under_another_leadership_gets_not_coordinator(bench: Bench) -> None:
    await bench.create("counters")
    runtime = runtime_of(bench)
    await submit(runtime, Add("a"))
    step_down(bench, "counters")
    assert (await submit(runtime, Read())).code is ErrorCode.not_coordinator


@on_broker()
async def test_a_follower_has_no_runtime(bench: Bench) -> None:
    await bench.create("counters")
    step_down(bench, "counters")
    with pytest.raises(KafkaError) as rejected:
        runtime_of(bench)
    assert rejected.value.code is ErrorCode.not_leader_or_follower


def test_a_shard_stops_loading_when_its_leadership_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        await bench.create("counters")
        await submit(runtime_of(bench), Add("a"))
        replayed: list[Any] = []

        def replay(*batch: Any) -> int:
            replayed.append(batch)
            return 1

        monkeypatch.setattr(loader_module, "replay_batch", replay)
        runtime = runtime_of(bench)
        assert runtime.state is RuntimeState.LOADING
        step_down(bench, "counters")
        assert (await submit(runtime, Read())).code is ErrorCode.not_coordinator
        await asyncio.sleep(1)
        assert replayed == []
        assert not runtime.shard.was_loaded

    run()


async def commit_offset(bench: Bench, group_id: str = "g") -> ErrorCode:
    partition = {"partition_index": 0, "committed_offset": 1}
    request = message(
        ApiKey.OFFSET_COMMIT, 8, group_id=group_id, generation_id_or_member_epoch=-1, member_id="",
        topics=({"name": "journal", "partitions": (partition,)},),
    )  # fmt: skip
    (answer,) = (await bench.ask(request)).topics[0].partitions
    code: ErrorCode = answer.error_code
    return code


@on_broker(offsets_topic_num_partitions="1")
async def test_the_group_coordinator_follows_the_leadership_of_its_partition(bench: Bench) -> None:
    await bench.create("journal")
    find = message(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=("g",))
    (found,) = (await bench.ask(find)).coordinators
    assert (found.error_code, found.node_id) == (ErrorCode.none, 1)
    assert await commit_offset(bench) is ErrorCode.none
    groups = bench.services.groups.get()
    (runtime,) = groups.runtimes
    register_other(bench)
    step_down(bench, CONSUMER_OFFSETS)
    assert runtime.state is RuntimeState.CLOSED
    assert list(groups.runtimes) == []
    (found,) = (await bench.ask(find)).coordinators
    assert (found.error_code, found.node_id, found.host, found.port) == (
        ErrorCode.none, OTHER, OTHER_ADDRESS.host, OTHER_ADDRESS.port,
    )  # fmt: skip
    assert await commit_offset(bench) is ErrorCode.not_coordinator
    lead_alone(bench, CONSUMER_OFFSETS)
    (again,) = groups.runtimes
    assert again is not runtime
    assert (again.epoch, again.state) == (2, RuntimeState.LOADING)
    assert await commit_offset(bench) is ErrorCode.coordinator_load_in_progress
    await until(lambda: again.state is RuntimeState.ACTIVE)
    assert await commit_offset(bench) is ErrorCode.none


@on_broker(offsets_topic_num_partitions="1")
async def test_a_new_leader_epoch_of_the_same_broker_is_a_new_runtime(bench: Bench) -> None:
    await bench.create("journal")
    await bench.ask(message(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=("g",)))
    groups = bench.services.groups.get()
    (runtime,) = groups.runtimes
    lead_alone(bench, CONSUMER_OFFSETS)
    (again,) = groups.runtimes
    assert again is not runtime
    assert (runtime.state, runtime.epoch, again.epoch) == (RuntimeState.CLOSED, 0, 1)


@on_small_broker()
async def test_markers_carry_the_epoch_in_which_the_coordinator_was_loaded(bench: Bench) -> None:
    await bench.create("journal")
    producer = TransactionalProducer(bench)
    await producer.init()
    transactions = bench.services.transactions.get()
    for index in range(len(bench.services.metadata.image.topics[TRANSACTION_STATE].partitions)):
        lead_alone(bench, TRANSACTION_STATE, index)
    await until(lambda: all(runtime.state is RuntimeState.ACTIVE for runtime in transactions.runtimes))
    await producer.send("journal", b"a")
    await producer.commit()
    await until(lambda: hosted_partition(bench).log.producers.first_unstable_offset() is None)
    (entry,) = hosted_partition(bench).log.producers.entries()
    assert entry.coordinator_epoch == 1


# -- lists of all shards


async def list_groups(bench: Bench) -> tuple[ErrorCode, set[str]]:
    response = await bench.ask(message(ApiKey.LIST_GROUPS, 5))
    return response.error_code, {group.group_id for group in response.groups}


async def groups_in_two_shards(bench: Bench) -> tuple[str, str]:
    """A group of partition 0 and one of partition 1 of `__consumer_offsets`."""
    await bench.create("journal")
    groups = bench.services.groups.get()
    await groups.find_coordinator("g")
    names = {
        groups.runtimes.partition_of(name): name for name in ("group-1", "group-2", "group-3", "group-4")
    }
    for name in names.values():
        assert await commit_offset(bench, name) is ErrorCode.none
    return names[0], names[1]


@on_small_broker()
async def test_a_group_shard_that_is_closed_is_left_out_of_the_list(bench: Bench) -> None:
    first, second = await groups_in_two_shards(bench)
    assert await list_groups(bench) == (ErrorCode.none, {first, second})
    runtime = bench.services.groups.get().runtimes.at(0)
    assert runtime is not None
    runtime.close()
    assert await list_groups(bench) == (ErrorCode.none, {second})


async def list_while_a_shard_waits(bench: Bench) -> "asyncio.Task[tuple[ErrorCode, set[str]]]":
    """The response waits: partition 0 has a record that its follower does not have."""
    lead_with_follower(bench, CONSUMER_OFFSETS, 0)
    runtime = bench.services.groups.get().runtimes.at(0)
    assert runtime is not None
    await until(lambda: runtime.state is RuntimeState.ACTIVE)
    runtime.hosted.append(bench.batch(b"not replicated"), bench.world.clock.now_ms(), required_acks=1)
    waiting = len(bench.services.delayed_operations)
    listing = asyncio.create_task(list_groups(bench))
    async with asyncio.timeout(1):
        await is_waiting(bench, waiting + 1)
    return listing


@on_small_broker()
async def test_a_group_shard_that_moves_during_the_request_is_left_out_of_the_list(bench: Bench) -> None:
    _, second = await groups_in_two_shards(bench)
    listing = await list_while_a_shard_waits(bench)
    step_down(bench, CONSUMER_OFFSETS, 0)
    assert await asyncio.wait_for(listing, 1) == (ErrorCode.none, {second})


@on_small_broker()
async def test_a_group_shard_that_is_loaded_again_is_not_left_out_of_the_list(bench: Bench) -> None:
    await groups_in_two_shards(bench)
    listing = await list_while_a_shard_waits(bench)
    runtime = bench.services.groups.get().runtimes.at(0)
    assert runtime is not None
    runtime.fail(ValueError("a bug"))
    assert await asyncio.wait_for(listing, 1) == (ErrorCode.coordinator_load_in_progress, set())


@on_small_broker()
async def test_a_transaction_shard_that_is_closed_is_left_out_of_the_list(bench: Bench) -> None:
    ids = ("tx-1", "tx-2", "tx-3", "tx-4")
    for transactional_id in ids:
        await TransactionalProducer(bench, transactional_id).init()
    runtimes = bench.services.transactions.get().runtimes
    runtime = runtimes.at(0)
    assert runtime is not None
    runtime.close()
    response = await bench.ask(message(ApiKey.LIST_TRANSACTIONS, 1))
    assert response.error_code is ErrorCode.none
    listed = {state.transactional_id for state in response.transaction_states}
    assert listed == {each for each in ids if runtimes.partition_of(each) == 1}
