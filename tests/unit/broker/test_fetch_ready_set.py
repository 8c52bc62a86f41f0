"""A fetch session that reads only ready partitions returns the same, at the same time, as one that reads all."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.fetch.v17.request import FetchTopic, ForgottenTopic, ReplicaState
from tests.examples import examples
from tests.unit.broker.broker_bench import Bench, fetch_request, fetched, on_broker
from tests.unit.broker.roles import (
    OTHER,
    change_partition,
    hosted_partition,
    lead_alone,
    lead_with_follower,
    register_other,
    step_down,
)

from ottla.core.fetch_ready_set import ReadySet, SessionPartition
from ottla.model.errors import KafkaError

PARTITIONS = 4
Step = tuple[Any, ...]


@contextmanager
def every_fetch_reads_all_partitions() -> Iterator[None]:
    """The reference: no partition ever becomes idle."""

    def keep(ready_set: ReadySet, partition: SessionPartition) -> None:
        ready_set.ready[partition] = None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReadySet, "settle", keep)
        yield


class Fetcher:
    """A consumer or a follower with a fetch session, which keeps a transcript of what it gets, and when."""

    def __init__(self, bench: Bench, topic_id: UUID, replica_id: int) -> None:
        self.bench = bench
        self.topic_id = topic_id
        self.replica_id = replica_id
        self.client = bench.new_client(f"fetcher-{replica_id}")
        self.session_id = 0
        self.epoch = 0
        self.transcript: list[Any] = []

    async def fetch(
        self,
        offsets: dict[int, int],
        forgotten: Sequence[int],
        *,
        epoch: int = -1,
        **options: Any,
    ) -> None:
        if self.epoch == 0:
            offsets = {index: offsets.get(index, 0) for index in range(PARTITIONS)}
        wanted = [
            fetched(offset, partition=index, last_fetched_epoch=epoch, max_bytes=200)
            for index, offset in offsets.items()
        ]
        request = fetch_request(
            self.topic_id,
            topics=(FetchTopic(topic_id=self.topic_id, partitions=tuple(wanted)),) if wanted else (),
            forgotten_topics_data=(
                (ForgottenTopic(topic_id=self.topic_id, partitions=tuple(forgotten)),) if forgotten else ()
            ),
            session_id=self.session_id,
            session_epoch=self.epoch,
            replica_state=ReplicaState(replica_id=self.replica_id, replica_epoch=77),
            **options,
        )
        response = await self.client.request(request)
        self.session_id = response.session_id
        self.epoch = 0 if response.session_id == 0 else self.epoch + 1
        self.transcript.append((asyncio.get_running_loop().time(), response.error_code, response.responses))


class Play:
    """Runs a script of events and fetches on a broker."""

    def __init__(self, bench: Bench, topic_id: UUID) -> None:
        self.bench = bench
        self.fetchers = {replica_id: Fetcher(bench, topic_id, replica_id) for replica_id in (-1, OTHER)}
        self.fetching: set[asyncio.Task[None]] = set()

    def hosted(self, index: int) -> Any:
        return hosted_partition(self.bench, "journal", index)

    async def run(self, step: Step) -> None:
        name, *arguments = step
        await getattr(self, name)(*arguments)

    async def event(self, index: int, kind: str) -> None:
        now_ms = self.bench.world.clock.now_ms()
        try:
            hosted = self.hosted(index)
            if kind == "append":
                hosted.append(self.bench.batch(b"x" * 30), now_ms, required_acks=1)
            elif kind == "delete records":
                hosted.delete_records(hosted.role.high_watermark)
            elif kind == "step down":
                step_down(self.bench, "journal", index)
            elif kind == "lead alone":
                lead_alone(self.bench, "journal", index)
            elif kind == "lead with follower":
                lead_with_follower(self.bench, "journal", index)
            elif kind == "truncate" and not hosted.is_led:
                hosted.truncate(hosted.log.log_start_offset, now_ms)
            elif kind == "shrink":
                change_partition(self.bench, "journal", index, isr=(1,))
            elif kind == "register":
                register_other(self.bench, fenced=index % 2 == 0)
            elif kind == "delete topic":
                state = DeleteTopicState(name="journal", topic_id=UUID(int=0))
                await self.bench.ask(DeleteTopicsRequest(topics=(state,), timeout=timedelta(seconds=1)))
        except KafkaError:
            pass  # not the leader any more, or the topic is gone
        await asyncio.sleep(0.01)

    async def check_isr(self, seconds: int) -> None:
        await asyncio.sleep(seconds)
        for hosted in self.bench.services.partitions:
            hosted.check_isr(self.bench.world.clock.monotonic_ms())

    async def fetch(
        self, replica_id: int, moves: dict[int, str], forgotten: list[int], options: dict[str, Any]
    ) -> None:
        """Goes on while the script does, if it waits. A fetcher has one fetch at a time."""
        await self.settled()
        offsets = {index: self.offset(index, where) for index, where in moves.items()}
        fetch = self.fetchers[replica_id].fetch(offsets, forgotten, **options)
        self.fetching.add(asyncio.create_task(fetch))
        await asyncio.sleep(0.05)

    def offset(self, index: int, where: str) -> int:
        try:
            log = self.hosted(index).log
        except KafkaError:
            return 0
        return {
            "start": int(log.log_start_offset),
            "middle": int(log.log_start_offset + log.log_end_offset) // 2,
            "end": int(log.log_end_offset),
            "beyond": int(log.log_end_offset) + 1,
        }[where]

    async def settled(self) -> None:
        for task in self.fetching:
            await task
        self.fetching.clear()

    async def finish(self) -> list[Any]:
        """Everything that a client or the controller can see."""
        await self.settled()
        for fetcher in self.fetchers.values():
            await fetcher.fetch({}, ())
        isrs = [
            (hosted.topic_partition, hosted.role.leader_epoch, hosted.leader.isr, hosted.leader.isr_proposal)
            for hosted in self.bench.services.partitions
            if hosted.is_led
        ]
        return [fetcher.transcript for fetcher in self.fetchers.values()] + isrs


def transcript(script: list[Step]) -> list[Any]:
    seen: list[Any] = []

    @on_broker(log_retention_check_interval_ms="3600000")
    async def run(bench: Bench) -> None:
        topic_id = await bench.create("journal", PARTITIONS)
        play = Play(bench, topic_id)
        register_other(bench)
        for index in range(PARTITIONS // 2):
            lead_with_follower(bench, "journal", index)
        for fetcher in play.fetchers.values():  # twice, so that partitions become idle
            await fetcher.fetch({}, ())
            await fetcher.fetch({}, ())
        for step in script:
            await play.run(step)
        seen.extend(await play.finish())

    run()
    return seen


indexes = st.integers(0, PARTITIONS - 1)
events = st.tuples(
    st.just("event"),
    indexes,
    st.sampled_from(
        ["append"] * 8
        + ["delete records", "step down", "lead alone", "lead with follower", "lead with follower"]
        + ["truncate", "shrink", "register", "delete topic"]
    ),
)
fetches = st.tuples(
    st.just("fetch"),
    st.sampled_from([-1, OTHER]),
    st.dictionaries(indexes, st.sampled_from(["start", "middle"] + ["end"] * 5 + ["beyond"]), max_size=2),
    st.lists(indexes, max_size=1),
    st.fixed_dictionaries(
        {
            "max_wait": st.sampled_from([timedelta(0), timedelta(seconds=1)]),
            "min_bytes": st.sampled_from([0, 1, 250]),
            "max_bytes": st.sampled_from([0, 250, 100_000]),
            "isolation_level": st.sampled_from([0, 0, 0, 1]),
            "epoch": st.sampled_from([-1, -1, -1, 0]),
        }
    ),
)
checks = st.tuples(st.just("check_isr"), st.sampled_from([1, 20, 40]))


AT_ONCE = {"max_wait": timedelta(0), "min_bytes": 0, "max_bytes": 0, "isolation_level": 0, "epoch": -1}
WAITING = {**AT_ONCE, "max_wait": timedelta(seconds=1), "min_bytes": 1}
# The ISR shrinks while a fetch waits: the follower joins it again with its next fetch, not with this one.
SHRINK_DURING_A_FETCH: list[Step] = [
    *[("event", 0, "append")] * 2,
    ("check_isr", 1),
    *[("event", 0, "append")] * 2,
    ("event", 2, "lead with follower"),
    ("fetch", OTHER, {}, [3], AT_ONCE),
    ("fetch", OTHER, {}, [0], WAITING),
    ("event", 1, "shrink"),
    ("event", 1, "append"),
]
# A fetch that waits has told the next leader nothing, even if the same broker leads.
ELECTION_DURING_A_FETCH: list[Step] = [
    *[("check_isr", 1)] * 3,
    ("event", 3, "lead with follower"),
    ("check_isr", 1),
    ("event", 2, "lead with follower"),
    ("fetch", OTHER, {}, [], WAITING),
    ("event", 0, "lead with follower"),
    ("fetch", OTHER, {}, [], AT_ONCE),
    ("check_isr", 40),
]


@example(SHRINK_DURING_A_FETCH)
@example(ELECTION_DURING_A_FETCH)
@examples(40)
@given(st.lists(st.one_of(events, events, fetches, fetches, checks), min_size=10, max_size=30))
def test_a_session_returns_the_same_as_if_it_read_all_partitions(script: list[Step]) -> None:
    actual = transcript(script)
    with every_fetch_reads_all_partitions():
        assert actual == transcript(script)
