"""What a raft node wants done: state and entries to be made durable, requests to be sent."""

from typing import NamedTuple

from ottla.core.raft.log_state import OffsetAndEpoch
from ottla.core.raft.messages import NO_NODE, FetchResponse, Outbound, ReplicatedBatch


class HardState(NamedTuple):
    """What a node must not forget: which epoch it has seen, who leads it, and whom it voted for in it."""

    epoch: int = 0
    leader_id: int = NO_NODE
    voted_id: int = NO_NODE


class LeaderChange(NamedTuple):
    """The first entry of an epoch. Entries of earlier epochs are committed with it, never before (Raft, 5.4.2)."""

    leader_id: int
    voters: tuple[int, ...]
    granting_voters: tuple[int, ...]


class Entry(NamedTuple):
    """One batch of the log: a leader change, or records that are committed together, with their encoded values."""

    base_offset: int
    epoch: int
    payload: LeaderChange | tuple[bytes, ...]

    @property
    def next_offset(self) -> int:
        return self.base_offset + (1 if isinstance(self.payload, LeaderChange) else len(self.payload))


class SnapshotChunk(NamedTuple):
    """Bytes of a snapshot that is being fetched. The last chunk makes it take the place of the whole log."""

    snapshot: OffsetAndEpoch
    position: int
    data: bytes
    is_last: bool


class Ready(NamedTuple):
    """To be done in the order of the fields; see `node`. None and empty fields have nothing to do."""

    hard_state: HardState | None
    truncate_to: int | None
    entries: tuple[Entry | ReplicatedBatch, ...]
    chunk: SnapshotChunk | None
    messages: tuple[Outbound, ...]


class FetchDecision(NamedTuple):
    """The response to a fetch, to which the batches are to be added from the log if `reads_log`.

    If there are none, the response may wait for some, unless it `has_news`: an error, or a higher high watermark.
    """

    response: FetchResponse
    reads_log: bool = False
    has_news: bool = True
