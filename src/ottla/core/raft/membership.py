"""Changes of the voters by the leader (KIP-853): one voter at a time, and one change after the other.

Any majority of the voters before a change has a node in common with any majority after it, so two leaders cannot be
elected, as long as no second change begins before the first one is committed. A new leader begins none before it has
committed an entry of its epoch: only then the changes of earlier leaders are committed too, or can no longer be.
"""

from typing import NamedTuple

from ottla.core.raft.node_state import NodeState
from ottla.core.raft.ready import LeaderChange, MembershipChange
from ottla.core.raft.roles import Leader
from ottla.core.raft.voter_change import VoterChange
from ottla.core.raft.voter_set import (
    BOOTSTRAP_OFFSET,
    RECONFIGURATION_FROM,
    KRaftVersion,
    ReplicaKey,
    Voter,
    VoterSet,
)
from ottla.model.errors import ErrorCode

ADDITION_TIMEOUT_MS_MAX = 60_000


class Refusal(NamedTuple):
    error: ErrorCode
    message: str


# Starting a change


def add_voter(
    node: NodeState, voter: Voter, now_ms: int, *, timeout_ms: int, waits_for_commit: bool = True
) -> VoterChange:
    """Appends the new voters as soon as `voter`, which is an observer until then, has caught up.

    Other additions wait meanwhile, so a client cannot choose any timeout. A removal or an update ends it.
    """
    deadline_ms = now_ms + min(timeout_ms, ADDITION_TIMEOUT_MS_MAX)
    change = VoterChange(voter.key, deadline_ms, voter, waits_for_commit)
    voters = node.history.latest
    refusal = refusal_of_any_change(node)
    if refusal is None and voter.id in voters.ids:
        refusal = Refusal(
            ErrorCode.duplicate_voter, f"node {voter.id} is one of the voters already: {voters}"
        )
    if refusal is None and voter.directory_id is None:
        refusal = Refusal(ErrorCode.invalid_request, f"the new voter {voter.id} has no directory id")
    if refusal is None and not _supports(voter, node.history.kraft_version):
        refusal = _unsupported(voter, node.history.kraft_version)
    if refusal is not None:
        return change.end(*refusal)
    assert isinstance(node.role, Leader)
    node.role.change = change
    advance_change(node, node.role, now_ms)
    return change


def remove_voter(node: NodeState, key: ReplicaKey, now_ms: int, *, timeout_ms: int) -> VoterChange:
    change = VoterChange(key, now_ms + timeout_ms)
    voters = node.history.latest
    refusal = _refusal_of_urgent_change(node)
    known = voters.get(key.id)
    if refusal is None and (known is None or known.key != key):
        refusal = Refusal(ErrorCode.voter_not_found, f"{key} is none of the voters {voters}")
    if refusal is None and len(voters.voters) == 1:
        refusal = Refusal(
            ErrorCode.invalid_request, f"{key} is the only voter: without it there would be no quorum"
        )
    if refusal is not None:
        return change.end(*refusal)
    assert isinstance(node.role, Leader)
    _end_waiting_addition(node.role)
    node.role.change = change
    change.offset = _append_voters(node, node.role, voters.without(key.id), now_ms)
    return change


def update_voter(node: NodeState, voter: Voter, now_ms: int) -> Refusal | None:
    """Replaces the endpoints and versions of a voter. As in Kafka, nobody waits for the commit."""
    voters = node.history.latest
    known = voters.get(voter.id)
    refusal = _refusal_of_urgent_change(node)
    if refusal is None and not _supports(voter, node.history.kraft_version):
        refusal = _unsupported(voter, node.history.kraft_version)
    if refusal is None and (known is None or known.key != voter.key):
        refusal = Refusal(ErrorCode.voter_not_found, f"{voter.key} is none of the voters {voters}")
    if refusal is None and known != voter:
        assert isinstance(node.role, Leader)
        _end_waiting_addition(node.role)
        _append_voters(node, node.role, voters.with_voter(voter), now_ms)
    return refusal


def upgrade_kraft_version(node: NodeState, voters: VoterSet, now_ms: int, *, timeout_ms: int) -> VoterChange:
    """From static voters to voters in the log, which are the same nodes."""
    change = VoterChange(node.own.key, now_ms + timeout_ms)
    refusal = _refusal_of_leader(node) or _refusal_of_upgrade(node, voters)
    if refusal is not None:
        return change.end(*refusal)
    assert isinstance(node.role, Leader)
    node.role.change = change
    change.offset = node.append(MembershipChange((KRaftVersion(RECONFIGURATION_FROM), voters))).base_offset
    return change


def _refusal_of_upgrade(node: NodeState, voters: VoterSet) -> Refusal | None:
    if node.history.allows_changes:
        return Refusal(ErrorCode.invalid_update_version, "kraft.version is raised already")
    if voters.ids != node.voters or any(voter.directory_id is None for voter in voters.voters):
        return Refusal(
            ErrorCode.invalid_update_version, f"the voters are {node.history.latest}, not {voters}"
        )
    old = [voter for voter in voters.voters if not _supports(voter, RECONFIGURATION_FROM)]
    if old:
        message = _unsupported(old[0], RECONFIGURATION_FROM).message
        return Refusal(ErrorCode.invalid_update_version, f"{message}. Upgrade its software first")
    return None


def refusal_of_any_change(node: NodeState) -> Refusal | None:
    return _refusal_of_leader(node) or _refusal_of_quorum(node)


