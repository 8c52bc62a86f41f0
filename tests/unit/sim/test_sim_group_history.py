"""The group history detects every violation that it checks for."""

import math

import pytest

from ottla.sim.group_history import NOTHING_COMMITTED, GroupHistory, GroupPartitionHistory, Lease
from ottla.sim.history import Violation


@pytest.fixture
def partition() -> GroupPartitionHistory:
    return GroupPartitionHistory("partition 0 of g")


def forever() -> Lease:
    return Lease(math.inf)


def test_a_partition_may_change_its_owner_after_it_was_given_up_or_its_lease_ended(
    partition: GroupPartitionHistory,
) -> None:
    first = partition.assign("a", forever(), 1)
    first.has_ended = True
    second = partition.assign("b", Lease(9.0), 2)
    third = partition.assign("c", forever(), 9.0)
    assert [first.number, second.number, third.number] == [0, 1, 2]


def test_two_owners_of_a_partition_are_detected(partition: GroupPartitionHistory) -> None:
    partition.assign("a", Lease(9.0), 1)
    with pytest.raises(Violation, match="assigned to b while a owns it"):
        partition.assign("b", forever(), 8.9)


def test_processing_a_lost_partition_is_detected(partition: GroupPartitionHistory) -> None:
    old = partition.assign("a", Lease(9.0), 1)
    partition.assign("b", forever(), 9.0)
    with pytest.raises(Violation, match="a processes offset 5"):
        partition.process(old, 5)


def test_unprocessed_offsets_are_detected() -> None:
    history = GroupHistory("g", 1)
    ownership = history[0].assign("a", forever(), 0)
    history[0].process(ownership, 0)
    history.check_processed(0, 1)
    with pytest.raises(Violation, match=r"nobody processed offsets \[1\]"):
        history.check_processed(0, 2)


def test_reads_of_committed_offsets_in_a_valid_order_pass(partition: GroupPartitionHistory) -> None:
    ownership = partition.assign("a", forever(), 0)
    partition.read(NOTHING_COMMITTED, "", 0, 1)
    acknowledged = partition.commit(ownership, 5, 1)
    partition.acknowledge(acknowledged, 2)
    partition.read(5, acknowledged.name, 3, 4)
    # Its response was lost: it may take effect at any time, also after later commits.
    lost = partition.commit(ownership, 7, 4)
    again = partition.commit(ownership, 6, 5)
    partition.acknowledge(again, 6)
    partition.read(6, again.name, 7, 8)
    partition.read(7, lost.name, 9, 10)


def test_a_lost_commit_is_detected(partition: GroupPartitionHistory) -> None:
    ownership = partition.assign("a", forever(), 0)
    partition.acknowledge(partition.commit(ownership, 5, 1), 2)
    with pytest.raises(Violation, match=r"commit nothing of offset -1 .* was read"):
        partition.read(NOTHING_COMMITTED, "", 3, 4)


def test_a_return_to_an_older_commit_is_detected(partition: GroupPartitionHistory) -> None:
    ownership = partition.assign("a", forever(), 0)
    first = partition.commit(ownership, 5, 1)
    partition.acknowledge(first, 2)
    second = partition.commit(ownership, 7, 3)
    partition.read(7, second.name, 4, 5)  # not acknowledged, but read
    with pytest.raises(Violation, match="although commit 1 of a of offset 7 followed it"):
        partition.read(5, first.name, 6, 7)


def test_a_late_commit_of_a_former_owner_is_detected(partition: GroupPartitionHistory) -> None:
    old = partition.assign("a", Lease(2.0), 0)
    late = partition.commit(old, 5, 1)  # delayed by the network
    new = partition.assign("b", forever(), 3)
    partition.acknowledge(partition.commit(new, 7, 4), 5)
    with pytest.raises(Violation, match="commit 0 of a of offset 5"):
        partition.read(5, late.name, 6, 7)


def test_a_rejected_commit_that_is_read_is_detected(partition: GroupPartitionHistory) -> None:
    ownership = partition.assign("a", forever(), 0)
    commit = partition.commit(ownership, 5, 1)
    partition.reject(commit)
    with pytest.raises(Violation, match="was rejected, but read"):
        partition.read(5, commit.name, 2, 3)


def test_an_offset_that_nobody_committed_is_detected(partition: GroupPartitionHistory) -> None:
    with pytest.raises(Violation, match="nobody committed it"):
        partition.read(5, "whose", 0, 1)
