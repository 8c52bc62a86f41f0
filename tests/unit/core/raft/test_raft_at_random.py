"""Quorums under delays, losses, one-way cuts, pauses and crashes, from a seed; checked against raft's own promises."""

import heapq
from bisect import bisect_left
from collections.abc import Callable
from itertools import count
from random import Random

import pytest
from tests.examples import scaled
from tests.unit.core.raft import quorum
from tests.unit.core.raft.quorum import Member

from ottla.core.raft.errors import DivergedBelowCommit
from ottla.core.raft.messages import NO_NODE, FetchRequest, Outbound, ReplicatedBatch, VoteRequest
from ottla.core.raft.node import RaftNode
from ottla.core.raft.ready import HardState
from ottla.core.raft.roles import Leader
from ottla.core.raft.settings import RaftSettings
from ottla.core.raft.voter_set import ReplicaKey

SEEDS = scaled(30)
FAULTY_MS = 40_000
HEALTHY_MS = 10_000
TIMEOUT_MS = 2_000


class BrokenPromise(AssertionError):
    """A promise of raft does not hold."""


class Checker:
    """The promises of the raft paper, figure 3, by their names there."""

    def __init__(self) -> None:
        self.leaders: dict[int, ReplicaKey] = {}
        self.committed: dict[int, ReplicatedBatch] = {}  # by base offset
        self._known_in: dict[int, int] = {}  # the epoch in which it was known first, by base offset
        self._checked: dict[RaftNode, int] = {}  # high watermarks

    def check(self, member: Member, members: dict[int, Member]) -> None:
        """After something happened to `member`."""
        node = member.node
        is_new_leader = node.is_leader and node.epoch not in self.leaders
        self._election_safety(node)
        if is_new_leader:
            self._leader_completeness(member, list(self.committed))
        new = self._state_machine_safety(member)
        if new:
            for other in members.values():
                if other.node.is_leader:
                    self._leader_completeness(other, new)

    def _election_safety(self, node: RaftNode) -> None:
        if node.is_leader and self.leaders.setdefault(node.epoch, node.own.key) != node.own.key:
            raise BrokenPromise(f"election safety: epoch {node.epoch} has two leaders")

    def _state_machine_safety(self, member: Member) -> list[int]:
        """The offsets of the batches that this node has newly learned to be committed."""
        node, found = member.node, []
        checked = self._checked.get(node, 0)
        for batch in reversed(member.disk.batches):
            if batch.base_offset < checked:
                break
            if batch.next_offset <= node.high_watermark:
                found.append(batch.base_offset)
                if self.committed.setdefault(batch.base_offset, batch) != batch:
                    raise BrokenPromise(f"state machine safety: {batch.base_offset} was committed twice")
                self._known_in.setdefault(batch.base_offset, node.epoch)
        self._checked[node] = node.high_watermark
        return found

    def _leader_completeness(self, member: Member, offsets: list[int]) -> None:
        batches, epoch = member.disk.batches, member.node.epoch
        for offset in offsets:
            batch = self.committed[offset]
            # An entry of an older epoch may be committed while the leader of an epoch in between does not know yet
            # that there is a later one: it need not have the entry.
            if self._known_in[offset] < epoch and offset >= member.disk.start_offset:
                index = bisect_left(batches, offset, key=lambda each: each.base_offset)
                if index == len(batches) or batches[index] != batch:
                    raise BrokenPromise(f"leader completeness: the leader of {epoch} lacks offset {offset}")

    def log_matching(self, members: dict[int, Member]) -> None:
        """Batches of the same offset and epoch are equal, and so is everything before them."""
        logs = [{batch.base_offset: batch for batch in m.disk.batches} for m in members.values()]
        for one in logs:
            for other in logs:
                shared = sorted(one.keys() & other.keys(), reverse=True)
                last = next((o for o in shared if one[o].epoch == other[o].epoch), None)
                if last is not None and any(one[o] != other[o] for o in shared if o <= last):
                    raise BrokenPromise(f"log matching: two logs agree at offset {last} and differ before it")


