"""What a node asks for: state and entries to make durable, and requests to send."""

from typing import NamedTuple
from uuid import UUID

from ottla.core.raft.log_state import OffsetAndEpoch
from ottla.core.raft.messages import NO_NODE, FetchResponse, Outbound, ReplicatedBatch
from ottla.core.raft.voter_set import MembershipRecord


class HardState(NamedTuple):
    """The durable part of a node's state: the latest epoch, its leader, and the node's vote in it."""

    epoch: int = 0
    leader_id: int = NO_NODE
    voted_id: int = NO_NODE
    voted_directory_id: UUID | None = None

    def in_epoch(self, epoch: int, leader_id: int) -> "HardState":
        """The state after a move to `epoch`. A vote counts in its epoch only."""
        if epoch == self.epoch:
            return self._replace(leader_id=leader_id)
        return HardState(epoch, leader_id)


class LeaderChange(NamedTuple):
    """The first entry of an epoch. Entries of earlier epochs are committed only together with it (Raft, 5.4.2)."""

    leader_id: int
    voters: tuple[int, ...]
    granting_voters: tuple[int, ...]


class MembershipChange(NamedTuple):
    """Records that say who votes from now on (KIP-853)."""

    records: tuple[MembershipRecord, ...]


Payload = LeaderChange | MembershipChange | tuple[bytes, ...]


class Entry(NamedTuple):
    """A batch of the log: control records, or the encoded values of records that are committed together."""

    base_offset: int
    epoch: int
    payload: Payload

    @property
    def next_offset(self) -> int:
        match self.payload:
            case LeaderChange():
                return self.base_offset + 1
            case MembershipChange(records=records):
                return self.base_offset + len(records)
            case values:
                return self.base_offset + len(values)


class SnapshotChunk(NamedTuple):
    """A part of a snapshot that is being fetched. After the last part, the snapshot replaces the whole log.

    `membership`: the voters in the snapshot. The caller of `advance` adds them when it has written the last part.
    """

    snapshot: OffsetAndEpoch
    position: int
    data: bytes
    is_last: bool
    membership: tuple[MembershipRecord, ...] = ()


class Ready(NamedTuple):
    """Work to do in the order of the fields, as the package describes."""

    hard_state: HardState | None
    truncate_to: int | None
    entries: tuple[Entry | ReplicatedBatch, ...]
    chunk: SnapshotChunk | None
    messages: tuple[Outbound, ...]


class FetchDecision(NamedTuple):
    """The response to a fetch. The caller adds batches from the log if `reads_log` is set.

    If there are none, the response may wait for some, unless it `has_news`: an error, or a higher high watermark.
    """

    response: FetchResponse
    reads_log: bool = False
    has_news: bool = True
