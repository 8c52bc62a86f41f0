"""A broker tells the controller in which of its directories it has its replicas (KIP-858)."""

import asyncio
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from tests.unit.broker.broker_bench import Bench, on_broker, until

from ottla.core.controller.commands import AssignReplicasToDirs
from ottla.core.controller.image import UNASSIGNED_DIRECTORY
from ottla.core.pending_assignments import ASSIGNMENTS_PER_REQUEST
from ottla.model.config import ResourceType
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition

TWO = ("/one", "/two")


def are_assigned(bench: Bench, topic: str = "journal") -> bool:
    """Whether the metadata has the real directory of each partition."""
    log_dirs = bench.services.log_dirs
    return all(
        partition.directory(1)
        == log_dirs.directory_ids[log_dirs.directory_of(TopicPartition(topic, index)) or ""]
        for index, partition in bench.services.metadata.image.topics[topic].partitions.items()
    )


class Controller:
    """Rejects the first requests with `errors`, passes on the others, and keeps all."""

    def __init__(self, bench: Bench, *errors: ErrorCode) -> None:
        self._controller = bench.broker._directories._controller.get()
        self._submit = self._controller.submit
        self._controller.submit = self.submit  # type: ignore[method-assign, assignment]
        self._errors = list(errors)
        self.requests: list[AssignReplicasToDirs] = []
        self.times_s: list[float] = []

    async def submit(self, command: AssignReplicasToDirs, timeout_s: float) -> Any:
        self.requests.append(command)
        self.times_s.append(asyncio.get_running_loop().time())
        if self._errors:
            raise KafkaError(self._errors.pop(0), "not now")
        return await self._submit(command, timeout_s)


@on_broker()
async def test_a_broker_with_one_directory_asks_nothing(bench: Bench) -> None:
    await bench.create("journal", 4)
    assert are_assigned(bench), "the controller knows the only directory"
    for restart in (bench.stop, bench.kill):
        await restart()
        await bench.start()
        await asyncio.sleep(1)
        assert bench.broker._directories._controller.created is None


@on_broker(directories=TWO)
async def test_new_replicas_are_assigned_with_one_request(bench: Bench) -> None:
    controller = Controller(bench)
    await bench.create("journal", 12)
    await until(lambda: are_assigned(bench))
    (request,) = controller.requests
    assert request.broker_epoch == bench.broker.lifecycle.broker_epoch
    assert {directory for directory, _ in request.directories} == set(
        bench.services.log_dirs.directory_ids.values()
    )
    await bench.configure(ResourceType.TOPIC, "journal", retention_ms="1000")
    await asyncio.sleep(1)
    assert len(controller.requests) == 1


@on_broker(directories=TWO)
async def test_many_replicas_are_assigned_with_several_requests(bench: Bench) -> None:
    controller = Controller(bench)
    await bench.create("journal", 2 * ASSIGNMENTS_PER_REQUEST + 1)
    await until(lambda: are_assigned(bench))
    sizes = [
        sum(len(indexes) for _, topics in request.directories for _, indexes in topics)
        for request in controller.requests
    ]
    assert sum(sizes) == 2 * ASSIGNMENTS_PER_REQUEST + 1
    assert max(sizes) <= ASSIGNMENTS_PER_REQUEST


@on_broker(directories=TWO)
async def test_a_restart_asks_nothing_that_is_known_and_everything_else(bench: Bench) -> None:
    await bench.create("journal", 4)
    await until(lambda: are_assigned(bench))
    await bench.kill()
    await bench.start()
    assert bench.broker._directories._controller.created is None
    Controller(bench, *[ErrorCode.not_controller] * 1000)
    await bench.create("later", 4)
    await asyncio.sleep(1)
    topic = bench.services.metadata.image.topics["later"]
    assert {partition.directory(1) for partition in topic.partitions.values()} == {UNASSIGNED_DIRECTORY}
    await bench.kill()
    await bench.start()
    await until(lambda: are_assigned(bench, "later"))


@on_broker(directories=TWO)
async def test_a_failed_request_is_repeated_with_growing_pauses(
    bench: Bench,
) -> None:
    controller = Controller(bench, *[ErrorCode.not_controller] * 10)
    await bench.create("journal")
    await until(lambda: are_assigned(bench))
    pauses_s = [after - before for before, after in pairwise(controller.times_s)]
    assert pauses_s == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10, 10], abs=0.01)


@on_broker(directories=TWO)
async def test_a_deleted_topic_is_forgotten(bench: Bench) -> None:
    controller = Controller(bench, ErrorCode.not_controller)
    await bench.create("journal")
    await until(lambda: bool(controller.requests))
    pending = bench.broker._directories._pending
    assert pending
    wanted = (DeleteTopicState(name="journal", topic_id=None),)
    await bench.ask(DeleteTopicsRequest(topics=wanted, timeout=timedelta(seconds=5)))
    await until(lambda: not pending)