class Cluster:
    def __init__(self, seed: int, voters: int, observers: int = 1) -> None:
        self.random = Random(seed)
        self.voters = tuple(range(1, voters + 1))
        ids = (*self.voters, *range(100, 100 + observers))
        self.members = {node_id: Member(node_id, self.voters, self.random) for node_id in ids}
        self.checker = Checker()
        self.now_ms = 0
        self.faulty = True
        self.down: set[int] = set()
        self.paused: dict[int, int] = {}  # until
        self.cut: set[tuple[int, int]] = set()
        self.proposed = 0
        self.acknowledged: list[bytes] = []
        self._waiting: list[tuple[int, int, int, bytes]] = []  # (node, epoch, end offset, value)
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()
        self.trace: list[tuple[object, ...]] = []

    def at(self, delay_ms: int, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now_ms + delay_ms, next(self._order), event))

    def run(self, until_ms: int) -> None:
        while self._events and self._events[0][0] <= until_ms:
            self.now_ms, _, event = heapq.heappop(self._events)
            event()
        self.now_ms = until_ms

    def start(self) -> None:
        for node_id in self.members:
            self.at(0, lambda node_id=node_id: self.tick(node_id))  # type: ignore[misc]
        self.at(100, self.propose)
        self.at(500, self.fault)

    def tick(self, node_id: int) -> None:
        self.at(self.random.randint(5, 50), lambda: self.tick(node_id))
        if self.is_awake(node_id):
            self.members[node_id].node.tick(self.now_ms)
            self.settle(node_id)

    def is_awake(self, node_id: int) -> bool:
        return node_id not in self.down and self.paused.get(node_id, 0) <= self.now_ms

    def settle(self, node_id: int) -> None:
        """Does what the node has ready; a crash may come before it, or before the messages leave."""
        member = self.members[node_id]
        while node_id not in self.down and (ready := member.node.ready(self.now_ms)) is not None:
            if self.faulty and self.random.random() < 0.0005:
                return self.crash(node_id)
            done = member.persist(ready)
            if self.faulty and self.random.random() < 0.0005:
                return self.crash(node_id)
            for out in ready.messages:
                self.send(node_id, out)
            member.node.advance(done)
            member.node.validate()
        self.checker.check(member, self.members)
        self.note_committed(node_id)
        return None

    def send(self, sender: int, out: Outbound) -> None:
        node, number = self.members[sender].node, out.number
        self.trace.append((self.now_ms, sender, out.to, type(out.request).__name__, out.request[0]))

        def give_up() -> None:
            if self.members[sender].node is node:
                node.on_no_response(number, out.to, self.now_ms)
                self.settle(sender)

        def arrive() -> None:
            if not self.is_awake(receiver):
                return
            response = self.members[receiver].respond(out.request, self.now_ms)
            self.settle(receiver)  # durable before the response leaves
            if receiver not in self.down and not self.is_lost(receiver, sender):
                self.at(self.delay_ms(), lambda: answer(response))

        def answer(response: object) -> None:
            if self.is_awake(sender) and self.members[sender].node is node:
                node.on_response(number, out.to, response, self.now_ms)  # type: ignore[arg-type]
                self.settle(sender)

        self.at(TIMEOUT_MS, give_up)
        receiver = self.receiver(sender, out)
        if receiver != NO_NODE and not self.is_lost(sender, receiver):
            # A fetch that finds nothing waits at the leader for a while.
            self.at(self.delay_ms() + (50 if isinstance(out.request, FetchRequest) else 0), arrive)

    def receiver(self, sender: int, out: Outbound) -> int:
        """The node that gets the request; NO_NODE if nobody does."""
        return out.to

    def delay_ms(self) -> int:
        return self.random.choice((1, 2, 5, 20, 300)) if self.faulty else 1

    def is_lost(self, sender: int, receiver: int) -> bool:
        return (sender, receiver) in self.cut or (self.faulty and self.random.random() < 0.02)

    def propose(self) -> None:
        self.at(self.random.randint(20, 200), self.propose)
        for node_id, member in self.members.items():
            if self.is_awake(node_id) and isinstance(member.node.role, Leader):
                self.proposed += 1
                value = b"%d" % self.proposed
                entry = member.node.propose([value])
                self._waiting.append((node_id, entry.epoch, entry.next_offset, value))
                if self.random.random() < 0.02:
                    member.take_snapshot()
                self.settle(node_id)

    def note_committed(self, node_id: int) -> None:
        node = self.members[node_id].node
        still = []
        for waiting in self._waiting:
            proposer, epoch, end_offset, value = waiting
            if proposer != node_id:
                still.append(waiting)
            elif not node.is_leader or node.epoch != epoch:
                continue  # the client does not know what became of it
            elif node.high_watermark >= end_offset:
                self.acknowledged.append(value)
            else:
                still.append(waiting)
        self._waiting = still

    # -- faults

    def fault(self) -> None:
        if not self.faulty:
            return
        self.at(self.random.randint(200, 2_000), self.fault)
        node_id = self.random.choice(list(self.members))
        match self.random.choice(("crash", "cut", "pause", "isolate", "heal", "resign")):
            case "crash" if node_id not in self.down:
                self.crash(node_id)
            case "cut":
                self.cut.add((node_id, self.random.choice(list(self.members))))
            case "isolate":
                for other in self.members:
                    self.cut |= {(node_id, other), (other, node_id)}
            case "pause":
                self.paused[node_id] = self.now_ms + self.random.randint(100, 5_000)
            case "heal":
                self.cut.clear()
            case "resign" if self.is_awake(node_id):
                self.members[node_id].node.resign(self.now_ms)
                self.settle(node_id)

    def crash(self, node_id: int) -> None:
        self.down.add(node_id)
        self.at(self.random.randint(50, 4_000), lambda: self.restart(node_id))

    def restart(self, node_id: int) -> None:
        self.down.discard(node_id)
        self.members[node_id].start(self.now_ms)

    def heal(self) -> None:
        self.faulty = False
        self.cut.clear()
        self.paused.clear()


