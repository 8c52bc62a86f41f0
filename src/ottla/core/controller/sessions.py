"""When the controller last heard from each broker. Not replicated: a controller that becomes active gives every broker
a short time to report.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ottla.core.controller.settings import ControllerSettings


@dataclass(slots=True)
class BrokerSession:
    """`timeout_ms` is when broker.session.timeout.ms ends. `deadline_ms`, when the broker is fenced, is earlier if
    there is evidence that it has died. `connection` is that of its last heartbeat.

    `metadata_offset` is the last record that the broker has applied, -1 if it has not said so yet. `shutdown_offset` is
    the last record of its controlled shutdown: the other brokers must know it before it stops.
    """

    deadline_ms: int
    timeout_ms: int
    metadata_offset: int = -1
    connection: object = None
    shutdown_offset: int | None = None


class _Contact(NamedTuple):
    """A fenced broker counts as alive until `deadline_ms`."""

    deadline_ms: int
    connection: object = None


class BrokerSessions:
    """The sessions of the brokers that are not fenced. All operations but `lowest_offset` take constant time.

    A fenced broker has no session, but may be alive: it opens its logs, or has lost its directories. Only its id is
    kept for it, so that no second process with the same node.id takes it away.

    `suspected` has the brokers that were fenced on evidence only, and when their broker.session.timeout.ms ends. They
    may be alive, with committed records that no other replica has, so until then no unclean election may discard these.
    """

    def __init__(self, settings: ControllerSettings) -> None:
        self._timeout_ms = settings.session_timeout_ms
        self._grace_ms = settings.disconnect_grace_ms
        self._activation_grace_ms = settings.activation_grace_ms
        # In the order of their deadlines, but for those whose session was shortened since their last heartbeat.
        self._sessions: OrderedDict[int, BrokerSession] = OrderedDict()
        self._disconnected: set[int] = set()
        self._fenced: dict[int, _Contact] = {}
        self.suspected: dict[int, int] = {}

    def __contains__(self, broker_id: int) -> bool:
        return broker_id in self._sessions

    def __iter__(self) -> Iterator[int]:
        return iter(self._sessions)

    def get(self, broker_id: int) -> BrokerSession | None:
        return self._sessions.get(broker_id)

    def is_valid(self, broker_id: int, now_ms: int) -> bool:
        session = self._sessions.get(broker_id)
        return session is not None and now_ms < session.deadline_ms

    def is_alive(self, broker_id: int, now_ms: int) -> bool:
        """Whether the broker has a valid session, or is fenced and has sent a heartbeat lately."""
        contact = self._fenced.get(broker_id)
        is_heard = contact is not None and now_ms < contact.deadline_ms
        return is_heard or self.is_valid(broker_id, now_ms)

    def touch(
        self, broker_id: int, now_ms: int, metadata_offset: int = -1, connection: object = None
    ) -> BrokerSession:
        """The broker has sent a heartbeat."""
        timeout_ms = now_ms + self._timeout_ms
        self.suspected.pop(broker_id, None)
        self._fenced.pop(broker_id, None)
        session = self._sessions.get(broker_id)
        if session is None:
            session = BrokerSession(timeout_ms, timeout_ms, metadata_offset, connection)
            self._sessions[broker_id] = session
            return session
        session.deadline_ms = session.timeout_ms = timeout_ms
        session.metadata_offset = metadata_offset
        session.connection = connection
        self._sessions.move_to_end(broker_id)
        self._disconnected.discard(broker_id)
        return session

    def register(self, broker_id: int, now_ms: int) -> None:
        """A process of the broker has registered. It is fenced, and sends its first heartbeat at once."""
        self.end(broker_id)
        self._fenced[broker_id] = _Contact(now_ms + self._grace_ms)

    def touch_fenced(self, broker_id: int, now_ms: int, connection: object = None) -> None:
        """The broker has sent a heartbeat, and is fenced."""
        self.end(broker_id)
        self._fenced[broker_id] = _Contact(now_ms + self._timeout_ms, connection)

    def disconnected(self, broker_id: int, connection: object, now_ms: int) -> None:
        """Nothing follows from it if the broker has sent a heartbeat on another connection since."""
        contact = self._fenced.get(broker_id)
        if contact is not None and contact.connection is connection:
            deadline_ms = min(contact.deadline_ms, now_ms + self._grace_ms)
            self._fenced[broker_id] = contact._replace(deadline_ms=deadline_ms)
        session = self._sessions.get(broker_id)
        if session is not None and session.connection is connection:
            self._shorten(broker_id, now_ms + self._grace_ms)

    def expect(self, broker_id: int, now_ms: int) -> None:
        """A new controller has not heard from the broker yet. Brokers that are alive send a heartbeat at once."""
        self.touch(broker_id, now_ms)
        self._shorten(broker_id, now_ms + self._activation_grace_ms)

    def _shorten(self, broker_id: int, deadline_ms: int) -> None:
        session = self._sessions.get(broker_id)
        if session is not None:
            session.deadline_ms = min(session.deadline_ms, deadline_ms)
            self._disconnected.add(broker_id)

    def doubts_another(self, broker_id: int) -> bool:
        """Whether another broker may be dead: its connection was closed, or this controller has yet to hear from it."""
        return any(other != broker_id for other in self._disconnected)

    def end(self, broker_id: int) -> None:
        self._sessions.pop(broker_id, None)
        self._disconnected.discard(broker_id)
        self._fenced.pop(broker_id, None)

    def suspect(self, broker_id: int, now_ms: int) -> None:
        """The broker is fenced, now that its session has expired."""
        session = self._sessions.get(broker_id)
        if session is not None and now_ms < session.timeout_ms:
            self.suspected[broker_id] = session.timeout_ms

    def suspect_fenced(self, broker_id: int, now_ms: int) -> None:
        """A new controller does not know since when the broker is fenced, and why."""
        self.suspected[broker_id] = now_ms + self._timeout_ms

    def end_suspicions(self, now_ms: int) -> bool:
        """Ends those whose time is over. Returns whether there were any."""
        ended = [broker_id for broker_id, end_ms in self.suspected.items() if end_ms <= now_ms]
        for broker_id in ended:
            del self.suspected[broker_id]
        return bool(ended)

    def next_deadline_ms(self) -> int | None:
        candidates = [self._sessions[broker_id].deadline_ms for broker_id in self._disconnected]
        candidates += self.suspected.values()
        oldest = next(
            (session for broker_id, session in self._sessions.items() if broker_id not in self._disconnected),
            None,
        )
        if oldest is not None:
            candidates.append(oldest.deadline_ms)
        return min(candidates, default=None)

    def expired(self, now_ms: int) -> list[int]:
        return sorted(broker_id for broker_id in self._sessions if not self.is_valid(broker_id, now_ms))

    def lowest_offset(self, broker_ids: Iterable[int]) -> int | None:
        """The metadata that all of these brokers have applied; None if there are none."""
        offsets = [self._sessions[each].metadata_offset for each in broker_ids if each in self._sessions]
        return min(offsets, default=None)
