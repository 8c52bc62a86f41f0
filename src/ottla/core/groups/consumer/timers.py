"""What a consumer group waits for. A timer that comes late is harmless: what it was for is looked at again."""

from dataclasses import dataclass

from ottla.core.coordination import Command


@dataclass(frozen=True, slots=True)
class SessionExpired(Command[None]):
    """The member was silent for too long."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class RevocationTimedOut(Command[None]):
    """The member has not given up what it was asked to give up, and others wait for it."""

    group_id: str
    member_id: str
    member_epoch: int


@dataclass(frozen=True, slots=True)
class AssignmentDue(Command[None]):
    """KIP-1263: since the last target enough time has passed for the next."""

    group_id: str


@dataclass(frozen=True, slots=True)
class RefreshSubscriptions(Command[None]):
    """Topics have changed: groups in which nobody speaks right now are looked after as well."""


REFRESH_KEY = ("refresh subscriptions",)


def session_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    return ("session", group_id, member_id)


def revocation_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    return ("revocation", group_id, member_id)


def assignment_key(group_id: str) -> tuple[str, str]:
    return ("assignment", group_id)
