"""The timers of consumer groups. A late timer is harmless, because its handler checks the state again."""

from dataclasses import dataclass

from ottla.core.coordination import Command


@dataclass(frozen=True, slots=True)
class SessionExpired(Command[None]):
    """The member has sent no heartbeat for the session timeout."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class RevocationTimedOut(Command[None]):
    """The member has not revoked its partitions within its rebalance timeout."""

    group_id: str
    member_id: str
    member_epoch: int


@dataclass(frozen=True, slots=True)
class AssignmentDue(Command[None]):
    """KIP-1263: the assignment interval since the last target is over."""

    group_id: str


@dataclass(frozen=True, slots=True)
class RefreshSubscriptions(Command[None]):
    """Topics have changed: refreshes groups that get no heartbeat right now."""


REFRESH_KEY = ("refresh subscriptions",)


def session_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    return ("session", group_id, member_id)


def revocation_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    return ("revocation", group_id, member_id)


def assignment_key(group_id: str) -> tuple[str, str]:
    return ("assignment", group_id)
