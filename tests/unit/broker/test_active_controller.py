"""The way to the active controller: in this process, or on another node."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.schema.allocate_producer_ids.v0.response import AllocateProducerIdsResponse
from kio.schema.create_topics.v7.response import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)
from kio.schema.envelope.v0.request import EnvelopeRequest
from kio.schema.envelope.v0.response import EnvelopeResponse

from ottla.broker.active_controller import ActiveController
from ottla.core.controller.commands import (
    NO_ERROR,
    AllocateProducerIds,
    CreateTopics,
    DeleteTopics,
    NewTopic,
    NewTopicResult,
    ProducerIdBlock,
    TopicToDelete,
    UnregisterBroker,
)
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import ZERO_UUID
from ottla.sim.loop import run

ALLOCATE = AllocateProducerIds(1, 7)


class FakeQuorum:
    def __init__(self, leader_id: int, *, is_active: bool = False) -> None:
        self.leader_id = leader_id
        self.is_active = is_active

    async def submit(self, command: Any) -> Any:
        return ProducerIdBlock(0, 1)


class FakeConnections:
    """`responses` are sent, or raised, one after the other."""

    def __init__(self, *responses: Any) -> None:
        self.responses = list(responses)
        self.asked: list[int] = []
        self.requests: list[Any] = []

    async def call(self, node_id: int, request: Any, response_type: Any, timeout_s: float) -> Any:
        self.asked.append(node_id)
        self.requests.append(request)
        response = self.responses.pop(0)
        if isinstance(response, Exception):
            raise response
        return response


def controller(quorum: FakeQuorum, connections: FakeConnections | None) -> ActiveController:
    return ActiveController(1, "cluster", quorum, connections)  # type: ignore[arg-type]


def allocated(first: int, error: ErrorCode = ErrorCode.none) -> AllocateProducerIdsResponse:
    return AllocateProducerIdsResponse(
        throttle_time=timedelta(), error_code=error, producer_id_start=first, producer_id_len=10
    )


def test_a_node_that_leads_decides_in_its_own_process() -> None:
    client = controller(FakeQuorum(1, is_active=True), FakeConnections())
    assert client.is_local
    assert run(client.submit(ALLOCATE)) == ProducerIdBlock(0, 1)


def test_another_node_is_asked_over_the_network() -> None:
    connections = FakeConnections(allocated(500))
    client = controller(FakeQuorum(3), connections)
    assert not client.is_local
    assert run(client.submit(ALLOCATE)) == ProducerIdBlock(500, 10)
    assert connections.asked == [3]


def test_a_topic_is_created_by_another_node_as_the_client_wants_it() -> None:
    created = CreatableTopicResult(
        name="a",
        topic_id=UUID(int=5),
        error_code=ErrorCode.none,
        error_message=None,
        num_partitions=2,
        replication_factor=2,
        configs=(described("retention.ms", "7", 1), described("segment.ms", "8", 5)),
    )
    connections = FakeConnections(CreateTopicsResponse(throttle_time=timedelta(), topics=(created,)))
    topic = NewTopic(
        "a", UUID(int=1), assignments=((0, (1, 2)), (1, (2, 3))), configs=(("retention.ms", "7"),)
    )
    (result,) = run(controller(FakeQuorum(3), connections).submit(CreateTopics((topic,), validate_only=True)))
    (request,) = connections.requests
    (sent,) = request.topics
    assert request.validate_only
    assert (sent.name, sent.num_partitions, sent.replication_factor) == ("a", -1, -1)
    assert [(each.partition_index, each.broker_ids) for each in sent.assignments] == [
        (0, (1, 2)),
        (1, (2, 3)),
    ]
    assert [(each.name, each.value) for each in sent.configs] == [("retention.ms", "7")]
    assert result == NewTopicResult("a", NO_ERROR, UUID(int=5), 2, 2, {"retention.ms": "7"})


def described(name: str, value: str, source: int) -> CreatableTopicConfigs:
    return CreatableTopicConfigs(
        name=name, value=value, read_only=False, config_source=source, is_sensitive=False
    )


def test_it_asks_again_while_the_controller_cannot_be_reached_or_is_no_longer_active() -> None:
    connections = FakeConnections(
        ConnectionError("refused"), allocated(0, ErrorCode.not_controller), allocated(500)
    )
    assert run(controller(FakeQuorum(3), connections).submit(ALLOCATE)) == ProducerIdBlock(500, 10)
    assert connections.asked == [3, 3, 3]


def test_it_waits_for_a_leader_and_then_for_this_node_to_become_active() -> None:
    async def main() -> None:
        quorum = FakeQuorum(-1)
        waiting = asyncio.create_task(controller(quorum, FakeConnections()).submit(ALLOCATE))
        await asyncio.sleep(1)
        quorum.leader_id = 1
        await asyncio.sleep(1)
        assert not waiting.done()
        quorum.is_active = True
        assert await waiting == ProducerIdBlock(0, 1)

    run(main())


def test_a_rejection_is_not_repeated() -> None:
    connections = FakeConnections(allocated(0, ErrorCode.stale_broker_epoch))
    with pytest.raises(KafkaError) as rejected:
        run(controller(FakeQuorum(3), connections).submit(ALLOCATE))
    assert rejected.value.code is ErrorCode.stale_broker_epoch


def test_if_there_is_no_controller_in_time_each_part_of_the_response_says_so() -> None:
    client = controller(FakeQuorum(-1), FakeConnections())
    (created,) = run(client.submit(CreateTopics((NewTopic("a", ZERO_UUID),)), 2.0))
    assert (created.name, created.error.code) == ("a", ErrorCode.not_controller)
    assert "Check that a majority of the controllers runs" in (created.error.message or "")
    (deleted,) = run(client.submit(DeleteTopics((TopicToDelete("a"),)), 2.0))
    assert deleted.error.code is ErrorCode.not_controller
    with pytest.raises(KafkaError):
        run(client.submit(ALLOCATE, 2.0))


def test_a_command_without_a_request_is_left_to_the_controller() -> None:
    client = controller(FakeQuorum(3), FakeConnections())

    async def main() -> None:
        started_s = asyncio.get_running_loop().time()
        (deleted,) = await client.submit(DeleteTopics((TopicToDelete("a"),)), 2.0)
        assert deleted.error.code is ErrorCode.not_controller
        with pytest.raises(KafkaError) as raised:
            await client.submit(UnregisterBroker(2), 2.0)
        assert raised.value.code is ErrorCode.not_controller
        assert asyncio.get_running_loop().time() == started_s  # clients retry, and ask that controller

    run(main())


def test_a_forwarded_request_gets_the_response_of_the_controller() -> None:
    envelope = EnvelopeRequest(request_data=b"q", request_principal=None, client_host_address=b"")
    connections = FakeConnections(
        EnvelopeResponse(error_code=ErrorCode.not_controller),
        EnvelopeResponse(response_data=b"answer", error_code=ErrorCode.none),
    )
    assert run(controller(FakeQuorum(3), connections).forward(envelope)) == b"answer"


def test_a_request_that_the_controller_cannot_read_is_not_forwarded_again() -> None:
    envelope = EnvelopeRequest(request_data=b"q", request_principal=None, client_host_address=b"")
    connections = FakeConnections(EnvelopeResponse(error_code=ErrorCode.unsupported_version))
    with pytest.raises(KafkaError) as rejected:
        run(controller(FakeQuorum(3), connections).forward(envelope))
    assert rejected.value.code is ErrorCode.unsupported_version


class SilentUntilDropped(FakeConnections):
    """Node 3 never responds."""

    def __init__(self, *responses: Any) -> None:
        super().__init__(*responses)
        self.dropped: list[int] = []

    async def call(self, node_id: int, request: Any, response_type: Any, timeout_s: float) -> Any:
        if node_id == 3:
            self.asked.append(node_id)
            await asyncio.Event().wait()
        return await super().call(node_id, request, response_type, timeout_s)

    def drop(self, node_id: int) -> None:
        self.dropped.append(node_id)


def test_a_command_that_waits_for_a_former_controller_is_sent_to_the_next_one() -> None:
    quorum, connections = FakeQuorum(3), SilentUntilDropped(allocated(500))
    client = controller(quorum, connections)

    async def main() -> ProducerIdBlock:
        submitted = asyncio.ensure_future(client.submit(ALLOCATE))
        await asyncio.sleep(5)
        quorum.leader_id = -1  # an election
        await asyncio.sleep(1)
        assert not submitted.done()
        quorum.leader_id = 2
        result = await submitted
        assert asyncio.get_running_loop().time() < 7
        return result

    assert run(main()) == ProducerIdBlock(500, 10)
    assert connections.asked == [3, 2]
    assert connections.dropped == [3]


def test_a_node_that_the_quorum_refuses_does_not_wait_for_a_leader() -> None:
    refusal = KafkaError(ErrorCode.inconsistent_cluster_id, "another cluster")
    client = ActiveController(1, "cluster", FakeQuorum(-1), FakeConnections(), refusal=lambda: refusal)  # type: ignore[arg-type]
    with pytest.raises(KafkaError) as raised:
        run(client.submit(ALLOCATE))
    assert raised.value is refusal


class LosingQuorum(FakeQuorum):
    """Loses its leadership with each decision, and has it again before the next attempt."""

    def __init__(self) -> None:
        super().__init__(1, is_active=True)
        self.decided: list[Any] = []

    async def submit(self, command: Any) -> Any:
        self.decided.append(command)
        if len(self.decided) == 1:
            raise KafkaError(ErrorCode.not_controller, "the leadership was lost")
        return ProducerIdBlock(0, 1)


def test_topics_are_not_created_twice_with_the_same_ids() -> None:
    """The first decision may be committed after all, and the topic deleted by then. The client asks again."""
    quorum = LosingQuorum()
    topic = NewTopic("a", UUID(int=1))
    (result,) = run(controller(quorum, FakeConnections()).submit(CreateTopics((topic,))))
    assert result.error.code is ErrorCode.not_controller
    assert len(quorum.decided) == 1


def test_other_commands_are_decided_again_by_the_same_node() -> None:
    quorum = LosingQuorum()
    assert run(controller(quorum, FakeConnections()).submit(ALLOCATE)) == ProducerIdBlock(0, 1)
    assert len(quorum.decided) == 2
