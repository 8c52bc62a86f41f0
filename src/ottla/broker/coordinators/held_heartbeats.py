"""Heartbeats whose answer is kept back until there is news, the client presses for it, or it has waited long enough."""

from typing import Any, cast

from ottla.broker.coordinators.shard import CoordinatorShard
from ottla.broker.pending import Pending
from ottla.broker.waiting_room import WaitingRoom
from ottla.core.coordination import Command, Decision
from ottla.core.groups.commands import ConsumerGroupHeartbeat, Heartbeat
from ottla.core.groups.shard import GroupShard
from ottla.core.purgatory import Operation
from ottla.protocol.group_records.records import OffsetCommitKey


def held_until_news(
    shard: CoordinatorShard[GroupShard],
    command: Heartbeat | ConsumerGroupHeartbeat,
    waiting_room: WaitingRoom,
) -> Pending[Any]:
    """Decides the heartbeat, which is the sign of life that it is, and holds its answer where that tells nothing."""
    answer: Pending[Any] = shard.submit(cast(Command[Any], command))
    if not answer.done:
        return answer
    hold_ms = shard.machine.hold_ms(command, answer.value)
    if hold_ms == 0:
        return answer
    held = HeldHeartbeat(shard, command, answer.value)
    held.pending.on_abandon = lambda: waiting_room.cancel(held)

    def pressed() -> None:
        waiting_room.cancel(held)
        held.pending.complete(answer.value)

    held.pending.on_press = pressed
    waiting_room.wait(held, (_key(command.group_id),), hold_ms)
    return held.pending


def tell_held_heartbeats(
    waiting_room: WaitingRoom, command: Command[Any] | None, decision: Decision[Any, Any]
) -> None:
    """A decision has been made: looks at the held heartbeats of the groups that it may have changed.

    Those are the group of the command, and those whose records were written; heartbeats and commits that changed
    nothing but offsets, which is what most are, cost nothing.
    """
    if decision.packed is not None:  # offsets and nothing else
        return
    if decision.records:
        touched = {_group_of(key): None for key, _ in decision.records if type(key) is not OffsetCommitKey}
    elif isinstance(command, Heartbeat | ConsumerGroupHeartbeat):
        return
    else:
        touched = {getattr(command, "group_id", None): None}
    for group_id in touched:
        if group_id is not None:
            waiting_room.notify(_key(group_id))


class HeldHeartbeat(Operation):
    def __init__(
        self, shard: CoordinatorShard[GroupShard], command: Heartbeat | ConsumerGroupHeartbeat, answer: Any
    ) -> None:
        super().__init__()
        self.pending: Pending[Any] = Pending()
        self._shard = shard
        self._command = command
        self._answer = answer

    def try_complete(self, now_ms: int) -> bool:
        if self._shard.machine.hold_ms(self._command, self._answer) > 0:
            return False
        # Decided anew, as if it had come now; that answer has the news, or an error that is some.
        self._shard.submit(cast(Command[Any], self._command)).subscribe(self.pending.complete)
        return True

    def on_expire(self, now_ms: int) -> None:
        self.pending.complete(self._answer)

    def on_error(self, error: Exception) -> None:
        self.pending.complete(self._answer)


def _group_of(key: Any) -> str | None:
    group: str | None = getattr(key, "group_id", None) or getattr(key, "group", None)
    return group


def _key(group_id: str) -> tuple[str, str]:
    return ("heartbeats", group_id)
