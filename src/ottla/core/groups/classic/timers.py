"""What a classic group waits for. A timer that comes late is harmless: what it was for is looked at again."""

from dataclasses import dataclass

from ottla.core.coordination import Command

# Members that have never been answered cannot send heartbeats; one that gave up and joined anew would stay forever.
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000


@dataclass(frozen=True, slots=True)
class MemberSessionExpired(Command[None]):
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class RebalanceTimedOut(Command[None]):
    """Those who have not rejoined are left behind."""

    group_id: str


@dataclass(frozen=True, slots=True)
class InitialRebalanceDelayOver(Command[None]):
    """KIP-134: a new group waits for more members to come, `remaining_ms` at most."""

    group_id: str
    delay_ms: int
    remaining_ms: int


@dataclass(frozen=True, slots=True)
class SyncTimedOut(Command[None]):
    """Those who have joined the generation but have not asked for their assignment are left behind."""

    group_id: str
    generation_id: int


def session_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    return ("session", group_id, member_id)


def join_key(group_id: str) -> tuple[str, str]:
    return ("join", group_id)


def sync_key(group_id: str) -> tuple[str, str]:
    return ("sync", group_id)
