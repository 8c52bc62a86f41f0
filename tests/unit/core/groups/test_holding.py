"""Which heartbeats may be kept back, and for how long."""

import uuid

import pytest

from ottla.core.groups.commands import (
    Client,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
    Heartbeat,
    TopicIdPartitions,
)
from ottla.core.groups.holding import brings_news, held_of_interval_ms, held_of_session_ms
from ottla.model.errors import ErrorCode, KafkaError

CLASSIC = Heartbeat(group_id="g", generation_id=3, member_id="m")
CONSUMER = ConsumerGroupHeartbeat(group_id="g", member_id="m", member_epoch=3, client=Client("c", "/h"))
REFUSED = KafkaError(ErrorCode.rebalance_in_progress, "rejoin")
ASSIGNED = (TopicIdPartitions(uuid.UUID(int=7), (0,)),)


def answer(
    epoch: int = 3, assignment: tuple[TopicIdPartitions, ...] | None = None
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse("m", epoch, 5000, assignment)


def test_a_classic_heartbeat_brings_news_only_where_it_is_refused() -> None:
    assert not brings_news(CLASSIC, None)
    assert brings_news(CLASSIC, REFUSED)


@pytest.mark.parametrize(
    "told", [REFUSED, answer(epoch=4), answer(assignment=ASSIGNED), answer(assignment=())]
)
def test_a_refusal_another_epoch_and_an_assignment_are_news_also_an_empty_one(
    told: ConsumerGroupHeartbeatResponse | KafkaError,
) -> None:
    assert brings_news(CONSUMER, told)


def test_a_heartbeat_that_confirms_what_the_member_said_brings_none() -> None:
    assert not brings_news(CONSUMER, answer())


@pytest.mark.parametrize("session_timeout_ms", [6000, 10_000, 45_000, 1_800_000])
def test_who_waits_a_third_of_the_session_after_the_answer_lives_through_the_session(
    session_timeout_ms: int,
) -> None:
    assert held_of_session_ms(session_timeout_ms) + session_timeout_ms // 3 < session_timeout_ms // 2
    assert held_of_session_ms(session_timeout_ms) <= 5000


def test_half_of_the_interval_is_left_to_the_member() -> None:
    assert held_of_interval_ms(5000) == 2500
    assert held_of_interval_ms(60_000) == 5000
