"""What is true of a node at any time. Simulations check it after every event."""

from typing import TYPE_CHECKING

from ottla.core.raft.messages import NO_NODE
from ottla.core.raft.roles import Candidate, Follower, Leader, Prospective, Unattached

if TYPE_CHECKING:
    from ottla.core.raft.node import RaftNode


def check_invariants(node: "RaftNode") -> None:
    """Raises AssertionError if an invariant is broken."""
    log, epochs = node.log, [epoch for epoch, _ in node.log.epochs]
    assert log.start_offset <= log.end_offset, "a log ends where it starts, or after"
    assert epochs == sorted(set(epochs)), "epochs grow along the log"
    assert log.last_epoch <= node.epoch, "no entry is of an epoch that the node has not seen"
    assert node.high_watermark <= log.end_offset, "what is committed is in the log"
    if isinstance(node.role, Leader):
        assert node.role.counts_itself == node.is_voter, "a leader counts itself if it votes"
        assert sorted(node.role.voters) == [voter for voter in node.voters if voter != node.node_id]
        assert node.leader_id == node.node_id, "a leader knows that it leads"
    if isinstance(node.role, Follower):
        assert node.leader_id not in (NO_NODE, node.node_id), "a follower follows another node"
    if isinstance(node.role, Candidate):
        assert node.hard_state.voted_id == node.node_id, "a candidate votes for itself"
    if not node.may_stand:
        # KIP-853: a leader commits its own removal before it resigns.
        assert not isinstance(node.role, Prospective | Candidate), "an observer takes part in no election"
    if node.history.is_fixed and not node.is_voter:
        assert isinstance(node.role, Unattached | Follower), "an observer does not lead"
    assert node.voters == node.history.latest.ids, "the latest voters of the log count"
    latest_offset = node.history.latest_offset
    assert latest_offset is None or latest_offset < log.end_offset or not log.end_offset, (
        "they are in the log"
    )
