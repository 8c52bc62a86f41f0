"""A member of a classic group, with its requests that wait for a response."""

from collections.abc import Container

from ottla.core.coordination import Waiter
from ottla.core.groups.classic.timers import MemberSessionExpired, session_key
from ottla.core.groups.commands import Client, DescribedMember
from ottla.core.groups.group import GroupDecision

Protocols = tuple[tuple[str, bytes], ...]
NO_ASSIGNMENT = b""


def distinct_protocols(protocols: Protocols) -> Protocols:
    """Removes later duplicates of a name; keeps the member's order of preference."""
    by_name: dict[str, bytes] = {}
    for name, metadata in protocols:
        by_name.setdefault(name, metadata)
    return tuple(by_name.items())


class ClassicMember:
    __slots__ = (
        "_session_expired",
        "_session_key",
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "client",
        "group_instance_id",
        "is_new",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )

    def __init__(
        self,
        group_id: str,
        member_id: str,
        *,
        client: Client,
        group_instance_id: str | None,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = NO_ASSIGNMENT,
    ) -> None:
        self.member_id = member_id
        self.client = client
        self.group_instance_id = group_instance_id
        self.set_timeouts(rebalance_timeout_ms, session_timeout_ms)
        self.protocols = distinct_protocols(protocols)
        self.assignment = assignment
        self.is_new = False  # has not got a response yet, so it cannot send heartbeats
        self.awaiting_join: Waiter = None
        self.awaiting_sync: Waiter = None
        self._session_key = session_key(group_id, member_id)
        self._session_expired = MemberSessionExpired(group_id, member_id)

    def set_timeouts(self, rebalance_timeout_ms: int, session_timeout_ms: int) -> None:
        """JoinGroup v0 has no rebalance timeout; the session timeout is used instead."""
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = session_timeout_ms if rebalance_timeout_ms < 0 else rebalance_timeout_ms

    def metadata(self, protocol_name: str) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        raise AssertionError(f"member {self.member_id} does not support the protocol {protocol_name}")

    def vote(self, candidates: Container[str]) -> str:
        """The member's most preferred protocol of `candidates`, which all members support."""
        return next(name for name, _ in self.protocols if name in candidates)

    @property
    def awaits_response(self) -> bool:
        """A member that waits for a response sends no heartbeats, so its session must not expire. A new member may have
        given up, so it does not count.
        """
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def restart_session(self, decision: GroupDecision, timeout_ms: int | None = None) -> None:
        delay_ms = self.session_timeout_ms if timeout_ms is None else timeout_ms
        decision.start_timer(self._session_key, delay_ms, self._session_expired)

    def end_session(self, decision: GroupDecision) -> None:
        decision.cancel_timer(self._session_key)

    def as_described_member(self, protocol_name: str | None) -> DescribedMember:
        """`protocol_name` is None if the group is not stable; then no metadata is shown."""
        metadata = b"" if protocol_name is None else self.metadata(protocol_name)
        return DescribedMember(self.member_id, self.group_instance_id, self.client, metadata, self.assignment)
