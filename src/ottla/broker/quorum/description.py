"""What the leader knows of the quorum: the content of DescribeQuorum (KIP-836)."""

from typing import NamedTuple
from uuid import UUID

from ottla.core.raft.node import UNKNOWN_OFFSET, RaftNode
from ottla.core.raft.roles import Leader, Progress


class ReplicaDescription(NamedTuple):
    """-1 is unknown."""

    replica_id: int
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int
    directory_id: UUID | None = None  # from kraft.version 1 on


class QuorumDescription(NamedTuple):
    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[ReplicaDescription, ...]
    observers: tuple[ReplicaDescription, ...]


def describe_quorum(node: RaftNode, now_ms: int, wall_ms: int) -> QuorumDescription | None:
    """None unless `node` leads. `now_ms` is the time of the node's clock, `wall_ms` that of the timestamps."""
    leader = node.role
    if not isinstance(leader, Leader):
        return None
    leader.forget_inactive_observers(now_ms)
    voters = node.history.latest
    own = ReplicaDescription(node.node_id, node.log.end_offset, wall_ms, wall_ms)
    ahead_ms = wall_ms - now_ms
    return QuorumDescription(
        node.node_id,
        node.epoch,
        node.high_watermark if leader.has_committed else UNKNOWN_OFFSET,
        tuple(
            (
                own if voter.id == node.node_id else _describe(voter.id, leader.voters[voter.id], ahead_ms)
            )._replace(directory_id=voter.directory_id)
            for voter in voters.voters
        ),
        tuple(
            _describe(observer, progress, ahead_ms)._replace(
                directory_id=progress.directory_id if node.history.allows_changes else None
            )
            for observer, progress in sorted(leader.observers.items())
        ),
    )


def _describe(replica_id: int, progress: Progress, ahead_ms: int) -> ReplicaDescription:
    fetched_ms, caught_up_ms = (
        time_ms + ahead_ms if time_ms >= 0 else UNKNOWN_OFFSET
        for time_ms in (progress.last_fetch_ms, progress.last_caught_up_ms)
    )
    return ReplicaDescription(replica_id, progress.end_offset, fetched_ms, caught_up_ms)