def _refusal_of_urgent_change(node: NodeState) -> Refusal | None:
    """Of a change that does not wait for an addition whose new voter still copies the log."""
    return _refusal_of_leader(node, is_urgent=True) or _refusal_of_quorum(node)


def _refusal_of_quorum(node: NodeState) -> Refusal | None:
    refusal = None
    if not node.history.allows_changes:
        level = node.history.kraft_version
        refusal = Refusal(
            ErrorCode.unsupported_version,
            f"the voters are fixed at kraft.version {level}. Upgrade it to {RECONFIGURATION_FROM} first",
        )
    if refusal is None and has_uncommitted_voters(node):
        refusal = Refusal(
            ErrorCode.request_timed_out, "the last change of the voters is not committed yet. Try again"
        )
    return refusal


def _refusal_of_leader(node: NodeState, *, is_urgent: bool = False) -> Refusal | None:
    leader = node.role
    if not isinstance(leader, Leader):
        return Refusal(ErrorCode.not_leader_or_follower, f"node {node.node_id} does not lead the quorum")
    if not leader.counts_itself:
        return Refusal(
            ErrorCode.request_timed_out, f"the leader {node.own.key} is being removed. Ask the next one"
        )
    if leader.change is not None and not (is_urgent and leader.change.is_waiting):
        return Refusal(
            ErrorCode.request_timed_out, f"the change of voter {leader.change.key} is under way. Try again"
        )
    if not has_committed_in_epoch(leader):
        return Refusal(
            ErrorCode.request_timed_out,
            f"the leader has not committed an entry of epoch {node.epoch} yet. Try again",
        )
    return None


def _end_waiting_addition(leader: Leader) -> None:
    """Nothing of it is in the log yet. Its client may ask again."""
    change, leader.change = leader.change, None
    if change is not None:
        change.end(
            ErrorCode.request_timed_out,
            f"voter {change.key} has not caught up, and another change of the voters was asked for. Try again",
        )


def has_committed_in_epoch(leader: Leader) -> bool:
    return leader.has_committed


def has_uncommitted_voters(node: NodeState) -> bool:
    offset = node.history.latest_offset
    return offset is not None and offset >= node.high_watermark


def _supports(voter: Voter, level: int) -> bool:
    low, high = voter.kraft_versions
    return low <= level <= high


def _unsupported(voter: Voter, level: int) -> Refusal:
    low, high = voter.kraft_versions
    return Refusal(
        ErrorCode.invalid_request,
        f"node {voter.id} supports kraft.version {low} to {high}, and not {level}",
    )


# While a change is under way


def begin_epoch(node: NodeState, granting: tuple[int, ...]) -> None:
    """Appends the first entry of a leader's epoch, and the voters if the log does not have them as they are now.

    The log lacks those of the bootstrap snapshot, which nobody fetches, and the leader's new endpoints.
    """
    history = node.history
    voters = history.latest
    node.append(LeaderChange(node.node_id, node.voters, granting))
    if not history.allows_changes:
        return
    # A node whose removal is not committed may win an election, but must not add itself again.
    current = voters.with_voter(node.own) if node.own.endpoints and node.is_voter else voters
    if history.latest_offset == BOOTSTRAP_OFFSET or current != voters:
        node.append(MembershipChange((KRaftVersion(history.kraft_version), current)))


def advance_change(node: NodeState, leader: Leader, now_ms: int) -> None:
    """Appends the voters with one that has caught up; ends a change at its deadline."""
    change = leader.change
    if change is None:
        return
    if change.voter is not None and change.is_waiting and _has_caught_up(node, leader, change.key, now_ms):
        voters = node.history.latest.with_voter(change.voter)
        change.offset = _append_voters(node, leader, voters, now_ms)
        if not change.waits_for_commit:
            change.end(ErrorCode.none)
            leader.change = None
            return
    if now_ms >= change.deadline_ms:
        what = "has not caught up" if change.is_waiting else "is in the log, but not committed"
        change.end(ErrorCode.request_timed_out, f"the change of voter {change.key} {what} in time")
        leader.change = None


def end_committed_change(node: NodeState, leader: Leader) -> None:
    change = leader.change
    if change is not None and change.offset is not None and change.offset < node.high_watermark:
        change.end(ErrorCode.none)
        leader.change = None


def is_removed(node: NodeState) -> bool:
    """KIP-853: a leader that is not one of the committed voters resigns."""
    return isinstance(node.role, Leader) and not node.role.counts_itself and not has_uncommitted_voters(node)


def _has_caught_up(node: NodeState, leader: Leader, key: ReplicaKey, now_ms: int) -> bool:
    """Otherwise the quorum might commit nothing until the new voter has the whole log."""
    progress = leader.observers.get(key.id)
    return (
        progress is not None
        and progress.directory_id == key.directory_id
        and progress.last_caught_up_ms >= 0
        and now_ms - progress.last_caught_up_ms <= node.settings.fetch_timeout_ms
    )


def _append_voters(node: NodeState, leader: Leader, voters: VoterSet, now_ms: int) -> int:
    """Returns the offset of the record."""
    was_only_voter = node.is_only_voter
    entry = node.append(MembershipChange((voters,)))
    if was_only_voter or node.is_only_voter:
        leader.deadline_ms = node.check_quorum_deadline_ms(now_ms)
    leader.announce_ms = now_ms  # a new voter may not know the leader
    return entry.base_offset
