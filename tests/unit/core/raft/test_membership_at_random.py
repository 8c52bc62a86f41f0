"""Quorums whose voters change under all faults, checked against raft's promises (KIP-853)."""

from itertools import count
from uuid import UUID

import pytest
from tests.examples import scaled
from tests.unit.core.raft.quorum import Disk, Member, bootstrap_disk, dynamic_voter
from tests.unit.core.raft.test_raft_at_random import Cluster, run_cluster

from ottla.core.raft import membership
from ottla.core.raft.errors import DivergedBelowCommit
from ottla.core.raft.membership import add_voter, remove_voter
from ottla.core.raft.roles import Leader
from ottla.core.raft.voter_change import VoterChange
from ottla.core.raft.voter_set import Voter, VoterHistory, VoterSet
from ottla.model.errors import ErrorCode

SEEDS = scaled(30)
VOTERS_MAX = 5
NODES = 6


class ChangingCluster(Cluster):
    """Some nodes vote at first; the others are observers. Leaders are asked for a change every second or so.

    Nodes get new disks, and sometimes the one before again: another directory id is another replica. A voter whose disk
    is gone is removed before any other, and at most one in a set, so that a majority remains.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed, 0, 0)
        first = tuple(range(1, self.random.choice((1, 2, 3, 3, 4)) + 1))
        self.voters = first
        for node_id in range(1, NODES + 1):
            disk = bootstrap_disk(*first) if node_id in first else None
            self.members[node_id] = Member(
                node_id, tuple(range(1, NODES + 1)), self.random, disk, dynamic_voter(node_id)
            )
        self.changes: list[VoterChange] = []
        self.spares: dict[int, tuple[Voter | None, Disk]] = {}
        self.replaced_voters = 0
        self._directories = count(1_000)

    def start(self) -> None:
        super().start()
        self.at(1_000, self.change_voters)
        self.at(3_000, self.replace_disk)

    def change_voters(self) -> None:
        self.at(self.random.randint(50, 800), self.change_voters)
        if not self.faulty:
            return
        for node_id, member in self.members.items():
            node = member.node
            if self.is_awake(node_id) and isinstance(node.role, Leader):
                self.change_one(member)
                self.settle(node_id)

    def change_one(self, member: Member) -> None:
        node, chosen = member.node, self.owns()[self.random.randint(1, NODES)]
        timeout_ms = self.random.choice((200, 3_000))
        gone = self.gone(node.history.latest, self.owns())
        known = gone[0] if gone else node.history.latest.get(chosen.id)
        if known is not None:
            self.changes.append(remove_voter(node, known.key, self.now_ms, timeout_ms=timeout_ms))
        elif len(node.voters) < VOTERS_MAX:
            self.changes.append(add_voter(node, chosen, self.now_ms, timeout_ms=timeout_ms))

    def owns(self) -> dict[int, Voter]:
        return {node_id: member.own for node_id, member in self.members.items() if member.own is not None}

    def gone(self, voters: VoterSet, owns: dict[int, Voter]) -> list[Voter]:
        return [voter for voter in voters.voters if owns[voter.id].key != voter.key]

    def replace_disk(self) -> None:
        self.at(self.random.randint(3_000, 12_000), self.replace_disk)
        node_id = self.random.randint(1, NODES)
        member = self.members[node_id]
        own, disk = self.spares.get(node_id, (None, Disk()))
        if own is None or self.random.random() < 0.6:
            own = dynamic_voter(node_id)._replace(directory_id=UUID(int=next(self._directories)))
            disk = Disk()
        if not self.faulty or self.would_stop(node_id, own):
            return
        assert member.own is not None
        self.replaced_voters += any(
            other.node.history.latest.has(member.own.key) for other in self.members.values()
        )
        self.spares[node_id] = (member.own, member.disk)
        member.own, member.disk = own, disk
        if node_id not in self.down:
            self.crash(node_id)
        member.start(self.now_ms)

    def would_stop(self, node_id: int, own: Voter) -> bool:
        """Whether some set of voters could be without a majority, or is about to be."""
        owns = self.owns() | {node_id: own}
        for member in self.members.values():
            voters, role = member.node.history.latest, member.node.role
            gone = len(self.gone(voters, owns))
            if gone > 1 or (gone == 1 and len(voters.voters) < 3):
                return True
            if isinstance(role, Leader) and role.change is not None and role.change.key.id == node_id:
                return True
        return False


def run_changes(seed: int) -> ChangingCluster:
    cluster = ChangingCluster(seed)
    run_cluster(cluster)
    return cluster


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_quorum_whose_voters_change_keeps_the_promises_of_raft(seed: int) -> None:
    cluster = run_changes(seed)
    latest = {member.node.history.latest for member in cluster.members.values()}
    assert len(latest) == 1, "all nodes know the same voters in the end"


def test_voters_are_added_and_removed_under_faults() -> None:
    clusters = [run_changes(seed) for seed in range(20)]
    done = [change for cluster in clusters for change in cluster.changes if change.error is ErrorCode.none]
    assert sum(cluster.replaced_voters for cluster in clusters) > 3
    assert len([change for change in done if change.voter is not None]) > 5
    assert len([change for change in done if change.voter is None]) > 5


# -- planted bugs


def first_broken_promise(seeds: int = 150) -> str:
    for seed in range(seeds):
        try:
            run_changes(seed)
        except (AssertionError, DivergedBelowCommit) as broken:  # a node may notice it itself
            return str(broken)
    return "none"


@pytest.mark.slow
def test_two_changes_at_once_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "has_uncommitted_voters", lambda node: False)
    change_one = ChangingCluster.change_one

    def change_twice(cluster: ChangingCluster, member: Member) -> None:
        for _ in range(2):
            change_one(cluster, member)
            if isinstance(member.node.role, Leader):
                member.node.role.change = None

    monkeypatch.setattr(ChangingCluster, "change_one", change_twice)
    assert first_broken_promise() != "none"


@pytest.mark.slow
def test_a_change_before_a_commit_in_the_epoch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "has_committed_in_epoch", lambda leader: True)
    monkeypatch.setattr(membership, "has_uncommitted_voters", lambda node: False)
    assert first_broken_promise() != "none"


@pytest.mark.slow
def test_truncated_voters_that_stay_in_force_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VoterHistory, "truncate_to", lambda history, offset: None)
    assert first_broken_promise() != "none"
