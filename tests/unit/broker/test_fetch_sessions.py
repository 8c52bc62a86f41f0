"""Fetch sessions on a broker: idle partitions cost nothing, no wake-up is lost, and no watch is left behind."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.fetch.v17.request import FetchTopic, ForgottenTopic, ReplicaState
from tests.unit.broker.broker_bench import Bench, fetch_request, fetched, on_broker, until, values_in
from tests.unit.broker.roles import (
    OTHER,
    change_partition,
    hosted_partition,
    lead_with_follower,
    register_other,
    step_down,
)

from ottla.broker import fetch_reader
from ottla.broker.handlers import k01_fetch
from ottla.broker.hosted_partition import HostedPartition
from ottla.model.errors import ErrorCode

LAG_MAX_S = 30
LONG = timedelta(seconds=8)


class Session:
    """A client with a fetch session of all partitions of a topic."""

    def __init__(self, bench: Bench, topic_id: UUID, partitions: int, replica_id: int = -1) -> None:
        self.bench = bench
        self.topic_id = topic_id
        self.partitions = partitions
        self.replica_id = replica_id
        self.replica_epoch = 77
        self.session_id = self.epoch = 0
        self.client = bench.new_client(f"session-{replica_id}")

    async def fetch(self, *wanted: Any, **options: Any) -> list[Any]:
        if self.epoch == 0:
            wanted = tuple(fetched(partition=index) for index in range(self.partitions))
        state = ReplicaState(replica_id=self.replica_id, replica_epoch=self.replica_epoch)
        options.setdefault(
            "topics", (FetchTopic(topic_id=self.topic_id, partitions=wanted),) if wanted else ()
        )
        response = await self.client.request(
            fetch_request(
                self.topic_id,
                session_id=self.session_id,
                session_epoch=self.epoch,
                replica_state=state,
                **options,
            )
        )
        assert response.error_code is ErrorCode.none
        self.session_id = response.session_id
        self.epoch += 1
        return [partition for topic in response.responses for partition in topic.partitions]

    async def become_idle(self) -> "Session":
        await self.fetch()
        await self.fetch()
        return self

    def waiting(self, *wanted: Any, **options: Any) -> "asyncio.Task[list[Any]]":
        return asyncio.create_task(self.fetch(*wanted, **({"max_wait": LONG} | options)))


async def is_waiting(bench: Bench, count: int = 1) -> None:
    await until(lambda: len(bench.services.delayed_operations) >= count)


def watchers(bench: Bench) -> list[int]:
    return [hosted.watchers for hosted in bench.services.partitions]


def append(bench: Bench, partition: int = 0, value: bytes = b"x") -> None:
    hosted_partition(bench, index=partition).append(
        bench.batch(value), bench.world.clock.now_ms(), required_acks=1
    )


# -- cost


def test_an_idle_partition_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        session = await Session(bench, await bench.create("journal", 4), 4).become_idle()
        read: list[int] = []
        fetch = HostedPartition.fetch

        def count(hosted: HostedPartition, *arguments: Any, **options: Any) -> Any:
            read.append(hosted.topic_partition.partition)
            return fetch(hosted, *arguments, **options)

        monkeypatch.setattr(HostedPartition, "fetch", count)
        assert await session.fetch() == []
        assert read == []
        append(bench, 2)
        (answer,) = await session.fetch()
        assert (answer.partition_index, values_in(answer.records)) == (2, [b"x"])
        assert read == [2]

    run()


@on_broker()
async def test_records_that_did_not_fit_come_with_the_next_fetch(bench: Bench) -> None:
    session = await Session(bench, await bench.create("journal", 3), 3).become_idle()
    for partition in range(3):
        append(bench, partition, bytes(1000))
    served = []
    for _ in range(6):
        answers = await session.fetch(max_bytes=10)
        served += [answer.partition_index for answer in answers if answer.records]
    assert served == [0, 1, 2, 0, 1, 2]


# -- waiting


@on_broker()
async def test_a_record_in_an_idle_partition_ends_the_wait(bench: Bench) -> None:
    session = await Session(bench, await bench.create("journal", 3), 3).become_idle()
    waiting = session.waiting()
    await is_waiting(bench)
    append(bench, 1)
    (answer,) = await asyncio.wait_for(waiting, 1)
    assert (answer.partition_index, values_in(answer.records)) == (1, [b"x"])


@on_broker()
async def test_a_session_waits_for_min_bytes_of_all_partitions_together(bench: Bench) -> None:
    session = await Session(bench, await bench.create("journal", 3), 3).become_idle()
    waiting = session.waiting(min_bytes=2500)
    await is_waiting(bench)
    for partition in range(2):
        append(bench, partition, bytes(1000))
        await asyncio.sleep(0.1)
        assert not waiting.done()
    append(bench, 2, bytes(1000))
    answers = await asyncio.wait_for(waiting, 1)
    assert [len(answer.records) > 1000 for answer in answers] == [True] * 3


@on_broker()
async def test_too_few_bytes_are_sent_when_the_time_is_over(bench: Bench) -> None:
    session = await Session(bench, await bench.create("journal", 3), 3).become_idle()
    began = asyncio.get_running_loop().time()
    waiting = session.waiting(min_bytes=2500, max_wait=timedelta(seconds=2))
    await is_waiting(bench)
    append(bench, 1)
    (answer,) = await waiting
    assert values_in(answer.records) == [b"x"]
    assert 2 <= asyncio.get_running_loop().time() - began < 2.5


@on_broker()
async def test_the_end_of_the_leadership_and_of_the_topic_end_the_wait(bench: Bench) -> None:
    session = await Session(bench, await bench.create("journal", 3), 3).become_idle()
    waiting = session.waiting(fetched(partition=1, current_leader_epoch=0))
    await is_waiting(bench)
    step_down(bench, index=1)
    (answer,) = await asyncio.wait_for(waiting, 1)
    assert (answer.partition_index, answer.error_code) == (1, ErrorCode.fenced_leader_epoch)
    gone = (ForgottenTopic(topic_id=session.topic_id, partitions=(1,)),)
    waiting = session.waiting(forgotten_topics_data=gone)
    await is_waiting(bench)
    await bench.ask(
        DeleteTopicsRequest(
            topics=(DeleteTopicState(name="journal", topic_id=UUID(int=0)),), timeout=timedelta(seconds=1)
        )
    )
    answers = await asyncio.wait_for(waiting, 1)
    assert answers[0].error_code is ErrorCode.unknown_topic_id


@on_broker()
async def test_an_eviction_ends_the_wait(bench: Bench) -> None:
    session = await Session(bench, await bench.create("journal", 3), 3).become_idle()
    waiting = session.waiting()
    await is_waiting(bench)
    cache = bench.services.fetch_sessions.get()
    cache._remove(cache._sessions[session.session_id])
    assert await asyncio.wait_for(waiting, 1) == []
    assert watchers(bench) == [0, 0, 0]


@on_broker()
async def test_a_later_request_of_the_session_ends_the_wait(bench: Bench) -> None:
    session = await Session(bench, await bench.create("journal", 3), 3).become_idle()
    twin = Session(bench, session.topic_id, 3)
    twin.session_id, twin.epoch = session.session_id, session.epoch + 1
    twin.client = bench.new_client("twin")
    waiting = session.waiting()
    await is_waiting(bench)
    assert await twin.fetch(fetched(5, partition=2)) != []
    append(bench, 0)
    with pytest.raises(AssertionError, match="invalid_fetch_session_epoch"):
        await asyncio.wait_for(waiting, 1)
    answers = await twin.fetch()
    assert [answer.partition_index for answer in answers] == [0, 2]


@pytest.fixture
def two_partitions_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_reader, "LARGE_FETCH_PARTITIONS", 2)
    monkeypatch.setattr(k01_fetch, "LARGE_FETCH_PARTITIONS", 2)


@pytest.mark.usefixtures("two_partitions_are_many")
@pytest.mark.parametrize("session_epoch", [-1, 0, 1, 2])
def test_a_fetch_of_very_many_partitions_ends_with_the_first_record(session_epoch: int) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        topic_id = await bench.create("journal", 4)
        session = Session(bench, topic_id, 4)
        for _ in range(session_epoch):
            await session.fetch()
        options: dict[str, Any] = {}
        if session_epoch == -1:
            session.epoch = -1
            wanted = tuple(fetched(partition=index) for index in range(4))
            options["topics"] = (FetchTopic(topic_id=topic_id, partitions=wanted),)
        waiting = session.waiting(**options)
        await is_waiting(bench)
        append(bench, 2)
        answers = await asyncio.wait_for(waiting, 1)
        assert [values_in(answer.records) for answer in answers if answer.records] == [[b"x"]]
        assert len(answers) == (4 if session_epoch < 1 else 1)
        assert watchers(bench) == ([0] * 4 if session_epoch == -1 else [1] * 4)

    run()


@pytest.mark.usefixtures("two_partitions_are_many")
@on_broker()
async def test_a_fetch_of_very_many_partitions_waits_for_min_bytes(bench: Bench) -> None:
    session = Session(bench, await bench.create("journal", 4), 4)
    waiting = session.waiting(min_bytes=2500)
    await is_waiting(bench)
    for partition in range(3):
        assert not waiting.done()
        append(bench, partition, bytes(1000))
        await asyncio.sleep(0.1)
    assert len(await asyncio.wait_for(waiting, 1)) == 4


@pytest.mark.usefixtures("two_partitions_are_many")
@pytest.mark.parametrize("session_epoch", [-1, 0])
def test_a_client_that_disconnects_leaves_no_watch(session_epoch: int) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        topic_id = await bench.create("journal", 4)
        wanted = [fetched(partition=index) for index in range(4)]
        client = bench.new_client("impatient")
        request = fetch_request(topic_id, *wanted, session_epoch=session_epoch, max_wait=LONG)
        waiting = asyncio.create_task(client.request(request))
        await is_waiting(bench)
        assert watchers(bench) == [1] * 4
        client.close()
        await until(lambda: not len(bench.services.delayed_operations))
        assert watchers(bench) == [0] * 4
        waiting.cancel()

    run()


# -- watches


@on_broker()
async def test_a_session_watches_a_partition_until_it_is_forgotten_or_the_session_ends(bench: Bench) -> None:
    session = await Session(bench, await bench.create("journal", 3), 3).become_idle()
    assert watchers(bench) == [1, 1, 1]
    gone = (ForgottenTopic(topic_id=session.topic_id, partitions=(1,)),)
    await session.fetch(forgotten_topics_data=gone)
    assert watchers(bench) == [1, 0, 1]
    session.epoch = -1
    await session.fetch()
    assert watchers(bench) == [0, 0, 0]


@on_broker(max_incremental_fetch_session_cache_slots="1")
async def test_an_evicted_session_watches_nothing(bench: Bench) -> None:
    topic_id = await bench.create("journal", 3)
    await Session(bench, topic_id, 2).become_idle()
    assert watchers(bench) == [1, 1, 0]
    await asyncio.sleep(200)
    await Session(bench, topic_id, 3).fetch()
    assert watchers(bench) == [0, 0, 0]


@on_broker()
async def test_a_deleted_partition_is_released(bench: Bench) -> None:
    session = await Session(bench, await bench.create("journal"), 1).become_idle()
    hosted = hosted_partition(bench)
    await bench.ask(
        DeleteTopicsRequest(
            topics=(DeleteTopicState(name="journal", topic_id=UUID(int=0)),), timeout=timedelta(seconds=1)
        )
    )
    assert hosted.watchers == 0
    (answer,) = await session.fetch()
    assert answer.error_code is ErrorCode.unknown_topic_id


# -- consumers that read from followers (KIP-392)


@on_broker()
async def test_a_truncation_of_a_followers_log_reaches_an_idle_consumer(bench: Bench) -> None:
    topic_id = await bench.create("journal")
    await bench.produce("journal", b"x")
    session = Session(bench, topic_id, 1)
    await session.fetch()
    step_down(bench)
    assert await session.fetch(fetched(1)) == []
    assert await session.fetch() == []
    hosted_partition(bench).truncate(0, bench.world.clock.now_ms())
    (answer,) = await session.fetch()
    assert answer.error_code is ErrorCode.offset_out_of_range


@on_broker()
async def test_records_of_followers_that_did_not_fit_come_with_the_next_fetch(bench: Bench) -> None:
    topic_id = await bench.create("journal", 3)
    session = await Session(bench, topic_id, 3).become_idle()
    for partition in range(3):
        append(bench, partition, bytes(1000))
        step_down(bench, index=partition)
    served = []
    for _ in range(6):
        answers = await session.fetch(max_bytes=10)
        served += [answer.partition_index for answer in answers if answer.records]
    assert served == [0, 1, 2, 0, 1, 2]


@on_broker(replica_selector_class="org.apache.kafka.common.replica.RackAwareReplicaSelector")
async def test_an_idle_consumer_is_sent_to_its_rack_as_soon_as_a_replica_is_there(bench: Bench) -> None:
    proposes_nothing(bench)
    topic_id = await bench.create("journal")
    lead_with_follower(bench)
    session = Session(bench, topic_id, 1)
    for _ in range(3):
        await session.fetch(rack_id="here")
    register_other(bench, rack="here")
    assert await session.fetch(rack_id="here") == []  # the follower has not fetched yet
    await Session(bench, topic_id, 1, OTHER).fetch()
    (answer,) = await session.fetch(rack_id="here")
    assert answer.preferred_read_replica == OTHER


# -- in-sync replicas


async def idle_follower(bench: Bench) -> Session:
    topic_id = await bench.create("journal")
    lead_with_follower(bench)
    register_other(bench)
    return await Session(bench, topic_id, 1, OTHER).become_idle()


def check_isr(bench: Bench) -> tuple[int, ...] | None:
    hosted = hosted_partition(bench)
    hosted.check_isr(bench.world.clock.monotonic_ms())
    proposal = hosted.leader.isr_proposal
    return None if proposal is None else tuple(replica_id for replica_id, _ in proposal.isr)


def proposes_nothing(bench: Bench) -> None:
    bench.services.partitions.on_isr_proposed = lambda hosted, leader, isr: None


@on_broker()
async def test_an_idle_follower_that_keeps_fetching_stays_in_the_isr(bench: Bench) -> None:
    proposes_nothing(bench)
    follower = await idle_follower(bench)
    for _ in range(10):
        await asyncio.sleep(LAG_MAX_S / 3)
        assert await follower.fetch() == []
        assert check_isr(bench) is None
    append(bench)
    # It was caught up at its last fetch, so it has the whole time to get the new record.
    await asyncio.sleep(LAG_MAX_S - 1)
    assert check_isr(bench) is None
    (answer,) = await follower.fetch()
    assert values_in(answer.records) == [b"x"]
    assert await follower.fetch(fetched(1)) != []  # the high watermark
    assert hosted_partition(bench).leader.high_watermark == 1
    assert check_isr(bench) is None


@on_broker()
async def test_a_dead_follower_leaves_the_isr_when_a_record_arrives(bench: Bench) -> None:
    proposes_nothing(bench)
    await idle_follower(bench)
    await asyncio.sleep(3 * LAG_MAX_S)
    assert check_isr(bench) is None  # it has all records
    append(bench)
    assert check_isr(bench) == (1,)


@on_broker()
async def test_a_follower_that_dies_after_idle_fetches_leaves_the_isr_after_the_lag_time(
    bench: Bench,
) -> None:
    proposes_nothing(bench)
    follower = await idle_follower(bench)
    await asyncio.sleep(3 * LAG_MAX_S)
    await follower.fetch()
    await asyncio.sleep(LAG_MAX_S / 2)
    append(bench)
    assert check_isr(bench) is None
    await asyncio.sleep(LAG_MAX_S / 2 + 1)
    assert check_isr(bench) == (1,)


@on_broker()
async def test_a_forgotten_partition_does_not_profit_from_later_fetches_of_the_session(bench: Bench) -> None:
    proposes_nothing(bench)
    topic_id = await bench.create("journal", 2)
    for index in range(2):
        lead_with_follower(bench, index=index)
    register_other(bench)
    follower = await Session(bench, topic_id, 2, OTHER).become_idle()
    await asyncio.sleep(LAG_MAX_S / 2)
    gone = (ForgottenTopic(topic_id=topic_id, partitions=(0,)),)
    await follower.fetch(forgotten_topics_data=gone)
    await asyncio.sleep(LAG_MAX_S * 2 / 3)
    await follower.fetch()
    append(bench)
    assert check_isr(bench) == (1,)


@on_broker()
async def test_a_follower_outside_of_the_isr_joins_with_a_later_fetch(bench: Bench) -> None:
    proposes_nothing(bench)
    follower = await idle_follower(bench)
    change_partition(bench, isr=(1,))
    await follower.fetch()
    leader = hosted_partition(bench).leader
    assert leader.isr_proposal is not None
    leader.withdraw_isr_proposal(
        bench.world.clock.monotonic_ms()
    )  # as if the controller had not been reached
    await follower.fetch()
    assert leader.isr_proposal is not None


@on_broker()
async def test_an_idle_follower_that_is_no_replica_any_more_gets_an_error(bench: Bench) -> None:
    follower = await idle_follower(bench)
    change_partition(bench, replicas=(1,), isr=(1,))
    (answer,) = await follower.fetch()
    assert answer.error_code is ErrorCode.not_leader_or_follower


@on_broker()
async def test_an_idle_follower_that_registered_again_elsewhere_gets_an_error(bench: Bench) -> None:
    follower = await idle_follower(bench)
    follower.replica_epoch = 76
    (answer,) = await follower.fetch()
    assert answer.error_code is ErrorCode.not_leader_or_follower


@on_broker()
async def test_a_wall_clock_that_is_set_forward_shrinks_no_isr(bench: Bench) -> None:
    proposes_nothing(bench)
    await idle_follower(bench)
    bench.world.clock.jump(3_600_000)
    append(bench)
    assert check_isr(bench) is None
    await asyncio.sleep(LAG_MAX_S + 1)
    assert check_isr(bench) == (1,)


@on_broker()
async def test_a_wall_clock_that_is_set_back_keeps_no_dead_follower_in_the_isr(bench: Bench) -> None:
    proposes_nothing(bench)
    await idle_follower(bench)
    bench.world.clock.jump(-3_600_000)
    append(bench)
    await asyncio.sleep(LAG_MAX_S + 1)
    assert check_isr(bench) == (1,)
