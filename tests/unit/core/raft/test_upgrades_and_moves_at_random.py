"""Quorums that raise kraft.version, and whose voters move to other addresses, under all faults (KIP-853)."""

from itertools import count

import pytest
from tests.examples import scaled
from tests.unit.core.raft.quorum import Disk, Member, bootstrap_disk, dynamic_voter
from tests.unit.core.raft.test_membership_at_random import NODES, VOTERS_MAX, ChangingCluster
from tests.unit.core.raft.test_raft_at_random import Cluster, run_cluster

from ottla.core.raft.membership import (
    add_voter,
    has_uncommitted_voters,
    remove_voter,
    update_voter,
    upgrade_kraft_version,
)
from ottla.core.raft.messages import NO_NODE, BeginQuorumEpochRequest, Outbound
from ottla.core.raft.voter_set import Voter, VoterEndpoint, VoterSet
from ottla.model.errors import ErrorCode

SEEDS = scaled(20)
CHANGE_TIMEOUT_MS = 3_000
MOVED_SHARE = 0.3


def at_host(voter: Voter, host: str) -> Voter:
    return voter._replace(endpoints=(VoterEndpoint("CONTROLLER", host, 9093),))


class UpgradingCluster(ChangingCluster):
    """Static voters, which leaders turn into voters of the log. Then voters are added, removed and updated."""

    def __init__(self, seed: int) -> None:
        Cluster.__init__(self, seed, 0, 0)
        self.voters = tuple(range(1, self.random.choice((1, 2, 3, 3, VOTERS_MAX)) + 1))
        for node_id in range(1, NODES + 1):
            own = dynamic_voter(node_id)
            self.members[node_id] = Member(node_id, self.voters, self.random, Disk(), own, is_fixed=True)
        self.changes = []
        self.upgrades = self.updates = 0

    def replace_disk(self) -> None:
        """At kraft.version 0, the others do not notice that a voter has forgotten its votes."""

    def change_one(self, member: Member) -> None:
        node = member.node
        if not node.history.allows_changes:
            voters = VoterSet.of([self.owns()[voter] for voter in node.voters])
            change = upgrade_kraft_version(node, voters, self.now_ms, timeout_ms=CHANGE_TIMEOUT_MS)
            self.upgrades += change.error is None
        elif self.random.random() < MOVED_SHARE:
            known = self.random.choice(node.history.latest.voters)
            moved = at_host(known, f"host{self.random.randrange(1_000)}")
            self.updates += update_voter(node, moved, self.now_ms) is None
        else:
            super().change_one(member)


def test_a_quorum_keeps_the_promises_of_raft_while_kraft_version_is_raised() -> None:
    clusters = [UpgradingCluster(seed) for seed in range(SEEDS)]
    for cluster in clusters:
        run_cluster(cluster)
        assert cluster.upgrades > 0
        latest = {member.node.history.latest for member in cluster.members.values()}
        assert len(latest) == 1, "all nodes know the same voters in the end"
        assert all(member.node.history.allows_changes for member in cluster.members.values())
    done = [change for cluster in clusters for change in cluster.changes if change.error is ErrorCode.none]
    assert done
    assert sum(cluster.updates for cluster in clusters) > len(clusters)


SLEEPER = 3
FAULTY_MS, HEALTHY_MS = 10_000, 10_000
ASLEEP_MS, AWAKE_MS = 2_000, 30_000
SERVERS = {-1 - node_id: node_id for node_id in range(1, NODES + 1) if node_id != SLEEPER}