def run_seed(seed: int, voters: int = 3) -> Cluster:
    return run_cluster(Cluster(seed, voters))


def run_cluster(cluster: Cluster) -> Cluster:
    cluster.start()
    cluster.run(FAULTY_MS)
    cluster.heal()
    acknowledged = len(cluster.acknowledged)
    cluster.run(FAULTY_MS + HEALTHY_MS)
    cluster.checker.log_matching(cluster.members)
    if len(cluster.acknowledged) <= acknowledged:
        raise BrokenPromise("progress: nothing was committed after the faults")
    committed = {value for batch in cluster.checker.committed.values() if type(batch.data) is tuple
                 for value in batch.data}  # fmt: skip
    lost = [value for value in cluster.acknowledged if value not in committed]
    if lost:
        raise BrokenPromise(f"acknowledged and lost: {lost[:5]}")
    return cluster


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_quorum_keeps_the_promises_of_raft(seed: int) -> None:
    run_seed(seed, voters=3 if seed % 3 else 5)


def test_a_seed_gives_the_same_run_again() -> None:
    assert run_seed(7).trace == run_seed(7).trace


# -- planted bugs: each checker finds its fault


# An invariant of a node, which notices so that it has lost committed entries.
COMMITTED_IS_IN_THE_LOG = "what is committed is in the log"


def first_broken_promise(first_seed: int = 0, seeds: int = 200) -> str:
    for seed in range(first_seed, first_seed + seeds):
        try:
            run_seed(seed)
        except (BrokenPromise, DivergedBelowCommit) as broken:  # the nodes may notice it themselves
            return str(broken)
        except AssertionError as broken:
            if str(broken).partition("\n")[0] != COMMITTED_IS_IN_THE_LOG:
                raise
            return str(broken)
    return "none"


class VotersThatCrash(Cluster):
    """A node that has voted for another one crashes when its response has left."""

    def settle(self, node_id: int) -> None:
        before = self.members[node_id].disk.hard_state.voted_id
        super().settle(node_id)
        after = self.members[node_id].disk.hard_state.voted_id
        if self.faulty and after not in (before, NO_NODE, node_id) and node_id not in self.down:
            self.at(1, lambda: self.crash(node_id))

    def crash(self, node_id: int) -> None:
        self.down.add(node_id)
        self.at(1, lambda: self.restart(node_id))


def run_voters_that_crash(seeds: range) -> None:
    for seed in seeds:
        run_cluster(VotersThatCrash(seed, 3))


@pytest.mark.slow
def test_a_forgotten_vote_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    start = Member.start

    def forget(member: Member, now_ms: int) -> RaftNode:
        member.disk.hard_state = HardState(member.disk.hard_state.epoch, NO_NODE, NO_NODE)
        return start(member, now_ms)

    monkeypatch.setattr(Member, "start", forget)
    # Shorter than the delays, so that elections collide.
    monkeypatch.setattr(quorum, "SETTINGS", RaftSettings(election_timeout_ms=60, fetch_timeout_ms=300))
    with pytest.raises(BrokenPromise, match="election safety"):
        run_voters_that_crash(range(18, 60))  # about one in fifteen shows it


@pytest.mark.slow
def test_a_commit_of_an_older_epoch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def advance(node: RaftNode, leader: Leader) -> None:
        ends = [node._durable_end, *(progress.end_offset for progress in leader.voters.values())]
        leader.has_committed = True
        node.high_watermark = max(node.high_watermark, sorted(ends, reverse=True)[len(node.voters) // 2])

    monkeypatch.setattr(RaftNode, "_advance_high_watermark", advance)
    # A follower then often has entries of an older epoch before it has the first one of the new leader.
    monkeypatch.setattr(quorum, "BATCHES_PER_FETCH", 1)
    assert first_broken_promise() != "none"


def test_a_vote_for_a_shorter_log_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    grants = RaftNode._grants_vote

    def grant(node: RaftNode, request: VoteRequest) -> bool:
        return grants(node, request._replace(log_end=request.log_end._replace(epoch=10**6)))

    monkeypatch.setattr(RaftNode, "_grants_vote", grant)
    assert first_broken_promise() != "none"


def test_a_fetch_that_counts_before_the_divergence_check_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    on_fetch = RaftNode.on_fetch

    def count_first(node: RaftNode, request: FetchRequest, now_ms: int) -> object:
        if isinstance(node.role, Leader) and request.replica_id in node.role.voters:
            node._note_fetch(node.role, request, now_ms)
        return on_fetch(node, request, now_ms)

    monkeypatch.setattr(RaftNode, "on_fetch", count_first)
    assert first_broken_promise() != "none"
