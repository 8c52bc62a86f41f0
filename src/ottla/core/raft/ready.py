"""What a node asks for: state and entries to make durable, and requests to send."""

from typing import NamedTuple

from ottla.core.raft.log_state import OffsetAndEpoch
from ottla.core.raft.messages import NO_NODE, FetchResponse, Outbound, ReplicatedBatch


class HardState(NamedTuple):
    """The durable part of a node's state: the latest epoch, its leader, and the node's vote in it."""

    epoch: int = 0
    leader_id: int = NO_NODE
    voted_id: int = NO_NODE


class LeaderChange(NamedTuple):
    """The first entry of an epoch. Entries of earlier epochs are committed only together with it (Raft, 5.4.2)."""

    leader_id: int
    voters: tuple[int, ...]
    granting_voters: tuple[int, ...]


class Entry(NamedTuple):
    """A batch of the log: a leader change, or the encoded values of records that are committed together."""

    base_offset: int
    epoch: int
    payload: LeaderChange | tuple[bytes, ...]

    @property
    def next_offset(self) -> int:
        return self.base_offset + (1 if isinstance(self.payload, LeaderChange) else len(self.payload))


class SnapshotChunk(NamedTuple):
    """A part of a snapshot that is being fetched. After the last part, the snapshot replaces the whole log."""

    snapshot: OffsetAndEpoch
    position: int
    data: bytes
    is_last: bool


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
