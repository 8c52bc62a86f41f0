"""Raft as KIP-595 has it, for a quorum of one voter.

The interface is that of a full quorum: `step` takes messages of other nodes, `tick` the time, `propose` records. They
only change the node's state in memory. `ready` then returns what must be made durable and what is committed, and
`advance` tells the node that this was done. Safety depends on the order:

1. Make `Ready.hard_state` durable before any entry of its epoch is written and before any message is sent.
2. Append and flush `Ready.entries`.
3. Call `advance`. Only this moves the high watermark: the node's log counts towards a majority once it is durable.

States and transitions:

    unattached -> leader      at the first tick: the only voter has the majority with its own vote, in epoch + 1
    leader     -> (end)       no other node can take the leadership from the only voter

A quorum of several voters needs the states candidate, prospective (KIP-996), follower and resigned, the messages Vote,
BeginQuorumEpoch, EndQuorumEpoch and Fetch in `step`, and a high watermark that is the majority's log end offset. Until
these exist, the constructor rejects more than one voter.
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
    """The durable part of a node's state: the latest epoch, its leader, and the node's vote in it."""

    epoch: int = 0
    leader_id: int = NO_NODE
    voted_id: int = NO_NODE


class LeaderChange(NamedTuple):
    """The first entry of an epoch. Entries of earlier epochs are committed only together with it (Raft, 5.4.2)."""

    leader_id: int
    voters: tuple[int, ...]


class Entry(NamedTuple):
    """A batch of the log: a leader change, or the encoded values of records that are committed together."""

    base_offset: int
    epoch: int
    payload: LeaderChange | tuple[bytes, ...]

    @property
    def next_offset(self) -> int:
        return self.base_offset + (1 if isinstance(self.payload, LeaderChange) else len(self.payload))


class Ready(NamedTuple):
    """What to make durable next. `hard_state` is None if it did not change."""

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
        """`log_epoch` is the epoch of the last entry. It may be above the epoch of `hard_state`."""
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
        """The first offset of the leader's own epoch."""
        return self._epoch_start_offset

    def tick(self, now_ms: int) -> None:
        """The only voter becomes the leader at its first tick, in a new epoch."""
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
        """Appends records that are committed together. Raises NotLeader."""
        if self.role is not Role.LEADER:
            raise NotLeader(f"node {self.node_id} does not lead the quorum in epoch {self.epoch}")
        if not values:
            raise ValueError("a proposal has at least one record")
        return self._append(tuple(values))

    def ready(self) -> Ready | None:
        """What to make durable next; None if there is nothing."""
        hard_state = None if self.hard_state == self._durable_state else self.hard_state
        if hard_state is None and not self._unsaved:
            return None
        return Ready(hard_state, tuple(self._unsaved), self.high_watermark)

    def advance(self, ready: Ready) -> None:
        """All of `ready` is durable. Changes since that call are in the next `ready`."""
        if ready.hard_state is not None:
            self._durable_state = ready.hard_state
        del self._unsaved[: len(ready.entries)]
        if ready.entries:
            # One voter is its own majority. The first entry that it flushes is the leader change of its epoch.
            self.high_watermark = ready.entries[-1].next_offset

    def _append(self, payload: LeaderChange | tuple[bytes, ...]) -> Entry:
        entry = Entry(self.log_end_offset, self.epoch, payload)
        self.log_end_offset = entry.next_offset
        self._unsaved.append(entry)
        return entry
