"""What a fetch returns: limits (KIP-74), waiting, sessions (KIP-227), isolation, topic ids, epochs (KIP-320)."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.schema.fetch.v12.request import FetchPartition as FetchPartitionV12
from kio.schema.fetch.v12.request import FetchRequest as FetchRequestV12
from kio.schema.fetch.v12.request import FetchTopic as FetchTopicV12
from kio.schema.fetch.v17.request import FetchTopic, ForgottenTopic, ReplicaState
from tests.unit.broker.broker_bench import Bench, fetch_request, fetched, on_broker, values_in

from ottla.broker import fetch_reader
from ottla.broker.handlers import k01_fetch
from ottla.core.partition.producers import NO_VERIFICATION
from ottla.model.errors import ErrorCode
from ottla.records.header import scan_batches


async def fetch(bench: Bench, topic_id: UUID, *partitions: Any, **options: Any) -> list[Any]:
    """The results of the partitions, in the order of the response."""
    response = await bench.ask(fetch_request(topic_id, *partitions, **options))
    assert response.error_code is ErrorCode.none
    return [partition for topic in response.responses for partition in topic.partitions]


def sizes(answers: list[Any]) -> list[int]:
    return [len(answer.records or b"") for answer in answers]


@on_broker()
async def test_the_first_batch_is_returned_whole_even_with_the_smallest_limits(bench: Bench) -> None:
    topic_id = await bench.create("journal")
    await bench.produce("journal", bytes(5000))
    await bench.produce("journal", b"second")
    for limits in ({"max_bytes": 1}, {"max_bytes": 0}):
        (answer,) = await fetch(bench, topic_id, fetched(max_bytes=1), **limits)
        assert values_in(answer.records) == [bytes(5000)]


@on_broker()
async def test_only_the_first_partition_with_records_may_exceed_the_limits(bench: Bench) -> None:
    topic_id = await bench.create("journal", 3)
    for partition in (1, 2):
        await bench.produce("journal", bytes(5000), partition=partition)
    wanted = [fetched(partition=partition, max_bytes=100) for partition in range(3)]
    answers = await fetch(bench, topic_id, *wanted)
    assert [size > 0 for size in sizes(answers)] == [False, True, False]


@on_broker()
async def test_the_limit_of_the_response_ends_it_and_every_partition_has_a_result(bench: Bench) -> None:
    topic_id = await bench.create("journal", 4)
    for partition in range(4):
        await bench.produce("journal", bytes(1000), partition=partition)
    one = sizes(await fetch(bench, topic_id, fetched()))[0]
    wanted = [fetched(partition=partition) for partition in range(4)]
    answers = await fetch(bench, topic_id, *wanted, max_bytes=2 * one + 10)
    assert sizes(answers) == [one, one, 0, 0]
    assert all(answer.high_watermark == 1 for answer in answers)


@on_broker(fetch_max_bytes="1500")
async def test_the_broker_limits_the_size_of_a_response_too(bench: Bench) -> None:
    topic_id = await bench.create("journal", 2)
    for partition in range(2):
        await bench.produce("journal", bytes(1000), partition=partition)
    answers = await fetch(bench, topic_id, fetched(), fetched(partition=1))
    assert [size > 0 for size in sizes(answers)] == [True, False]


@on_broker()
async def test_batches_are_whole_and_end_at_the_limit_of_the_partition(bench: Bench) -> None:
    topic_id = await bench.create("journal")
    for _ in range(10):
        await bench.produce("journal", bytes(1000))
    (answer,) = await fetch(bench, topic_id, fetched(max_bytes=3500))
    assert [header.base_offset for header in scan_batches(answer.records)] == [0, 1, 2]


@on_broker()
async def test_a_fetch_from_within_a_batch_returns_the_batch_from_its_beginning(bench: Bench) -> None:
    topic_id = await bench.create("journal")
    await bench.produce("journal", b"a", b"b", b"c")
    (answer,) = await fetch(bench, topic_id, fetched(2))
    assert values_in(answer.records) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("offset", [-1, 4, 1 << 40])
def test_an_offset_outside_of_the_log_is_out_of_range_at_once(offset: int) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        topic_id = await bench.create("journal")
        await bench.produce("journal", b"a", b"b", b"c")
        started = asyncio.get_running_loop().time()
        (answer,) = await fetch(bench, topic_id, fetched(offset), max_wait=timedelta(seconds=8))
        assert answer.error_code is ErrorCode.offset_out_of_range
        assert asyncio.get_running_loop().time() - started < 1

    run()


@on_broker()
async def test_the_end_of_the_log_is_in_range_and_empty(bench: Bench) -> None:
    topic_id = await bench.create("journal")
    await bench.produce("journal", b"a")
    (answer,) = await fetch(bench, topic_id, fetched(1))
    assert (answer.error_code, answer.records, answer.high_watermark) == (ErrorCode.none, b"", 1)


@on_broker()
async def test_an_unknown_topic_id_or_partition_is_an_error_of_that_partition_only(bench: Bench) -> None:
    topic_id = await bench.create("journal")
    await bench.produce("journal", b"a")
    request = fetch_request(
        None,
        topics=(
            FetchTopic(topic_id=UUID(int=99), partitions=(fetched(),)),
            FetchTopic(topic_id=topic_id, partitions=(fetched(partition=5), fetched())),
        ),
    )
    unknown, known = (await bench.ask(request)).responses
    assert unknown.partitions[0].error_code is ErrorCode.unknown_topic_id
    assert [p.error_code for p in known.partitions] == [ErrorCode.unknown_topic_or_partition, ErrorCode.none]
    assert values_in(known.partitions[1].records) == [b"a"]


@pytest.mark.parametrize("version", [4, 5, 7, 9, 11, 12])
def test_older_versions_name_topics_by_name(version: int) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        await bench.create("journal")
        await bench.produce("journal", b"a")

        def request(topic: str) -> FetchRequestV12:
            partition = FetchPartitionV12(partition=0, fetch_offset=0, partition_max_bytes=1000)
            return FetchRequestV12(
                replica_id=-1,
                max_wait=timedelta(),
                min_bytes=1,
                topics=(FetchTopicV12(topic=topic, partitions=(partition,)),),
                forgotten_topics_data=(),
                rack_id="",
            )

        response = await bench.ask(request("journal"), version)
        assert response.responses[0].topic == "journal"
        assert values_in(response.responses[0].partitions[0].records) == [b"a"]
        response = await bench.ask(request("nobody"), version)
        assert response.responses[0].partitions[0].error_code is ErrorCode.unknown_topic_or_partition

    run()


@pytest.mark.parametrize("version", [13, 14, 15, 16, 17, 18])
def test_newer_versions_name_topics_by_id(version: int) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        topic_id = await bench.create("journal")
        await bench.produce("journal", b"a")
        response = await bench.ask(fetch_request(topic_id, fetched()), version)
        assert response.responses[0].topic_id == topic_id
        assert values_in(response.responses[0].partitions[0].records) == [b"a"]

    run()


@on_broker()
async def test_leader_epochs_of_the_past_are_fenced_and_of_the_future_unknown(bench: Bench) -> None:
    topic_id = await bench.create("journal")
    await bench.produce("journal", b"a")
    hosted = bench.services.partitions.find_replica("journal", None, 0)
    hosted.leader.leader_epoch = 5
    for epoch, expected in (
        (4, ErrorCode.fenced_leader_epoch),
        (5, ErrorCode.none),
        (-1, ErrorCode.none),
        (6, ErrorCode.unknown_leader_epoch),
    ):
        (answer,) = await fetch(bench, topic_id, fetched(current_leader_epoch=epoch))
        assert answer.error_code is expected


@on_broker()
async def test_a_follower_whose_log_has_diverged_gets_the_diverging_epoch(bench: Bench) -> None:
    topic_id = await bench.create("journal")
    await bench.produce("journal", b"a", b"b")
    hosted = bench.services.partitions.find_replica("journal", None, 0)
    hosted.leader.leader_epoch = 3
    await bench.produce("journal", b"c")
    (answer,) = await fetch(bench, topic_id, fetched(3, last_fetched_epoch=0))
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (0, 2)
    assert not answer.records
    (answer,) = await fetch(bench, topic_id, fetched(2, last_fetched_epoch=0))
    assert values_in(answer.records) == [b"c"]


@on_broker()
async def test_a_read_committed_reader_stops_before_an_open_transaction(bench: Bench) -> None:
    topic_id = await bench.create("journal")
    await bench.produce("journal", b"before")
    hosted = bench.services.partitions.find_replica("journal", None, 0)
    batch = bench.batch(b"open", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    now_ms = bench.world.clock.now_ms()
    hosted.append_in_transaction(batch, now_ms, required_acks=-1, verification=NO_VERIFICATION)
    await bench.produce("journal", b"after")
    (committed,) = await fetch(bench, topic_id, fetched(), isolation_level=1)
    assert values_in(committed.records) == [b"before"]
    assert (committed.last_stable_offset, committed.high_watermark) == (1, 3)
    assert committed.aborted_transactions == ()
    (uncommitted,) = await fetch(bench, topic_id, fetched())
    assert values_in(uncommitted.records) == [b"before", b"open", b"after"]
    (waiting,) = await fetch(bench, topic_id, fetched(2), isolation_level=1)
    assert (waiting.error_code, waiting.records) == (ErrorCode.none, b"")


# -- sessions


@on_broker()
async def test_a_session_returns_only_partitions_with_changes(bench: Bench) -> None:
    topic_id = await bench.create("journal", 3)
    response = await bench.ask(
        fetch_request(topic_id, *(fetched(partition=index) for index in range(3)), session_epoch=0)
    )
    session_id = response.session_id
    assert session_id > 0
    assert len(response.responses[0].partitions) == 3

    def next_request(epoch: int, **options: Any) -> Any:
        defaults: dict[str, Any] = {"session_id": session_id, "session_epoch": epoch, "topics": ()}
        return fetch_request(topic_id, **(defaults | options))

    assert (await bench.ask(next_request(1))).responses == ()
    await bench.produce("journal", b"a", partition=1)
    (topic,) = (await bench.ask(next_request(2))).responses
    assert [partition.partition_index for partition in topic.partitions] == [1]
    changed = (FetchTopic(topic_id=topic_id, partitions=(fetched(1, partition=1),)),)
    assert (await bench.ask(next_request(3, topics=changed))).responses == ()
    await bench.produce("journal", b"b", partition=2)
    gone = (ForgottenTopic(topic_id=topic_id, partitions=(2,)),)
    assert (await bench.ask(next_request(4, forgotten_topics_data=gone))).responses == ()


@on_broker()
async def test_partitions_that_had_records_go_to_the_end_of_the_session(bench: Bench) -> None:
    topic_id = await bench.create("journal", 3)
    for partition in range(3):
        await bench.produce("journal", bytes(1000), partition=partition)
    wanted = [fetched(partition=index) for index in range(3)]
    response = await bench.ask(fetch_request(topic_id, *wanted, session_epoch=0, max_bytes=10))
    session_id = response.session_id
    served = []
    for epoch in range(1, 7):
        response = await bench.ask(
            fetch_request(topic_id, session_id=session_id, session_epoch=epoch, topics=(), max_bytes=10)
        )
        served += [p.partition_index for topic in response.responses for p in topic.partitions if p.records]
    assert served == [0, 1, 2, 0, 1, 2]


@on_broker()
async def test_an_unknown_session_or_a_wrong_session_epoch_fails_the_whole_request(bench: Bench) -> None:
    topic_id = await bench.create("journal")
    response = await bench.ask(fetch_request(topic_id, fetched(), session_id=4711, session_epoch=3))
    assert response.error_code is ErrorCode.fetch_session_id_not_found
    opened = await bench.ask(fetch_request(topic_id, fetched(), session_epoch=0))
    response = await bench.ask(
        fetch_request(topic_id, session_id=opened.session_id, session_epoch=9, topics=())
    )
    assert response.error_code is ErrorCode.invalid_fetch_session_epoch


@on_broker()
async def test_a_session_is_closed_by_its_final_epoch(bench: Bench) -> None:
    topic_id = await bench.create("journal")
    opened = await bench.ask(fetch_request(topic_id, fetched(), session_epoch=0))
    assert len(bench.services.fetch_sessions.get()) == 1
    await bench.ask(fetch_request(topic_id, session_id=opened.session_id, session_epoch=-1, topics=()))
    assert len(bench.services.fetch_sessions.get()) == 0


@on_broker()
async def test_a_fetch_without_partitions_returns_at_once(bench: Bench) -> None:
    response = await bench.ask(fetch_request(None, topics=(), max_wait=timedelta(seconds=8)))
    assert (response.error_code, response.responses) == (ErrorCode.none, ())


@on_broker()
async def test_a_broker_that_is_no_replica_cannot_fetch_as_a_follower(bench: Bench) -> None:
    topic_id = await bench.create("journal")
    await bench.produce("journal", b"a")
    request = fetch_request(topic_id, fetched(), replica_state=ReplicaState(replica_id=7, replica_epoch=1))
    response = await bench.ask(request)
    assert response.responses[0].partitions[0].error_code is ErrorCode.not_leader_or_follower


@pytest.fixture
def one_partition_is_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_reader, "LARGE_FETCH_PARTITIONS", 1)
    monkeypatch.setattr(k01_fetch, "LARGE_FETCH_PARTITIONS", 1)


@pytest.mark.usefixtures("one_partition_is_many")
@on_broker()
async def test_a_fetch_of_very_many_partitions_returns_the_same_as_any_other(bench: Bench) -> None:
    topic_id = await bench.create("journal", 3)
    await bench.produce("journal", b"x", partition=1)
    wanted = [fetched(partition=partition) for partition in range(4)]
    answers = await fetch(bench, topic_id, *wanted)
    assert [values_in(answer.records) for answer in answers] == [[], [b"x"], [], []]
    assert answers[3].error_code is ErrorCode.unknown_topic_or_partition


@pytest.mark.usefixtures("one_partition_is_many")
@on_broker()
async def test_a_fetch_of_very_many_partitions_waits_until_its_time_is_over(bench: Bench) -> None:
    topic_id = await bench.create("journal", 3)
    await bench.produce("journal", b"x", partition=2)
    wanted = [fetched(partition=partition) for partition in range(3)]
    began = asyncio.get_running_loop().time()
    answers = await fetch(bench, topic_id, *wanted, max_wait=timedelta(seconds=5), min_bytes=1000)
    assert 5 <= asyncio.get_running_loop().time() - began < 6
    assert [values_in(answer.records) for answer in answers] == [[], [], [b"x"]]
