"""Offsets committed in a transaction (KIP-98, KIP-447): they are visible once the transaction is committed."""

import pytest
from tests.unit.core.groups.offsets.offsets_shell import OffsetsShell
from tests.unit.core.groups.transactional_shell import Written

from ottla.core.groups.commands import (
    CommittedOffset,
    DeleteGroup,
    DeletePartitionOffsets,
    OffsetDelete,
    OffsetToCommit,
)
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


@pytest.fixture
def shell() -> OffsetsShell:
    return OffsetsShell()


def at(offset: int, partition: int = 0) -> OffsetToCommit:
    return OffsetToCommit("t", partition, offset)


def test_a_transactional_offset_is_visible_after_its_transaction_is_committed(shell: OffsetsShell) -> None:
    shell.commit(at(5))
    shell.commit_in_transaction(100, at(10), OffsetToCommit("t", 1, 20, 3, "kept"))
    assert (shell.offset_of("t"), shell.offset_of("t", 1)) == (5, -1)
    shell.end_transaction(100, committed=True)
    assert shell.fetch(T0, T1) == (CommittedOffset("t", 0, 10), CommittedOffset("t", 1, 20, 3, "kept"))


def test_a_transactional_offset_is_dropped_if_its_transaction_is_aborted(shell: OffsetsShell) -> None:
    shell.commit(at(5))
    shell.commit_in_transaction(100, at(10))
    shell.end_transaction(100, committed=False)
    assert shell.fetch(T0, require_stable=True) == (CommittedOffset("t", 0, 5),)


def test_the_records_belong_to_the_producers_transaction(shell: OffsetsShell) -> None:
    shell.commit_in_transaction(100, at(10))
    assert [entry.producer_id for entry in shell.log if isinstance(entry, Written)] == [100]


def test_a_stable_fetch_gets_unstable_offset_commit_for_pending_partitions(shell: OffsetsShell) -> None:
    shell.commit(at(5), at(6, partition=1))
    shell.commit_in_transaction(100, at(10))
    unstable = CommittedOffset("t", 0, error_code=ErrorCode.unstable_offset_commit)
    assert shell.fetch(T0, T1, require_stable=True) == (unstable, CommittedOffset("t", 1, 6))
    assert shell.fetch(require_stable=True) == (unstable, CommittedOffset("t", 1, 6))
    assert shell.fetch(T0, T1) == (CommittedOffset("t", 0, 5), CommittedOffset("t", 1, 6))


def test_a_partition_with_only_a_pending_offset_is_not_in_a_fetch_of_all(shell: OffsetsShell) -> None:
    shell.commit_in_transaction(100, at(10))
    assert shell.fetch(require_stable=True) == ()
    assert shell.fetch(T0, require_stable=True)[0].error_code is ErrorCode.unstable_offset_commit


def test_a_plain_commit_is_not_overwritten_by_an_older_transactional_one(shell: OffsetsShell) -> None:
    shell.commit_in_transaction(100, at(10))
    shell.commit(at(50))
    assert shell.fetch(T0, require_stable=True)[0].error_code is ErrorCode.unstable_offset_commit
    shell.end_transaction(100, committed=True)
    assert shell.offset_of("t") == 50


def test_of_two_transactions_the_last_writer_wins_whichever_ends_first(shell: OffsetsShell) -> None:
    shell.commit_in_transaction(100, at(10), at(10, partition=1))
    shell.commit_in_transaction(200, at(20), at(20, partition=1))
    shell.commit_in_transaction(100, at(11))
    shell.end_transaction(200, committed=True)
    assert (shell.offset_of("t"), shell.offset_of("t", 1)) == (20, 20)
    shell.end_transaction(100, committed=True)
    assert (shell.offset_of("t"), shell.offset_of("t", 1)) == (11, 20)


def test_an_aborted_newer_transaction_does_not_hide_an_older_one(shell: OffsetsShell) -> None:
    shell.commit_in_transaction(100, at(10))
    shell.commit_in_transaction(200, at(20))
    shell.end_transaction(200, committed=False)
    shell.end_transaction(100, committed=True)
    assert shell.offset_of("t") == 10


def test_a_marker_without_offsets_changes_nothing(shell: OffsetsShell) -> None:
    shell.commit(at(5))
    shell.end_transaction(100, committed=True)
    assert shell.offset_of("t") == 5


