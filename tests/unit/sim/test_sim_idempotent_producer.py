"""The idempotent producer of simulations: which rejections it accepts, and which ones are violations."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from ottla.core.partition.producers import ProducerStateTable
from ottla.model.errors import ErrorCode, KafkaError
from ottla.records.header import read_header
from ottla.records.records import read_batches
from ottla.sim.history import History, Value, Violation
from ottla.sim.loop import run
from ottla.sim.partition_clients import IdempotentProducer, Rejection, judge_rejection

NONE, GAP = ErrorCode.none, ErrorCode.out_of_order_sequence_number
TIMED_OUT = ErrorCode.request_timed_out
BATCHES = 12


class Leader:
    """A leader as its client sees it. While `commits` is not set, it appends batches but does not answer."""

    def __init__(self) -> None:
        self.producers = ProducerStateTable()
        self.log: list[Value] = []
        self.commits = True
        self.accepted = self.rejected = 0

    def restart(self) -> None:
        self.producers.load(self.producers.entries())

    async def init_producer_id(self) -> tuple[ErrorCode, int, int]:
        return NONE, 7, 0

    async def produce(self, _topic_id: UUID, _partition: int, data: bytes) -> Any:
        header = read_header(data, 0)
        try:
            duplicate = self.producers.check(header)
        except KafkaError as error:
            self.rejected += 1
            return SimpleNamespace(error_code=error.code, base_offset=-1)
        base_offset = len(self.log) if duplicate is None else duplicate.base_offset
        if duplicate is None:
            self.producers.update(header._replace(base_offset=base_offset))
            self.log += [Value.decode(record.key or b"") for record in read_batches(data)[0].records]
        if not self.commits:
            await asyncio.sleep(1)
            raise TimeoutError
        self.accepted += 1
        return SimpleNamespace(error_code=NONE, base_offset=base_offset)


def produce_through(leader: Leader, course: Callable[[Leader], Coroutine[Any, Any, None]], seed: int) -> None:
    history = History()

    async def main() -> None:
        client: Any = leader
        producer = IdempotentProducer(client, Random(seed), lambda: 0, history, "p", UUID(int=1), 0)
        async with asyncio.timeout(600), asyncio.TaskGroup() as tasks:
            tasks.create_task(producer.run(BATCHES))
            tasks.create_task(course(leader))

    try:
        run(main())
    except ExceptionGroup as group:
        raise group.exceptions[0] from None
    history[0].check_log(list(enumerate(leader.log)))


async def stall(leader: Leader) -> None:
    """Long enough for retries with several batches in flight."""
    while leader.accepted < 3:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    leader.commits = False
    await asyncio.sleep(15)


@pytest.mark.parametrize("seed", range(10))
def test_a_restarted_leader_may_take_duplicates_for_gaps_while_it_waits_for_a_follower(seed: int) -> None:
    async def course(leader: Leader) -> None:
        await stall(leader)
        leader.restart()
        await asyncio.sleep(10)
        assert leader.rejected
        leader.commits = True

    leader = Leader()
    produce_through(leader, course, seed)
    assert leader.log[-1].number + 1 == len(leader.log)


@pytest.mark.parametrize("seed", range(10))
def test_a_leader_that_lost_acknowledged_batches_is_found_while_it_waits_for_a_follower(seed: int) -> None:
    async def course(leader: Leader) -> None:
        await asyncio.sleep(0.001)
        old = leader.producers.entries()
        await stall(leader)
        leader.producers.load(old)

    with pytest.raises(Violation, match="got out_of_order_sequence_number for the batch"):
        produce_through(Leader(), course, seed)


@pytest.mark.parametrize(
    ("error", "later", "rejection"),
    [
        pytest.param(GAP, [(NONE, True)], Rejection.DUPLICATE, id="a later batch is in the log"),
        pytest.param(GAP, [(GAP, True), (NONE, True)], Rejection.DUPLICATE, id="the last one is in the log"),
        pytest.param(GAP, [(GAP, True), (TIMED_OUT, True)], Rejection.UNDECIDED, id="no response yet"),
        pytest.param(GAP, [(TIMED_OUT, True), (GAP, False)], Rejection.UNDECIDED, id="gap after no response"),
        pytest.param(GAP, [(GAP, True), (GAP, True)], Rejection.WRONG, id="all rejected"),
        pytest.param(GAP, [], Rejection.WRONG, id="the last batch is known"),
        pytest.param(GAP, [(NONE, False)], Rejection.WRONG, id="it was the last batch"),
        pytest.param(GAP, [(TIMED_OUT, False)], Rejection.WRONG, id="it was the last batch, no response"),
        pytest.param(ErrorCode.invalid_producer_epoch, [(NONE, True)], Rejection.WRONG, id="another error"),
    ],
)
def test_a_rejection_is_judged_by_the_later_batches(
    error: ErrorCode, later: list[tuple[ErrorCode, bool]], rejection: Rejection
) -> None:
    assert judge_rejection(error, later) is rejection
