"""The change of one partition when its replicas change: which leader it gets, and which replicas stay eligible. All
elections are made here. As Kafka's PartitionChangeBuilder.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from ottla.core.controller.image import PartitionImage
from ottla.protocol.metadata_records.records import NO_LEADER, NO_LEADER_CHANGE, PartitionChangeRecord

RECOVERED = 0
RECOVERING = 1  # KIP-704: the leader was elected uncleanly and has yet to say that it has recovered
_NO_RECOVERY_CHANGE = -1

Replicas = tuple[int, ...]


class Election(Enum):
    """ONLINE keeps the leader, or elects an eligible replica if it cannot lead. PREFERRED elects the first replica if
    it is eligible. UNCLEAN is ONLINE, but elects any available replica before it leaves the partition without a leader.
    """

    ONLINE = auto()
    PREFERRED = auto()
    UNCLEAN = auto()


class ElectionRules(NamedTuple):
    """`may_lead(broker, directory)`: whether the broker is active and its replica's directory is online."""

    may_lead: Callable[[int, uuid.UUID | None], bool]
    min_isr: int
    has_elr: bool


class PartitionTarget(NamedTuple):
    """What is wanted. None means no change. `lost` is a replica that may have lost records in an unclean shutdown.
    `recreated` is one whose directory is gone: it was created again in another one, and may have no records at all.

    With other `replicas` come their `directories`, and an `isr` that has none of the replicas that disappear.
    """

    isr: Replicas | None = None
    directories: tuple[uuid.UUID | None, ...] | None = None
    leader_recovery_state: int | None = None
    lost: int | None = None
    recreated: int | None = None
    replicas: Replicas | None = None
    adding: Replicas | None = None
    removing: Replicas | None = None


def change_partition(
    topic_id: uuid.UUID,
    index: int,
    partition: PartitionImage,
    target: PartitionTarget,
    election: Election,
    rules: ElectionRules,
) -> PartitionChangeRecord | None:
    """The record of the change, with a new leader if the old one cannot lead; None if nothing changes."""
    state = _Replicas.of(partition, target)
    state.complete_reassignment()
    state.forget(target.lost)
    state.forget(target.recreated)
    if rules.has_elr:
        state.update_elr(partition, rules.min_isr, (target.lost, target.recreated))
    leader, is_unclean = _elect(partition, target, state, election, rules)
    if leader != partition.leader:
        if is_unclean:
            state.isr, state.elr = (leader,), ()
        elif leader in state.elr:
            state.isr = (leader,)
            # With min.insync.replicas of 1, perhaps lowered since, this leader may commit records alone.
            is_complete = len(state.isr) >= rules.min_isr
            state.elr = () if is_complete else tuple(other for other in state.elr if other != leader)
    if not rules.has_elr:
        # The last in-sync replica stays in the ISR: it is the only one that is known to have all records. For the same
        # reason the list of a cluster that had ELR is kept until a leader is elected from it.
        state.isr = state.isr or partition.isr
        state.elr = () if state.isr else state.elr
    # A record with a leader raises the leader epoch, which stops the fetches of replicas that were removed.
    has_removed = not set(partition.replicas) <= set(state.replicas)
    record = PartitionChangeRecord(
        partition_id=index,
        topic_id=topic_id,
        isr=_changed(state.isr, partition.isr),
        leader=leader if leader != partition.leader or has_removed else NO_LEADER_CHANGE,
        replicas=_changed(state.replicas, partition.replicas),
        removing_replicas=_changed(state.removing, partition.removing_replicas),
        adding_replicas=_changed(state.adding, partition.adding_replicas),
        leader_recovery_state=_recovery_change(
            partition, target, is_unclean=is_unclean and leader != partition.leader
        ),
        eligible_leader_replicas=_changed(state.elr, partition.eligible_leader_replicas),
        last_known_elr=_changed(
            _last_known_leader(partition, target, state, leader), partition.last_known_elr
        ),
        directories=None if state.directories == partition.directories else state.directories,
    )
    is_no_change = record == PartitionChangeRecord(partition_id=index, topic_id=topic_id)
    return None if is_no_change else record