def test_a_transaction_may_write_into_several_groups(shell: OffsetsShell) -> None:
    shell.commit_in_transaction(100, at(1), group_id="a")
    shell.commit_in_transaction(100, at(2), group_id="b")
    shell.end_transaction(100, committed=True)
    assert (shell.offset_of("t", group_id="a"), shell.offset_of("t", group_id="b")) == (1, 2)


def test_pending_offsets_survive_a_restart(shell: OffsetsShell) -> None:
    shell.commit_in_transaction(100, at(10), at(10, partition=1))
    shell.commit(at(50))
    shell.reload()
    assert shell.fetch(T0, require_stable=True)[0].error_code is ErrorCode.unstable_offset_commit
    shell.end_transaction(100, committed=True)
    assert (shell.offset_of("t"), shell.offset_of("t", 1)) == (50, 10)


def test_a_deleted_offset_does_not_come_back_with_the_marker(shell: OffsetsShell) -> None:
    shell.commit_in_transaction(100, at(10), at(10, partition=1))
    shell.ask(OffsetDelete(group_id="g", partitions=(T0,)))
    assert shell.fetch(T0, require_stable=True) == (CommittedOffset("t", 0),)
    shell.end_transaction(100, committed=True)
    assert (shell.offset_of("t"), shell.offset_of("t", 1)) == (-1, 10)


def test_deleting_a_topic_deletes_its_pending_offsets(shell: OffsetsShell) -> None:
    shell.commit_in_transaction(100, at(10), OffsetToCommit("kept", 0, 3))
    shell.ask(DeletePartitionOffsets(topics=frozenset({"t"})))
    shell.end_transaction(100, committed=True)
    assert [each.topic for each in shell.fetch()] == ["kept"]


def test_deleting_a_group_deletes_pending_offsets_with_one_tombstone_per_partition(
    shell: OffsetsShell,
) -> None:
    shell.commit(at(5))
    shell.commit_in_transaction(100, at(10), at(10, partition=1))
    shell.records.clear()
    shell.ask(DeleteGroup(group_id="g"))
    assert [(key.topic, key.partition) for key, value in shell.records[:-1] if value is None] == [T0, T1]
    assert shell.machine.state.groups == {}
    shell.end_transaction(100, committed=True)
    assert shell.fetch() == ()


def test_a_group_with_pending_offsets_is_neither_expired_nor_removed() -> None:
    shell = OffsetsShell(offsets_retention_ms=1000, offsets_retention_check_interval_ms=100)
    shell.commit(at(5))
    shell.commit_in_transaction(100, at(10))
    shell.advance(5000)
    assert shell.offset_of("t") == 5
    shell.end_transaction(100, committed=False)
    shell.advance(100)
    assert shell.offset_of("t") == -1
    assert shell.machine.state.groups == {}


def test_a_transactional_commit_under_the_empty_group_id_is_rejected(shell: OffsetsShell) -> None:
    with pytest.raises(KafkaError, match="INVALID_GROUP_ID"):
        shell.commit_in_transaction(100, at(10), group_id="")


def test_a_transactional_commit_of_a_generation_to_an_unknown_group_is_rejected(shell: OffsetsShell) -> None:
    with pytest.raises(KafkaError, match="ILLEGAL_GENERATION"):
        shell.commit_in_transaction(100, at(10), member_id="m", generation_id=1)


def test_the_group_decides_who_may_commit_in_a_transaction(shell: OffsetsShell) -> None:
    shell.add_group().rejection = KafkaError(
        ErrorCode.fenced_instance_id, "another member has this instance id"
    )
    with pytest.raises(KafkaError, match="FENCED_INSTANCE_ID"):
        shell.commit_in_transaction(100, at(10), member_id="m", generation_id=1)
    assert shell.log == []


def test_metadata_that_is_too_large_is_rejected_only_for_its_partition_in_a_transaction() -> None:
    shell = OffsetsShell(offset_metadata_max_bytes=3)
    response = shell.commit_in_transaction(
        100, OffsetToCommit("t", 0, 1, metadata="abcd"), at(1, partition=1)
    )
    assert [each.error_code for each in response] == [ErrorCode.offset_metadata_too_large, ErrorCode.none]
    shell.end_transaction(100, committed=True)
    assert [each.partition for each in shell.fetch()] == [1]
