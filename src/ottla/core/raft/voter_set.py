"""The voters of the quorum, with their directories and addresses, and how they change along the log (KIP-853)."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar
from uuid import UUID

from ottla.model.ids import uuid_to_string

T = TypeVar("T")

# The offset of a voter set that no record of the log has: it comes from the bootstrap snapshot, which ends at offset 0.
BOOTSTRAP_OFFSET = -1
RECONFIGURATION_FROM = 1  # the kraft.version with voters that change


class VoterEndpoint(NamedTuple):
    listener: str
    host: str
    port: int


class ReplicaKey(NamedTuple):
    """A node and the directory of its metadata log. A node with a new disk is another replica."""

    id: int
    directory_id: UUID | None = None

    def __str__(self) -> str:
        if self.directory_id is None:
            return f"{self.id}"
        return f"{self.id} (directory {uuid_to_string(self.directory_id)})"


class Voter(NamedTuple):
    """Static voters (kraft.version 0) have no directory id, and no endpoints here."""

    id: int
    directory_id: UUID | None = None
    endpoints: tuple[VoterEndpoint, ...] = ()
    kraft_versions: tuple[int, int] = (0, 0)  # the lowest and the highest that the node supports

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.id, self.directory_id)

    def is_replica(self, key: ReplicaKey) -> bool:
        return self.id == key.id and self.directory_id in (None, key.directory_id)


class VoterSet(NamedTuple):
    """Sorted by id; no id occurs twice. Also the content of a VotersRecord."""

    voters: tuple[Voter, ...]

    @classmethod
    def of(cls, voters: Iterable[Voter]) -> "VoterSet":
        return cls(tuple(sorted(voters, key=lambda voter: voter.id)))

    @classmethod
    def of_ids(cls, ids: Iterable[int]) -> "VoterSet":
        return cls.of(Voter(node_id) for node_id in ids)

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(voter.id for voter in self.voters)

    def get(self, node_id: int) -> Voter | None:
        return next((voter for voter in self.voters if voter.id == node_id), None)

    def has(self, key: ReplicaKey) -> bool:
        return any(voter.is_replica(key) for voter in self.voters)

    def directory_id_of(self, node_id: int) -> UUID | None:
        voter = self.get(node_id)
        return None if voter is None else voter.directory_id

    def with_voter(self, voter: Voter) -> "VoterSet":
        """Adds the voter, or replaces that with the same id."""
        return VoterSet.of([*(other for other in self.voters if other.id != voter.id), voter])

    def without(self, node_id: int) -> "VoterSet":
        return VoterSet(tuple(voter for voter in self.voters if voter.id != node_id))

    def __str__(self) -> str:
        return ", ".join(str(voter.key) for voter in self.voters) or "none"


class KRaftVersion(NamedTuple):
    """The content of a KRaftVersionRecord."""

    level: int


MembershipRecord = KRaftVersion | VoterSet


class LoggedMembership(NamedTuple):
    """A record of the log, or of a snapshot, that says who votes."""

    offset: int
    record: MembershipRecord


class VoterHistory:
    """The voter sets and kraft.versions of the log by offset. The latest ones count, committed or not (KIP-853).

    `static` counts as long as the log has none. `is_fixed`: `static` are all voters there can be at kraft.version 0,
    and not only those that a node has found.
    """

    def __init__(
        self, static: VoterSet, logged: Sequence[LoggedMembership] = (), *, is_fixed: bool = True
    ) -> None:
        self.static = static
        self._has_fixed_voters = is_fixed
        self._sets: list[tuple[int, VoterSet]] = []
        self._levels: list[tuple[int, int]] = []
        for offset, record in logged:
            self.append(offset, record)

    @property
    def latest(self) -> VoterSet:
        return self._sets[-1][1] if self._sets else self.static

    @property
    def latest_offset(self) -> int | None:
        """The offset of the latest voter set; None if it is `static`."""
        return self._sets[-1][0] if self._sets else None

    @property
    def kraft_version(self) -> int:
        return self._levels[-1][1] if self._levels else 0

    @property
    def allows_changes(self) -> bool:
        return self.kraft_version >= RECONFIGURATION_FROM

    def has_voter(self, key: ReplicaKey) -> bool:
        """Nodes that were only found do not vote by that: the quorum may have voters of other directories."""
        return (bool(self._sets) or self._has_fixed_voters) and self.latest.has(key)

    @property
    def is_fixed(self) -> bool:
        return self._has_fixed_voters and not self._sets

    def is_fixed_before(self, offset: int) -> bool:
        """Whether `static` are all voters there can be as far as a log that ends at `offset` says."""
        return self._has_fixed_voters and not any(at < offset for at, _ in self._sets)

    def in_doubt(self, high_watermark: int) -> list[VoterSet]:
        """The last committed voter set and the later ones: one of them will have been the right one."""
        committed = sum(offset < high_watermark for offset, _ in self._sets)
        return [voters for _, voters in self._sets[max(committed - 1, 0) :]]

    def before(self, offset: int) -> tuple[MembershipRecord, ...]:
        """The records for a snapshot that ends at `offset`; none at kraft.version 0."""
        levels = [level for at, level in self._levels if at < offset]
        sets = [voters for at, voters in self._sets if at < offset]
        if not levels or levels[-1] < RECONFIGURATION_FROM:
            return ()
        return (KRaftVersion(levels[-1]), *sets[-1:])

    def append(self, offset: int, record: MembershipRecord) -> None:
        if isinstance(record, KRaftVersion):
            self._levels.append((offset, record.level))
        else:
            self._sets.append((offset, record))

    def truncate_to(self, offset: int) -> None:
        self._sets = [entry for entry in self._sets if entry[0] < offset]
        self._levels = [entry for entry in self._levels if entry[0] < offset]

    def install(self, end_offset: int, records: Sequence[MembershipRecord]) -> None:
        """A snapshot that ends at `end_offset` has replaced the log."""
        self._sets, self._levels = [], []
        for record in records:
            self.append(end_offset - 1, record)

    def discard_before(self, offset: int) -> None:
        """Removes the entries that others before `offset` have replaced: a snapshot ends there."""
        self._sets = _without_replaced(self._sets, offset)
        self._levels = _without_replaced(self._levels, offset)


def _without_replaced(entries: list[tuple[int, T]], offset: int) -> list[tuple[int, T]]:
    replaced = max(sum(at < offset for at, _ in entries) - 1, 0)
    return entries[replaced:]
