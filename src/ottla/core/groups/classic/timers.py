"""The timers of classic groups. A late timer is harmless, because its handler checks the state again."""

from dataclasses import dataclass

from ottla.core.coordination import Command

# A member that has not got a response yet cannot send heartbeats. One that gave up and joined again would stay forever.
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000


@dataclass(frozen=True, slots=True)
class MemberSessionExpired(Command[None]):
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class RebalanceTimedOut(Command[None]):
    """Removes members that have not rejoined."""

    group_id: str


@dataclass(frozen=True, slots=True)
class InitialRebalanceDelayOver(Command[None]):
    """KIP-134: a new group waits for more members, at most `remaining_ms` longer."""

    group_id: str
    delay_ms: int
    remaining_ms: int


@dataclass(frozen=True, slots=True)
class SyncTimedOut(Command[None]):
    """Removes members that have joined the generation but have not sent SyncGroup."""

    group_id: str
    generation_id: int


def session_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    return ("session", group_id, member_id)


def join_key(group_id: str) -> tuple[str, str]:
    return ("join", group_id)


def sync_key(group_id: str) -> tuple[str, str]:
    return ("sync", group_id)
