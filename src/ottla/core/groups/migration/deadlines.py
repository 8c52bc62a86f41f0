"""How long a classic member in a consumer group may take to rejoin when asked to, and to sync once it has joined.

These take the place of a rebalance timeout of the group, which a consumer group does not have.
"""

from dataclasses import dataclass
from enum import Enum

from ottla.core.coordination import Command
from ottla.core.groups.group import GroupDecision


class Awaited(Enum):
    JOIN = "join"
    SYNC = "sync"


@dataclass(frozen=True, slots=True)
class ClassicMemberTimedOut(Command[None]):
    group_id: str
    member_id: str
    awaited: Awaited


class Deadlines:
    """Knows which of its timers run: one that was started first is not put off by starting it again."""

    def __init__(self) -> None:
        self._running: set[ClassicMemberTimedOut] = set()

    def start(self, timer: ClassicMemberTimedOut, delay_ms: int, decision: GroupDecision) -> None:
        if timer not in self._running:
            self._running.add(timer)
            decision.start_timer(("classic member", timer), max(delay_ms, 0), timer)

    def cancel(self, timer: ClassicMemberTimedOut, decision: GroupDecision) -> None:
        if timer in self._running:
            self._running.remove(timer)
            decision.cancel_timer(("classic member", timer))

    def expire(self, timer: ClassicMemberTimedOut) -> bool:
        """The timer has fired. False: what it was for had come before."""
        is_running = timer in self._running
        self._running.discard(timer)
        return is_running
