"""The requests that a node sends to others, by its role."""

from ottla.core.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    Request,
    VoteRequest,
)
from ottla.core.raft.node_state import NodeState
from ottla.core.raft.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached


def due_requests(node: NodeState, now_ms: int) -> list[tuple[int, Request]]:
    """With their receivers. Those whose receiver has a request already are asked for again later."""
    match node.role:
        case Prospective(votes=votes) | Candidate(votes=votes) if not votes.is_lost:
            return [(voter, _vote_request(node, voter)) for voter in votes.missing]
        case Leader() as leader:
            return _announcements(node, leader, now_ms)
        case Resigned() as resigned:
            end = EndQuorumEpochRequest(node.epoch, node.node_id, resigned.preferred_successors)
            return [(voter, end) for voter in sorted(resigned.unacknowledged)]
        case Follower() as follower:
            return _fetches(node, follower, now_ms)
        case Unattached() if not node.has_unsaved_log:
            return _search_for_leader(node, now_ms)
    return []


def _vote_request(node: NodeState, voter: int) -> VoteRequest:
    return VoteRequest(
        node.epoch,
        node.node_id,
        node.log.end,
        isinstance(node.role, Prospective),
        node.own.directory_id,
        node.history.latest.directory_id_of(voter),
    )


def _announcements(node: NodeState, leader: Leader, now_ms: int) -> list[tuple[int, Request]]:
    """BeginQuorumEpoch requests to the voters that may not know the leader."""
    if now_ms < leader.announce_ms:
        return []
    period_ms = node.settings.fetch_timeout_ms // 2
    leader.announce_ms = now_ms + period_ms
    voters = node.history.latest
    return [
        (voter, BeginQuorumEpochRequest(node.epoch, node.node_id, voters.directory_id_of(voter)))
        for voter in leader.silent_voters(now_ms, period_ms)
    ]


def _fetches(node: NodeState, follower: Follower, now_ms: int) -> list[tuple[int, Request]]:
    if node.has_unsaved_log:
        return []
    fetch: Request = _fetch_request(node)
    if follower.snapshot is not None:
        position, directory_id = follower.snapshot_position, node.own.directory_id
        fetch = FetchSnapshotRequest(node.epoch, node.node_id, follower.snapshot, position, directory_id)
    return [(node.leader_id, fetch), *_search_for_successor(node, follower, now_ms)]


def _search_for_successor(node: NodeState, follower: Follower, now_ms: int) -> list[tuple[int, Request]]:
    """The leader may be dead. Nobody announces the next one to an observer, or to a voter that the others know at an
    address where it no longer is.
    """
    failures = node.outbox.failures(node.leader_id)
    is_confirmed = failures == follower.failures_at_confirmation
    is_waiting = is_confirmed and not node.outbox.is_paused(node.leader_id, now_ms)
    return [] if failures == 0 or is_waiting else _search_for_leader(node, now_ms)


def _fetch_request(node: NodeState) -> FetchRequest:
    """Only for a node without an unsaved log: a fetch reports that the log is durable up to its offset."""
    end = node.log.end
    return FetchRequest(
        node.epoch, node.node_id, end.offset, end.epoch, node.high_watermark, node.own.directory_id
    )


def _search_for_leader(node: NodeState, now_ms: int) -> list[tuple[int, Request]]:
    """Asks the voters in the log and those that were found at the start: the log may be old (KIP-853).

    As in Kafka, a voter asks only the latter: it asks those in its log for their votes, which tells it as much.
    """
    found = [server for server in node.history.static.ids if server not in node.voters]
    known = found if node.may_stand else [*node.voters, *found]
    others = [server for server in known if server not in (node.node_id, node.leader_id)]
    asked = node.outbox.choose(others, now_ms)
    return [] if asked is None else [(asked, _fetch_request(node))]
