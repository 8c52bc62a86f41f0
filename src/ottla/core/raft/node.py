"""Raft as KIP-595 has it, for a quorum of one voter.

The shape is the whole of it: `step` takes what other nodes say, `tick` the time, `propose` what is to be agreed on.
None of them does anything but change the node's mind; `ready` then says what must be made durable and what has become
committed, and `advance` tells the node that it was done. The order is what safety rests on:

1. `Ready.hard_state` is durable before any entry of its epoch is written, and before any message leaves;
2. `Ready.entries` are appended and flushed;
3. then `advance`; only it moves the high watermark, as the node's own log counts for a majority once it is durable.

States, and what leads from one to the next:

    unattached -> leader      tick, with this node as the only voter: its own vote is the majority, in epoch + 1
    leader     -> (end)       a leader of one voter has nobody to lose the leadership to

With more voters come candidate, prospective (KIP-996), follower and resigned, the messages Vote, BeginQuorumEpoch,
EndQuorumEpoch and Fetch in `step`, and a high watermark that is the majority's log end offset. Until then a second
voter is refused at the start.
"""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from ottla.model.ids import NO_LEADER_EPOCH

NO_NODE = -1


class Role(Enum):
    UNATTACHED = "unattached"
    LEADER = "leader"


class HardState(NamedTuple):
    """What a node must not forget: which epoch it has seen, who leads it, and whom it voted for in it."""

    epoch: int = 0
    leader_id: int = NO_NODE
    voted_id: int = NO_NODE


class LeaderChange(NamedTuple):
    """The first entry of an epoch. Entries of earlier epochs are committed with it, never before (Raft, 5.4.2)."""

    leader_id: int
    voters: tuple[int, ...]


class Entry(NamedTuple):
    """One batch of the log: a leader change, or records that are committed together, with their encoded values."""

    base_offset: int
    epoch: int
    payload: LeaderChange | tuple[bytes, ...]

    @property
    def next_offset(self) -> int:
        return self.base_offset + (1 if isinstance(self.payload, LeaderChange) else len(self.payload))


class Ready(NamedTuple):
    """`hard_state` is None where it did not change. `high_watermark` is what is committed already."""

    hard_state: HardState | None
    entries: tuple[Entry, ...]
    high_watermark: int


class NotLeader(Exception):
    """A proposal reached a node that does not lead."""


class RaftNode:
    def __init__(
        self,
        node_id: int,
        voters: Sequence[int],
        *,
        hard_state: HardState,
        log_end_offset: int,
        log_epoch: int = NO_LEADER_EPOCH,
    ) -> None:
        """`log_epoch` is that of the last entry, which may be above what `hard_state` remembers."""
        if tuple(voters) != (node_id,):
            raise NotImplementedError(
                f"a quorum of voters {list(voters)} is not supported yet: node {node_id} must be the only voter"
            )
        self.node_id = node_id
        self.voters = tuple(voters)
        self.role = Role.UNATTACHED
        self.hard_state = hard_state._replace(epoch=max(hard_state.epoch, log_epoch))
        self.log_end_offset = log_end_offset
        self.high_watermark = 0
        self._epoch_start_offset = log_end_offset
        self._durable_state = hard_state
        self._unsaved: list[Entry] = []

    @property
    def epoch(self) -> int:
        return self.hard_state.epoch

    @property
    def leader_id(self) -> int:
        return self.hard_state.leader_id if self.role is Role.LEADER else NO_NODE

    @property
    def epoch_start_offset(self) -> int:
        """Where the leader's own epoch begins in the log."""
        return self._epoch_start_offset

    def tick(self, now_ms: int) -> None:
        """The only voter needs to wait for nobody: it leads from the first tick, in an epoch never used before."""
        if self.role is Role.LEADER:
            return
        self.role = Role.LEADER
        self.hard_state = HardState(self.hard_state.epoch + 1, self.node_id, NO_NODE)
        self._epoch_start_offset = self.log_end_offset
        self._append(LeaderChange(self.node_id, self.voters))

    def step(self, message: object, now_ms: int) -> None:
        raise NotImplementedError(
            f"node {self.node_id} is the only voter of its quorum and expects no message, but got {message!r}"
        )

    def propose(self, values: Sequence[bytes]) -> Entry:
        """Takes records into the log, to be committed together. Raises NotLeader."""
        if self.role is not Role.LEADER:
            raise NotLeader(f"node {self.node_id} does not lead the quorum in epoch {self.epoch}")
        if not values:
            raise ValueError("a proposal has at least one record")
        return self._append(tuple(values))

    def ready(self) -> Ready | None:
        """What is to be made durable next; None where nothing is."""
        hard_state = None if self.hard_state == self._durable_state else self.hard_state
        if hard_state is None and not self._unsaved:
            return None
        return Ready(hard_state, tuple(self._unsaved), self.high_watermark)

    def advance(self, ready: Ready) -> None:
        """All of `ready` is durable. The node may have gone on since: what came later is in the next `ready`."""
        if ready.hard_state is not None:
            self._durable_state = ready.hard_state
        del self._unsaved[: len(ready.entries)]
        if ready.entries:
            # One voter is its own majority, and the leader change of its epoch is the first that it flushes.
            self.high_watermark = ready.entries[-1].next_offset

    def _append(self, payload: LeaderChange | tuple[bytes, ...]) -> Entry:
        entry = Entry(self.log_end_offset, self.epoch, payload)
        self.log_end_offset = entry.next_offset
        self._unsaved.append(entry)
        return entry
