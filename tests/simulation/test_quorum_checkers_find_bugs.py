"""Bugs that are planted in a quorum: the checker of the broken guarantee must find each of them within a few seeds."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.simulation.workloads import run_workload

from ottla.broker.quorum import controller_runtime, raft_driver
from ottla.broker.quorum.controller_runtime import ControllerRuntime
from ottla.broker.quorum.loader import MetadataLoader
from ottla.broker.quorum.metadata_log import MetadataLog
from ottla.broker.quorum.quorum import Quorum
from ottla.broker.quorum.quorum_state import write_quorum_state
from ottla.core.raft import membership
from ottla.core.raft.log_state import IN_LOG, LogState, OffsetAndEpoch
from ottla.core.raft.node import RaftNode
from ottla.core.raft.outbox import Outbox
from ottla.core.raft.ready import HardState
from ottla.core.raft.roles import Leader, Votes
from ottla.core.raft.voter_set import VoterHistory
from ottla.env.disk import Disk
from ottla.model.errors import KafkaError
from ottla.sim.quorum_checkers import (
    ACKNOWLEDGED_COMMANDS,
    COMMIT_RULE,
    ELECTION_SAFETY,
    LEADER_COMPLETENESS,
    LOG_MATCHING,
    PAUSES,
    PROGRESS,
    STATE_MACHINE_SAFETY,
    VOTE_DURABILITY,
    QuorumViolation,
)

SEEDS = range(60)
Patch = pytest.MonkeyPatch


def does_not_write_the_vote(patch: Patch) -> None:
    patch.setattr(raft_driver, "write_quorum_state", lambda *arguments: None)


def does_not_sync_the_vote(patch: Patch) -> None:
    class NoDirSync:
        def __init__(self, disk: Disk) -> None:
            self._disk = disk

        def write_atomically(self, path: str, data: bytes) -> None:
            file = self._disk.open(f"{path}.tmp", create=True)
            file.truncate(0)
            file.write_at(0, [data])
            file.sync()
            file.close()
            self._disk.rename(f"{path}.tmp", path)

    def write(disk: Any, directory: str, state: HardState, voters: Any) -> None:
        write_quorum_state(NoDirSync(disk), directory, state, voters)  # type: ignore[arg-type]

    patch.setattr(raft_driver, "write_quorum_state", write)


def commits_an_entry_of_an_older_epoch(patch: Patch) -> None:
    def advance(node: RaftNode, leader: Leader) -> None:
        replicated = leader.replicated_offset(node._durable_end)
        if replicated > node.high_watermark:
            leader.has_committed = True
            node.high_watermark = replicated

    patch.setattr(RaftNode, "_advance_high_watermark", advance)


def acts_on_uncommitted_metadata(patch: Patch) -> None:
    original = MetadataLoader.apply

    async def apply(loader: MetadataLoader, high_watermark: int) -> None:
        await original(loader, loader._log.log_end_offset)

    patch.setattr(MetadataLoader, "apply", apply)


def truncates_below_the_high_watermark(patch: Patch) -> None:
    def truncate(node: RaftNode, offset: int) -> None:
        offset = max(node.log.start_offset, min(offset, node.high_watermark - 1))
        node.high_watermark = min(node.high_watermark, offset)
        node.log.truncate_to(offset)
        node._truncate_to = offset

    patch.setattr(RaftNode, "_truncate", truncate)


def acknowledges_before_the_flush(patch: Patch) -> None:
    patch.setattr(MetadataLog, "sync", lambda log, work: None)


def votes_for_a_shorter_log(patch: Patch) -> None:
    patch.setattr(OffsetAndEpoch, "is_up_to_date_with", lambda own, other: True)


def acknowledges_after_it_was_deposed(patch: Patch) -> None:
    original = ControllerRuntime.stop

    def stop(controller: ControllerRuntime, reason: KafkaError) -> None:
        for _, response, result in controller._decided:
            controller_runtime._resolve(response, result)
        original(controller, reason)

    patch.setattr(ControllerRuntime, "stop", stop)


def withdraws_the_images_of_a_deposed_controller_only_after_publishing(patch: Patch) -> None:
    original = Quorum._notify_of_leader

    def notify(quorum: Quorum) -> None:
        quorum._check_leadership()
        original(quorum)

    patch.setattr(Quorum, "_notify_of_leader", notify)
    patch.setattr(Quorum, "_on_step", lambda quorum: quorum._stepped.set())


def appends_to_a_log_that_has_diverged(patch: Patch) -> None:
    original = LogState.position_of

    def position_of(log: LogState, offset: int, last_epoch: int) -> Any:
        position = original(log, offset, last_epoch)
        is_in_log = position.diverging is not None and offset <= log.end_offset
        return IN_LOG if is_in_log else position

    patch.setattr(LogState, "position_of", position_of)


def wins_elections_without_a_majority(patch: Patch) -> None:
    patch.setattr(Votes, "majority", property(lambda votes: len(votes.voters) // 2))


def stands_for_election_only_once(patch: Patch) -> None:
    original = RaftNode._on_timeout

    def on_timeout(node: RaftNode, now_ms: int) -> None:
        if node.epoch < 2:
            original(node, now_ms)
        else:
            node.role.deadline_ms = now_ms + 1000

    patch.setattr(RaftNode, "_on_timeout", on_timeout)


def forgets_that_it_pauses(patch: Patch) -> None:
    patch.setattr(Outbox, "may_send_to", lambda outbox, receiver, now_ms: receiver not in outbox._in_flight)


def changes_two_voters_at_once(patch: Patch) -> None:
    original = membership._refusal_of_leader

    def refusal(node: Any, *, is_urgent: bool = False) -> Any:
        if isinstance(node.role, Leader):
            node.role.change = None
        return original(node, is_urgent=is_urgent)

    patch.setattr(membership, "_refusal_of_leader", refusal)
    patch.setattr(membership, "has_uncommitted_voters", lambda node: False)


def changes_voters_before_a_commit_in_its_epoch(patch: Patch) -> None:
    patch.setattr(membership, "has_committed_in_epoch", lambda leader: True)
    patch.setattr(membership, "has_uncommitted_voters", lambda node: False)


def keeps_voters_that_are_truncated(patch: Patch) -> None:
    patch.setattr(VoterHistory, "truncate_to", lambda history, offset: None)


@pytest.mark.slow
@pytest.mark.parametrize(
    "bug",
    [
        changes_two_voters_at_once,
        changes_voters_before_a_commit_in_its_epoch,
        keeps_voters_that_are_truncated,
    ],
)
def test_a_planted_bug_of_membership_is_found(
    bug: Callable[[Patch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It shows as two leaders, as lost commits, or as a node that notices it itself."""
    bug(monkeypatch)
    with pytest.raises(QuorumViolation):
        run_seeds("voters")


