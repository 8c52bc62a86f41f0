"""The requests and responses between the nodes of a quorum (KIP-595, pre-vote KIP-996), without their encoding.

Every response has the epoch of its sender and the leader that the sender knows, so every exchange can tell a node of a
new leader. The epoch of a request is that of its sender.
"""

from typing import Any, NamedTuple
from uuid import UUID

from ottla.core.raft.log_state import OffsetAndEpoch
from ottla.core.raft.voter_set import LoggedMembership
from ottla.model.errors import ErrorCode

NO_NODE = -1
EPOCH_MAX = 2**31 - 1  # no epoch could follow it: a node that accepted it could never be elected again
# Of a fetch whose sender does not say which high watermark it knows (before KIP-1166).
UNKNOWN_HIGH_WATERMARK = 2**63 - 1


class VoteRequest(NamedTuple):
    """`log_end` is that of the candidate. A voter rejects a candidate whose log ends before its own.

    `voter_directory_id` is that of the voter that is asked, if the candidate knows it.
    """

    epoch: int
    candidate_id: int
    log_end: OffsetAndEpoch
    is_pre_vote: bool
    candidate_directory_id: UUID | None = None
    voter_directory_id: UUID | None = None


class VoteResponse(NamedTuple):
    epoch: int
    leader_id: int
    is_granted: bool
    error: ErrorCode = ErrorCode.none


class BeginQuorumEpochRequest(NamedTuple):
    epoch: int
    leader_id: int
    voter_directory_id: UUID | None = None


class EndQuorumEpochRequest(NamedTuple):
    """The leader resigns. `preferred_successors` has the voters with the longest logs first."""

    epoch: int
    leader_id: int
    preferred_successors: tuple[int, ...]


class EpochResponse(NamedTuple):
    """The response to BeginQuorumEpoch and EndQuorumEpoch."""

    epoch: int
    leader_id: int
    error: ErrorCode = ErrorCode.none


class FetchRequest(NamedTuple):
    """The sender's log is durable up to `offset`; `last_epoch` is the epoch of its last batch."""

    epoch: int
    replica_id: int
    offset: int
    last_epoch: int
    high_watermark: int = UNKNOWN_HIGH_WATERMARK
    directory_id: UUID | None = None


class ReplicatedBatch(NamedTuple):
    """A batch from the leader. Raft does not read `data`; `membership` are the records in it that say who votes."""

    base_offset: int
    next_offset: int
    epoch: int
    data: Any
    membership: tuple[LoggedMembership, ...] = ()


class FetchResponse(NamedTuple):
    """At most one of `diverging`, `snapshot` and `batches` is set.

    `diverging`: where the leader's log ends in the epoch that the follower's may have been in: truncate there.
    `snapshot`: the leader no longer has the records; fetch this snapshot instead.
    """

    epoch: int
    leader_id: int
    high_watermark: int = -1
    batches: tuple[ReplicatedBatch, ...] = ()
    diverging: OffsetAndEpoch | None = None
    snapshot: OffsetAndEpoch | None = None
    error: ErrorCode = ErrorCode.none


class FetchSnapshotRequest(NamedTuple):
    epoch: int
    replica_id: int
    snapshot: OffsetAndEpoch
    position: int
    directory_id: UUID | None = None


class FetchSnapshotResponse(NamedTuple):
    """`data` has the bytes from `position` on; `size` is that of the whole snapshot."""

    epoch: int
    leader_id: int
    snapshot: OffsetAndEpoch | None = None
    size: int = 0
    position: int = 0
    data: bytes = b""
    error: ErrorCode = ErrorCode.none


Request = VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest | FetchRequest | FetchSnapshotRequest
Response = VoteResponse | EpochResponse | FetchResponse | FetchSnapshotResponse


class Outbound(NamedTuple):
    """A request to send. Report its response, or its failure, to the node with the same `number`."""

    number: int
    to: int
    request: Request
