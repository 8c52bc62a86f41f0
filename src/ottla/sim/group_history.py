"""What the members of a group believed, processed and committed in a run, and whether a coordinator could allow it.

A member believes that a partition is its own from the answer that assigns it until it gives it up, or until its lease
ends: the session timeout after it sent the last request that was answered. No coordinator may give the partition to
another before that, so that all beliefs about one partition follow each other, and with them the commits: one that was
made in an earlier belief takes effect before those of a later one, or never.
"""

import math
from dataclasses import dataclass, field

from ottla.sim.history import Violation

NOTHING_COMMITTED = -1


@dataclass(eq=False)
class Lease:
    """Until when a member may believe that it is in the group."""

    until_s: float = -math.inf


@dataclass(eq=False)
class Tenure:
    """One member's belief that a partition is its own. `number` counts the changes of owner."""

    owner: str
    number: int
    lease: Lease
    has_ended: bool = False

    def is_over(self, now_s: float) -> bool:
        return self.has_ended or now_s >= self.lease.until_s


@dataclass(eq=False)
class Commit:
    """An attempt to commit. Its name is the committed metadata, so that whoever reads it knows which one it was.

    It has taken effect by `settled_s`: it was acknowledged then, or somebody had read it.
    """

    name: str
    offset: int
    tenure_number: int
    start_s: float
    settled_s: float = math.inf
    was_refused: bool = False

    def precedes(self, other: "Commit") -> bool:
        return self.settled_s < other.start_s or self.tenure_number < other.tenure_number


@dataclass
class CommittedPartition:
    """One partition, as one group sees it."""

    name: str
    tenure: Tenure | None = None
    processed: set[int] = field(default_factory=set)
    commits: dict[str, Commit] = field(default_factory=dict)

    # -- who owns it

    def assign(self, owner: str, lease: Lease, now_s: float) -> Tenure:
        """`owner` is the member, with the generation where commits of an older one are refused."""
        last = self.tenure
        if last is None:
            number = 0
        elif not last.is_over(now_s):
            raise Violation(f"{self.name} is assigned to {owner} while {last.owner} owns it")
        else:
            number = last.number if last.owner == owner else last.number + 1
        self.tenure = Tenure(owner, number, lease)
        return self.tenure

    def process(self, tenure: Tenure, offset: int) -> None:
        if self.tenure is not tenure:
            raise Violation(f"{tenure.owner} processes offset {offset} of {self.name} after it lost it")
        self.processed.add(offset)

    # -- what is committed

    def commit(self, tenure: Tenure, offset: int, now_s: float) -> Commit:
        name = f"{len(self.commits)} of {tenure.owner}"
        commit = self.commits[name] = Commit(name, offset, tenure.number, now_s)
        return commit

    def acknowledge(self, commit: Commit, now_s: float) -> None:
        commit.settled_s = min(commit.settled_s, now_s)

    def refuse(self, commit: Commit) -> None:
        if commit.settled_s < math.inf:
            raise Violation(f"commit {commit.name} for {self.name} was refused, but had been read before")
        commit.was_refused = True

    def read(self, offset: int, metadata: str, start_s: float, now_s: float) -> None:
        """Somebody asked at `start_s`, and is told now what is committed."""
        if offset == NOTHING_COMMITTED:
            found = Commit("nothing", offset, -1, -math.inf, -math.inf)
        else:
            known = self.commits.get(metadata)
            if known is None or known.offset != offset:
                raise Violation(
                    f"offset {offset} ({metadata!r}) of {self.name} was read; nobody committed it"
                )
            if known.was_refused:
                raise Violation(f"commit {metadata} of offset {offset} for {self.name} was refused, but read")
            found = known
        for later in self.commits.values():
            if later.settled_s < start_s and found is not later and found.precedes(later):
                raise Violation(
                    f"commit {found.name} of offset {found.offset} for {self.name} was read, although commit "
                    f"{later.name} of offset {later.offset} followed it and had taken effect"
                )
        found.settled_s = min(found.settled_s, now_s)


class GroupHistory:
    def __init__(self, group_id: str, partitions: int) -> None:
        self.group_id = group_id
        self.partitions = [
            CommittedPartition(f"partition {index} of {group_id}") for index in range(partitions)
        ]

    def __getitem__(self, partition: int) -> CommittedPartition:
        return self.partitions[partition]

    def is_owned(self, now_s: float) -> bool:
        """Whether each partition has an owner."""
        return all(
            partition.tenure is not None and not partition.tenure.is_over(now_s)
            for partition in self.partitions
        )

    def check_processed(self, partition: int, end_offset: int) -> None:
        missing = set(range(end_offset)) - self.partitions[partition].processed
        if missing:
            raise Violation(
                f"nobody processed offsets {sorted(missing)[:10]} of {self.partitions[partition].name}, "
                f"which ends at {end_offset}"
            )