@dataclass(slots=True)
class _Replicas:
    """The replicas of the partition after the change."""

    replicas: Replicas
    directories: tuple[uuid.UUID | None, ...]
    isr: Replicas
    elr: Replicas
    adding: Replicas
    removing: Replicas

    @classmethod
    def of(cls, partition: PartitionImage, target: PartitionTarget) -> "_Replicas":
        replicas = partition.replicas if target.replicas is None else target.replicas
        return cls(
            replicas,
            partition.directories if target.directories is None else target.directories,
            partition.isr if target.isr is None else target.isr,
            tuple(each for each in partition.eligible_leader_replicas if each in replicas),
            partition.adding_replicas if target.adding is None else target.adding,
            partition.removing_replicas if target.removing is None else target.removing,
        )

    def complete_reassignment(self) -> None:
        """A reassignment (KIP-455) is complete when all replicas that stay are in sync."""
        if not self.adding and not self.removing:
            return
        isr = tuple(replica for replica in self.isr if replica not in self.removing)
        kept = [
            (replica, directory)
            for replica, directory in zip(self.replicas, self.directories, strict=True)
            if replica not in self.removing
        ]
        if not isr or not kept or not {replica for replica, _ in kept} <= set(isr):
            return
        self.isr, self.adding, self.removing = isr, (), ()
        self.replicas = tuple(replica for replica, _ in kept)
        self.directories = tuple(directory for _, directory in kept)
        self.elr = tuple(replica for replica in self.elr if replica in self.replicas)

    def forget(self, lost: int | None) -> None:
        """Removes a replica from the eligible ones. The last one stays without ELR: no other is known to be better."""
        self.elr = tuple(replica for replica in self.elr if replica != lost) or self.elr

    def update_elr(self, partition: PartitionImage, min_isr: int, lost: tuple[int | None, ...]) -> None:
        """KIP-966: below min.insync.replicas nothing more is committed, so those that leave the ISR stay eligible."""
        if len(self.isr) >= min_isr:
            self.elr = ()
            return
        candidates = dict.fromkeys(self.elr + partition.isr)
        self.elr = tuple(
            replica
            for replica in candidates
            if replica not in self.isr and replica not in lost and replica in self.replicas
        )


def _elect(
    partition: PartitionImage,
    target: PartitionTarget,
    state: _Replicas,
    election: Election,
    rules: ElectionRules,
) -> tuple[int, bool]:
    """The leader, and whether it may lack committed records."""
    directories = dict(zip(state.replicas, state.directories, strict=True))

    def may_lead(replica: int) -> bool:
        return replica in directories and rules.may_lead(replica, directories[replica])

    eligible = state.isr or state.elr
    order = [partition.leader, *state.replicas]
    if election is Election.PREFERRED:
        order.insert(0, state.replicas[0])
    for replica in order:
        if replica in eligible and may_lead(replica):
            return replica, False
    last_known = _last_known_elr(partition, target)
    if rules.has_elr and not eligible and len(last_known) == 1 and may_lead(last_known[0]):
        return last_known[0], True
    if election is Election.UNCLEAN:
        for replica in state.replicas:
            if may_lead(replica):
                return replica, True
    return NO_LEADER, False


def _last_known_leader(
    partition: PartitionImage, target: PartitionTarget, state: _Replicas, leader: int
) -> Replicas:
    """The last leader, kept while no replica is in sync. An ISR without a leader is from before the cluster had ELR."""
    if leader != NO_LEADER:
        return ()
    if not state.isr and partition.isr:
        return (partition.leader,) if partition.has_leader else partition.isr[:1]
    return _last_known_elr(partition, target)


def _last_known_elr(partition: PartitionImage, target: PartitionTarget) -> Replicas:
    return () if target.recreated in partition.last_known_elr else partition.last_known_elr


def _recovery_change(partition: PartitionImage, target: PartitionTarget, *, is_unclean: bool) -> int:
    new = RECOVERING if is_unclean else target.leader_recovery_state
    return _NO_RECOVERY_CHANGE if new is None or new == partition.leader_recovery_state else new


def _changed(new: Replicas, old: Replicas) -> Replicas | None:
    return None if new == old else new
