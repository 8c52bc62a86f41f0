"""A shell for tests: commits every record at once, and runs timers on a clock that the test advances."""

import itertools
from collections.abc import Hashable
from typing import Any

from ottla.core.coordination import Command, Decision, StartTimer
from ottla.model.errors import KafkaError

START_MS = 1_000_000


class FakeShell:
    """Runs one machine: either a whole shard (`decide`, `replay`, `on_loaded`) or one of its parts, with a table
    `DECIDE`.

    `records` is the log, `replies` has the response of each waiter (maybe a KafkaError), `timers` the running
    timers. `validate()` runs after every event.

    """

    def __init__(self, machine: Any, now_ms: int = START_MS) -> None:
        self.machine = machine
        self.now_ms = now_ms
        self.records: list[tuple[Any, Any]] = []
        self.replies: dict[Hashable, Any] = {}
        self.timers: dict[Hashable, tuple[int, int, Command[Any]]] = {}
        self._waiters = itertools.count(1)
        self._started = itertools.count()

    def decide(self, command: Command[Any]) -> int:
        """Returns the waiter, the key of the response in `replies`."""
        waiter = next(self._waiters)
        try:
            self._perform(self._decision(command, waiter))
        except KafkaError as rejection:
            self.replies[waiter] = rejection
        self.machine.validate()
        return waiter

    def ask(self, command: Command[Any]) -> Any:
        """For commands with an immediate response: returns it, or raises it if it is an error."""
        waiter = self.decide(command)
        assert waiter in self.replies, f"{command} still waits"
        response = self.replies[waiter]
        if isinstance(response, KafkaError):
            raise response
        return response

    def advance(self, ms: int) -> None:
        """Advances the clock by `ms` and fires the timers that are due, in order."""
        end_ms = self.now_ms + ms
        while self.timers:
            key, (due_ms, _, command) = min(self.timers.items(), key=lambda timer: timer[1][:2])
            if due_ms > end_ms:
                break
            del self.timers[key]
            self.now_ms = max(self.now_ms, due_ms)
            self._perform(self._decision(command, None))
            self.machine.validate()
        self.now_ms = end_ms

    def set_clock(self, ms: int) -> None:
        """Sets the wall clock forward or back by `ms`. Timers run on a monotonic clock: they do not notice."""
        self.now_ms += ms
        self.timers = {
            key: (due_ms + ms, number, command) for key, (due_ms, number, command) in self.timers.items()
        }

    def rebuilt(self, fresh: Any) -> Any:
        """`fresh`, after it has replayed the whole log."""
        for key, value in self.records:
            fresh.replay(key, value)
        return fresh

    def reload(self, fresh: Any) -> None:
        """As after a restart: waiters are dropped, and `fresh` replays the log and replaces the machine."""
        self.machine = self.rebuilt(fresh)
        self.timers.clear()
        if hasattr(fresh, "DECIDE"):
            decision: Decision[Any, Any] = Decision(fresh.replay)
            fresh.on_loaded(decision, self.now_ms)
        else:
            decision = fresh.on_loaded(self.now_ms)
        self._perform(decision)
        fresh.validate()

    def _decision(self, command: Command[Any], waiter: int | None) -> Decision[Any, Any]:
        if not hasattr(self.machine, "DECIDE"):
            decision: Decision[Any, Any] = self.machine.decide(command, waiter, self.now_ms)
            return decision
        decision = Decision(self.machine.replay)
        self.machine.DECIDE[type(command)](self.machine, command, waiter, decision, self.now_ms)
        return decision

    def _perform(self, decision: Decision[Any, Any]) -> None:
        self.records += decision.records
        for reply in decision.replies:
            assert reply.waiter not in self.replies, f"waiter {reply.waiter} got two responses"
            self.replies[reply.waiter] = reply.response
        for change in decision.timer_changes:
            if isinstance(change, StartTimer):
                self.timers[change.key] = (self.now_ms + change.delay_ms, next(self._started), change.command)
            else:
                self.timers.pop(change.key, None)
