"""How long a heartbeat without news may wait for its answer, so that news, when there are some, come at once.

A member hears of a rebalance in the answer to its next heartbeat: by default seconds later. A heartbeat that is kept
back is such an answer waiting to be given. It must come back long before the client begins to doubt: clients that send
the next heartbeat an interval (a third of the session, by Kafka's advice) after the answer still live through the
session. And a member of the consumer protocol has one heartbeat on its way at a time: what it has to say itself (a new
subscription) waits for the answer of the one before, so half of the interval is left to it.
"""

from ottla.core.groups.commands import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
    Heartbeat,
)
from ottla.model.errors import KafkaError

HELD_MAX_MS = 5000

HeartbeatAnswer = ConsumerGroupHeartbeatResponse | KafkaError | None


def brings_news(command: Heartbeat | ConsumerGroupHeartbeat, answer: HeartbeatAnswer) -> bool:
    """A refusal, an assignment or another epoch. A heartbeat of the classic protocol has no other answer than these."""
    if isinstance(answer, ConsumerGroupHeartbeatResponse) and isinstance(command, ConsumerGroupHeartbeat):
        return answer.assignment is not None or answer.member_epoch != command.member_epoch
    return answer is not None


def held_of_session_ms(session_timeout_ms: int) -> int:
    return min(session_timeout_ms // 9, HELD_MAX_MS)


def held_of_interval_ms(heartbeat_interval_ms: int) -> int:
    return min(heartbeat_interval_ms // 2, HELD_MAX_MS)
