"""Records which partitions the members of a group owned, processed and committed, and checks them.

From a member's point of view it owns a partition from the response that assigns it until it gives the partition up, or
until its lease ends: one session timeout after it sent the last request that got a response. The coordinator must not
assign the partition to another member before that. So the ownerships of a partition follow each other, and their
commits too: a commit of an earlier ownership takes effect before those of a later one, or never.
"""

import math
from dataclasses import dataclass, field

from ottla.sim.history import Violation

NOTHING_COMMITTED = -1


@dataclass(eq=False)
class Lease:
    """The time until which a member can be sure that it is in the group."""

    until_s: float = -math.inf


@dataclass(eq=False)
class Ownership:
    """One member owns a partition, from its own point of view. `number` counts the changes of owner."""

    owner: str
    number: int
    lease: Lease
    has_ended: bool = False

    def is_over(self, now_s: float) -> bool:
        return self.has_ended or now_s >= self.lease.until_s


@dataclass(eq=False)
class Commit:
    """An attempt to commit. Its name is the committed metadata, so that a read shows which commit it found.

    `settled_s` is the time when it was acknowledged or first read: it has taken effect by then.
    """

    name: str
    offset: int
    ownership_number: int
    start_s: float
    settled_s: float = math.inf
    was_rejected: bool = False

    def precedes(self, other: "Commit") -> bool:
        return self.settled_s < other.start_s or self.ownership_number < other.ownership_number


@dataclass
class GroupPartitionHistory:
    """The history of one partition in one group."""

    name: str
    owners_exclude_each_other: bool = True
    ownership: Ownership | None = None
    processed: set[int] = field(default_factory=set)
    commits: dict[str, Commit] = field(default_factory=dict)

    # Ownership

    def assign(self, owner: str, lease: Lease, now_s: float) -> Ownership:
        """`owner` is the member, with its generation if the coordinator rejects commits of older generations."""
        last = self.ownership
        if last is None:
            number = 0
        elif not last.is_over(now_s) and self.owners_exclude_each_other:
            raise Violation(f"{self.name} is assigned to {owner} while {last.owner} owns it")
        else:
            number = last.number if last.owner == owner else last.number + 1
        self.ownership = Ownership(owner, number, lease)
        return self.ownership

    def process(self, ownership: Ownership, offset: int) -> None:
        if self.ownership is not ownership and self.owners_exclude_each_other:
            raise Violation(
                f"{ownership.owner} processes offset {offset} of {self.name} after it lost the partition"
            )
        self.processed.add(offset)

    # Commits

    def commit(self, ownership: Ownership, offset: int, now_s: float) -> Commit:
        name = f"{len(self.commits)} of {ownership.owner}"
        commit = self.commits[name] = Commit(name, offset, ownership.number, now_s)
        return commit

    def acknowledge(self, commit: Commit, now_s: float) -> None:
        commit.settled_s = min(commit.settled_s, now_s)

    def reject(self, commit: Commit) -> None:
        if commit.settled_s < math.inf:
            raise Violation(f"commit {commit.name} for {self.name} was rejected, but had been read before")
        commit.was_rejected = True

    def read(self, offset: int, metadata: str, start_s: float, now_s: float) -> None:
        """A request for the committed offset was sent at `start_s`; this is its response."""
        if offset == NOTHING_COMMITTED:
            found = Commit("nothing", offset, -1, -math.inf, -math.inf)
        else:
            known = self.commits.get(metadata)
            if known is None or known.offset != offset:
                raise Violation(
                    f"offset {offset} ({metadata!r}) of {self.name} was read; nobody committed it"
                )
            if known.was_rejected:
                raise Violation(
                    f"commit {metadata} of offset {offset} for {self.name} was rejected, but read"
                )
            found = known
        for later in self.commits.values():
            if later.settled_s < start_s and found is not later and found.precedes(later):
                raise Violation(
                    f"commit {found.name} of offset {found.offset} for {self.name} was read, although commit "
                    f"{later.name} of offset {later.offset} followed it and had taken effect"
                )
        found.settled_s = min(found.settled_s, now_s)


class GroupHistory:
    def __init__(self, group_id: str, partitions: int, *, owners_exclude_each_other: bool = True) -> None:
        self.group_id = group_id
        self.partitions = [
            GroupPartitionHistory(f"partition {index} of {group_id}", owners_exclude_each_other)
            for index in range(partitions)
        ]

    def __getitem__(self, partition: int) -> GroupPartitionHistory:
        return self.partitions[partition]

    def is_owned(self, now_s: float) -> bool:
        """Whether every partition has an owner."""
        return all(
            partition.ownership is not None and not partition.ownership.is_over(now_s)
            for partition in self.partitions
        )

    def check_processed(self, partition: int, end_offset: int) -> None:
        missing = set(range(end_offset)) - self.partitions[partition].processed
        if missing:
            raise Violation(
                f"nobody processed offsets {sorted(missing)[:10]} of {self.partitions[partition].name}, "
                f"which ends at {end_offset}"
            )
