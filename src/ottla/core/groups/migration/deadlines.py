"""The deadlines by which a classic member of a consumer group must rejoin when asked, and sync once it has joined.

A consumer group has no rebalance timeout of its own, which would limit this in a classic group.
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
    """Keeps track of running timers: starting a timer again does not extend it."""

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
        """The timer has fired. False if it was cancelled before."""
        is_running = timer in self._running
        self._running.discard(timer)
        return is_running