class SleepingCluster(ChangingCluster):
    """Node 3 sleeps while its peers are replaced by others, or all of them, and itself, get other addresses.

    A node reaches another one only at an address that is right: that in its log, or that which a response or a request
    has told it. The bootstrap servers are always at the same address. The faults begin when the node wakes up.
    """

    def __init__(self, seed: int, target: tuple[int, ...]) -> None:
        Cluster.__init__(self, seed, 0, 0)
        self.voters = (1, 2, 3)
        self.target = target
        for node_id in range(1, NODES + 1):
            disk = bootstrap_disk(*self.voters) if node_id in self.voters else None
            self.members[node_id] = Member(node_id, tuple(SERVERS), self.random, disk, dynamic_voter(node_id))
        self.changes = []
        self.learned: dict[tuple[int, int], Voter] = {}  # by the node that knows, and the known one
        self.retired: set[int] = set()
        self._moves = count(1)

    def start(self) -> None:
        self.faulty = False
        super().start()
        self.at(AWAKE_MS, self.begin_faults)
        if self.target == self.voters:
            self.at(ASLEEP_MS, self.move_peers)
            self.at(AWAKE_MS, lambda: self.move(SLEEPER))

    def begin_faults(self) -> None:
        self.faulty = True
        self.fault()

    def change_voters(self) -> None:
        self.at(self.random.randint(50, 800), self.change_voters)
        for node_id, member in self.members.items():
            if self.now_ms > ASLEEP_MS and self.is_awake(node_id) and member.node.is_leader:
                self.change_one(member)
                self.settle(node_id)

    def replace_disk(self) -> None:
        """Only addresses change here."""

    def is_awake(self, node_id: int) -> bool:
        is_asleep = node_id == SLEEPER and ASLEEP_MS <= self.now_ms < AWAKE_MS
        return super().is_awake(node_id) and not is_asleep and node_id not in self.retired

    def move_peers(self) -> None:
        """One after the other: each must find the others, and they must know where it is, before the next one moves."""
        unmoved = [peer for peer in (1, 2) if self.members[peer].own == dynamic_voter(peer)]
        known = [member.node.history.latest.get(peer) for peer in (1, 2) for member in self.peers()]
        is_committed = not any(has_uncommitted_voters(member.node) for member in self.peers())
        if is_committed and known == [self.members[peer].own for peer in (1, 2) for _ in self.peers()]:
            self.move(unmoved.pop())
        if unmoved:
            self.at(500, self.move_peers)

    def peers(self) -> list[Member]:
        return [self.members[1], self.members[2]]

    def move(self, node_id: int) -> None:
        member = self.members[node_id]
        assert member.own is not None
        member.own = at_host(member.own, f"moved{next(self._moves)}")
        member.start(self.now_ms)

    def change_one(self, member: Member) -> None:
        """On the way to the voters of `target`, with the addresses that they have."""
        node, owns, latest = member.node, self.owns(), member.node.history.latest
        missing = [voter for voter in self.target if voter not in latest.ids]
        superfluous = [voter for voter in latest.voters if voter.id not in self.target]
        moved = [v for v in latest.voters if owns[v.id] != v and self.is_awake(v.id)]
        if missing:
            chosen = owns[self.random.choice(missing)]
            self.changes.append(add_voter(node, chosen, self.now_ms, timeout_ms=CHANGE_TIMEOUT_MS))
        elif superfluous:
            key = self.random.choice(superfluous).key
            self.changes.append(remove_voter(node, key, self.now_ms, timeout_ms=CHANGE_TIMEOUT_MS))
        elif moved and self.address(moved[0].id, node.node_id) == member.own:
            update_voter(node, owns[moved[0].id], self.now_ms)
        elif latest.ids == self.target and not has_uncommitted_voters(node) and SLEEPER not in self.target:
            self.retired = {1, 2}

    def address(self, knowing: int, known: int) -> Voter | None:
        member = self.members[knowing]
        if knowing == known:
            return member.own
        return self.learned.get((knowing, known)) or member.node.history.latest.get(known)

    def learn(self, knowing: int, source: int, known: int) -> None:
        address = self.address(source, known) if known != NO_NODE else None
        if address is not None:
            self.learned[knowing, known] = address

    def receiver(self, sender: int, out: Outbound) -> int:
        receiver = SERVERS.get(out.to, out.to)
        if receiver == out.to and self.address(sender, receiver) != self.members[receiver].own:
            self.learned.pop((sender, receiver), None)
            return NO_NODE
        if self.is_awake(receiver):
            self.learn(sender, receiver, self.members[receiver].node.leader_id)
            if isinstance(out.request, BeginQuorumEpochRequest):
                self.learn(receiver, sender, sender)
        return receiver


@pytest.mark.parametrize("target", [(4, 5, 6), (1, 2, 3)], ids=["replaced", "moved"])
def test_a_voter_that_slept_while_its_peers_were_replaced_or_moved_finds_them(
    target: tuple[int, ...],
) -> None:
    for seed in range(SEEDS):
        cluster = SleepingCluster(seed, target)
        cluster.start()
        cluster.run(AWAKE_MS - 1)
        sleeper = cluster.members[SLEEPER]
        peers = [cluster.members[peer] for peer in (1, 2)]
        assert sleeper.node.voters == (1, 2, 3)
        assert cluster.retired or all(peer.own != dynamic_voter(peer.node.node_id) for peer in peers)
        cluster.run(AWAKE_MS + FAULTY_MS)
        cluster.heal()
        cluster.run(AWAKE_MS + FAULTY_MS + HEALTHY_MS)
        cluster.checker.log_matching(cluster.members)
        alive = [member for member in cluster.members.values() if member.node.node_id not in cluster.retired]
        assert {member.node.voters for member in alive} == {target}
        assert len({(member.node.epoch, member.node.leader_id) for member in alive}) == 1
        assert sleeper.node.high_watermark > max(cluster.checker.committed) - 10, "it has the log too"
