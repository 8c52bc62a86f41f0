"""A change of one voter that a client waits for (KIP-853)."""

from dataclasses import dataclass

from ottla.core.raft.voter_set import ReplicaKey, Voter
from ottla.model.errors import ErrorCode


@dataclass
class VoterChange:
    """The addition of `voter`, or the removal of the voter `key`.

    An addition waits until the new voter has caught up. Both wait until their record is committed, an addition only if
    `waits_for_commit`. When a change has ended, `error` is set.
    """

    key: ReplicaKey
    deadline_ms: int
    voter: Voter | None = None
    waits_for_commit: bool = True
    offset: int | None = None  # of the record with the new voters, once it is in the leader's log
    error: ErrorCode | None = None
    message: str | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether nothing of it is in the log yet: the new voter still copies the log."""
        return self.offset is None

    def end(self, error: ErrorCode, message: str | None = None) -> "VoterChange":
        """The first result counts."""
        if self.error is None:
            self.error, self.message = error, message
        return self
