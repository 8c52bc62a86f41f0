"""The checkers of groups catch what they are for."""

import math

import pytest

from ottla.sim.group_history import NOTHING_COMMITTED, CommittedPartition, GroupHistory, Lease
from ottla.sim.history import Violation


@pytest.fixture
def partition() -> CommittedPartition:
    return CommittedPartition("partition 0 of g")


def forever() -> Lease:
    return Lease(math.inf)


def test_a_partition_goes_to_the_next_owner_when_the_last_gave_it_up_or_its_lease_ended(
    partition: CommittedPartition,
) -> None:
    first = partition.assign("a", forever(), 1)
    first.has_ended = True
    second = partition.assign("b", Lease(9.0), 2)
    third = partition.assign("c", forever(), 9.0)
    assert [first.number, second.number, third.number] == [0, 1, 2]


def test_a_partition_with_two_owners_is_caught(partition: CommittedPartition) -> None:
    partition.assign("a", Lease(9.0), 1)
    with pytest.raises(Violation, match="assigned to b while a owns it"):
        partition.assign("b", forever(), 8.9)


def test_who_processes_what_another_owns_by_now_is_caught(partition: CommittedPartition) -> None:
    old = partition.assign("a", Lease(9.0), 1)
    partition.assign("b", forever(), 9.0)
    with pytest.raises(Violation, match="a processes offset 5"):
        partition.process(old, 5)


def test_what_nobody_processed_is_caught() -> None:
    history = GroupHistory("g", 1)
    tenure = history[0].assign("a", forever(), 0)
    history[0].process(tenure, 0)
    history.check_processed(0, 1)
    with pytest.raises(Violation, match=r"nobody processed offsets \[1\]"):
        history.check_processed(0, 2)


def test_reads_that_a_register_can_give_pass(partition: CommittedPartition) -> None:
    tenure = partition.assign("a", forever(), 0)
    partition.read(NOTHING_COMMITTED, "", 0, 1)
    acknowledged = partition.commit(tenure, 5, 1)
    partition.acknowledge(acknowledged, 2)
    partition.read(5, acknowledged.name, 3, 4)
    lost = partition.commit(
        tenure, 7, 4
    )  # its answer never came: it may take effect at any time, also after others
    again = partition.commit(tenure, 6, 5)
    partition.acknowledge(again, 6)
    partition.read(6, again.name, 7, 8)
    partition.read(7, lost.name, 9, 10)


def test_a_lost_commit_is_caught(partition: CommittedPartition) -> None:
    tenure = partition.assign("a", forever(), 0)
    partition.acknowledge(partition.commit(tenure, 5, 1), 2)
    with pytest.raises(Violation, match=r"commit nothing of offset -1 .* was read"):
        partition.read(NOTHING_COMMITTED, "", 3, 4)


def test_a_commit_that_was_replaced_and_comes_back_is_caught(partition: CommittedPartition) -> None:
    tenure = partition.assign("a", forever(), 0)
    first = partition.commit(tenure, 5, 1)
    partition.acknowledge(first, 2)
    second = partition.commit(tenure, 7, 3)
    partition.read(7, second.name, 4, 5)  # not acknowledged, but seen
    with pytest.raises(Violation, match="although commit 1 of a of offset 7 followed it"):
        partition.read(5, first.name, 6, 7)


def test_a_commit_of_a_former_owner_that_moves_the_offset_is_caught(partition: CommittedPartition) -> None:
    old = partition.assign("a", Lease(2.0), 0)
    late = partition.commit(old, 5, 1)  # under way for long
    new = partition.assign("b", forever(), 3)
    partition.acknowledge(partition.commit(new, 7, 4), 5)
    with pytest.raises(Violation, match="commit 0 of a of offset 5"):
        partition.read(5, late.name, 6, 7)


def test_a_refused_commit_that_is_read_is_caught(partition: CommittedPartition) -> None:
    tenure = partition.assign("a", forever(), 0)
    commit = partition.commit(tenure, 5, 1)
    partition.refuse(commit)
    with pytest.raises(Violation, match="was refused, but read"):
        partition.read(5, commit.name, 2, 3)


def test_an_offset_that_nobody_committed_is_caught(partition: CommittedPartition) -> None:
    with pytest.raises(Violation, match="nobody committed it"):
        partition.read(5, "whose", 0, 1)
