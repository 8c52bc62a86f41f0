"""A leader's proposal of an ISR counts until the controller's decision is known."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from tests.unit.core.partition.test_in_sync_replicas import LeaderAndLog, leader_of

from ottla.broker.background_tasks import BackgroundTasks
from ottla.broker.replication.isr_changes import PROPOSALS_PER_REQUEST, IsrChanges
from ottla.core.controller.commands import AlterPartition, AlterPartitionResult
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition
from ottla.sim.env import World, simulate

TOPIC_ID = UUID(int=1)


class Controller:
    """Answers with `answers`, one after the other, and then accepts."""

    def __init__(self, *answers: ErrorCode | Exception) -> None:
        self.answers = list(answers)
        self.commands: list[AlterPartition] = []

    async def submit(self, command: AlterPartition, timeout_s: float) -> tuple[AlterPartitionResult, ...]:
        self.commands.append(command)
        answer = self.answers.pop(0) if self.answers else ErrorCode.none
        if isinstance(answer, Exception):
            raise answer
        if answer is not ErrorCode.none:
            return (AlterPartitionResult(TOPIC_ID, 0, answer),)
        isr = tuple(replica for replica, _ in command.topics[0].partitions[0].new_isr)
        return (AlterPartitionResult(TOPIC_ID, 0, ErrorCode.none, 1, 5, isr, 0, 8),)


def leader_with_proposal() -> LeaderAndLog:
    """Follower 3, which has everything, is about to join the ISR (1, 2)."""
    leader = leader_of(isr=(1, 2), log_end_offset=10)
    for replica_id in (2, 3):
        leader.on_fetch(replica_id, 10, 5, 0, log_start_offset=0)
    assert leader.replicas.proposed == (1, 2, 3)
    return leader


def propose(
    controller: Controller,
    seconds: float,
    *,
    disk_fails: bool = False,
    new_leader: Callable[[], LeaderAndLog] = leader_with_proposal,
) -> LeaderAndLog:
    """The leader's state some time after its proposal. Its disk may fail during the first request."""

    async def main(world: World) -> LeaderAndLog:
        leader = new_leader()
        hosted = SimpleNamespace(
            topic_id=TOPIC_ID,
            topic_partition=TopicPartition("journal", 0),
            role=leader,
            failure=None,
            isr_committed=lambda isr, replicas, epoch, now_ms: leader.on_isr_committed(isr, epoch, now_ms),
            isr_rejected=lambda leader, now_ms: leader.withdraw_isr_proposal(now_ms),
        )
        env = world.process("broker", world.new_disk()).env
        tasks = BackgroundTasks()
        changes = IsrChanges(env, cast(Any, controller), tasks, local_id=1, broker_epoch=lambda: 7)
        assert leader.replicas.proposed is not None
        changes.propose(cast(Any, hosted), leader, leader.replicas.proposed)
        await asyncio.sleep(0.01)
        assert controller.commands
        if disk_fails:
            hosted.failure = KafkaError(ErrorCode.kafka_storage_error, "the disk has failed")
        await asyncio.sleep(seconds)
        await tasks.close()
        return leader

    return simulate(main, 1)


@pytest.mark.parametrize(
    "lost",
    [
        KafkaError(ErrorCode.not_controller, "the active controller could not be reached"),
        RuntimeError("a bug"),
    ],
)
def test_a_proposal_without_an_answer_is_sent_again_and_counts_meanwhile(lost: Exception) -> None:
    assert propose(Controller(lost), 0.1).replicas.maximal == (1, 2, 3)
    controller = Controller(lost)
    leader = propose(controller, 1.0)
    assert len(controller.commands) == 2
    assert leader.replicas.committed == (1, 2, 3)


@pytest.mark.parametrize(
    "error",
    [ErrorCode.invalid_update_version, ErrorCode.fenced_leader_epoch, ErrorCode.invalid_request,
     ErrorCode.unknown_topic_id, ErrorCode.new_leader_elected],
)  # fmt: skip
def test_a_proposal_that_newer_metadata_decides_on_counts_until_then(error: ErrorCode) -> None:
    controller = Controller(error)
    leader = propose(controller, 5.0)
    assert len(controller.commands) == 1
    assert leader.replicas.maximal == (1, 2, 3)


def test_a_leader_whose_disk_has_failed_does_not_send_its_proposal_again() -> None:
    """Alone in the ISR, it would keep the others from being elected."""
    controller = Controller(ErrorCode.not_controller)
    propose(controller, 5.0, disk_fails=True)
    assert len(controller.commands) == 1


def test_a_proposal_with_a_replica_that_may_not_join_is_withdrawn() -> None:
    assert propose(Controller(ErrorCode.ineligible_replica), 1.0).replicas.maximal == (1, 2)


def test_a_controller_that_does_not_lead_any_more_is_asked_again() -> None:
    controller = Controller(ErrorCode.not_controller)
    assert propose(controller, 1.0).replicas.committed == (1, 2, 3)
    assert len(controller.commands) == 2


def test_many_proposals_are_sent_in_requests_that_the_controller_decides_quickly() -> None:
    controller = Controller()

    async def main(world: World) -> None:
        env = world.process("broker", world.new_disk()).env
        tasks = BackgroundTasks()
        changes = IsrChanges(env, cast(Any, controller), tasks, local_id=1, broker_epoch=lambda: 7)
        for index in range(PROPOSALS_PER_REQUEST * 2 + 1):
            leader = leader_with_proposal()
            hosted = SimpleNamespace(
                topic_id=TOPIC_ID,
                topic_partition=TopicPartition("journal", index),
                role=leader,
                failure=None,
                isr_committed=lambda isr, replicas, epoch, now_ms: None,
            )
            assert leader.replicas.proposed is not None
            changes.propose(cast(Any, hosted), leader, leader.replicas.proposed)
        await asyncio.sleep(0.15)  # before those without a result are sent again
        await tasks.close()

    simulate(main, 1)
    sizes = [len(topic.partitions) for command in controller.commands for topic in command.topics]
    assert max(sizes) == sizes[0] == PROPOSALS_PER_REQUEST


def test_a_smaller_isr_is_not_in_force_before_the_metadata_has_it() -> None:
    """The metadata brings configs in their order: an older min.insync.replicas would commit records too early."""

    def lagging() -> LeaderAndLog:
        leader = leader_of(isr=(1, 2), log_end_offset=10)
        assert leader.tick(1 << 40).proposed_isr == (1,)
        return leader

    controller = Controller()
    leader = propose(controller, 5.0, new_leader=lagging)
    assert len(controller.commands) == 1
    assert (leader.isr, leader.high_watermark) == ((1, 2), 0)
    leader.on_isr_committed((1,), 8, 1 << 40)
    assert (leader.isr, leader.high_watermark) == ((1,), 10)