def run_seeds(workload: str) -> None:
    for seed in SEEDS:
        run_workload(workload, seed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bug", "checker"),
    [
        (does_not_write_the_vote, VOTE_DURABILITY),
        (does_not_sync_the_vote, VOTE_DURABILITY),
        (commits_an_entry_of_an_older_epoch, COMMIT_RULE),
        (acts_on_uncommitted_metadata, STATE_MACHINE_SAFETY),
        (truncates_below_the_high_watermark, STATE_MACHINE_SAFETY),
        (acknowledges_before_the_flush, STATE_MACHINE_SAFETY),
        (votes_for_a_shorter_log, LEADER_COMPLETENESS),
        (acknowledges_after_it_was_deposed, ACKNOWLEDGED_COMMANDS),
        (withdraws_the_images_of_a_deposed_controller_only_after_publishing, STATE_MACHINE_SAFETY),
        (appends_to_a_log_that_has_diverged, LOG_MATCHING),
        (wins_elections_without_a_majority, ELECTION_SAFETY),
        (stands_for_election_only_once, PROGRESS),
        (forgets_that_it_pauses, PAUSES),
    ],
)
def test_a_planted_bug_is_found_by_the_checker_of_its_guarantee(
    bug: Callable[[Patch], None], checker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    found: list[str] = []
    for seed in SEEDS:
        try:
            run_workload("quorum", seed)
        except QuorumViolation as violation:
            # A bug may break several guarantees. The seed decides which of them is broken first.
            found.append(violation.checker)
        if checker in found:
            return
    pytest.fail(f"no seed of {SEEDS} found the bug by {checker}; found: {found}")
