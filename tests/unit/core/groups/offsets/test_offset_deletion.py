"""Deletion of offsets: by request (KIP-496), with their topic, with their group, and by expiry (KIP-211)."""

import pytest
from tests.unit.core.groups.offsets.offsets_shell import OffsetsShell

from ottla.core.groups.commands import (
    DeleteGroup,
    DeletePartitionOffsets,
    ExpireOffsets,
    OffsetDelete,
    OffsetToCommit,
    PartitionError,
)
from ottla.core.groups.group import OffsetExpiry
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition
from ottla.protocol.group_records.records import GroupMetadataKey, OffsetCommitKey

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


@pytest.fixture
def shell() -> OffsetsShell:
    return OffsetsShell(offsets_retention_ms=1000, offsets_retention_check_interval_ms=100)


def test_deleting_an_offset_writes_a_tombstone(shell: OffsetsShell) -> None:
    shell.commit(OffsetToCommit("t", 0, 10), OffsetToCommit("t", 1, 11))
    shell.records.clear()
    response = shell.ask(OffsetDelete(group_id="g", partitions=(T0,)))
    assert response == (PartitionError("t", 0, ErrorCode.none),)
    assert shell.records == [(OffsetCommitKey(group="g", topic="t", partition=0), None)]
    assert (shell.offset_of("t", 0), shell.offset_of("t", 1)) == (-1, 11)


def test_deleting_an_offset_that_was_never_committed_writes_no_record(shell: OffsetsShell) -> None:
    shell.add_group()
    response = shell.ask(OffsetDelete(group_id="g", partitions=(T0, T0)))
    assert response == (PartitionError("t", 0, ErrorCode.none),) * 2
    assert shell.records == []


def test_offsets_of_a_subscribed_topic_cannot_be_deleted(shell: OffsetsShell) -> None:
    shell.add_group().subscription = {"used"}
    shell.commit(OffsetToCommit("used", 0, 1), OffsetToCommit("t", 0, 2))
    response = shell.ask(OffsetDelete(group_id="g", partitions=(TopicPartition("used", 0), T0)))
    assert [each.error_code for each in response] == [ErrorCode.group_subscribed_to_topic, ErrorCode.none]
    assert (shell.offset_of("used"), shell.offset_of("t")) == (1, -1)


def test_the_group_decides_whether_offsets_may_be_deleted_at_all(shell: OffsetsShell) -> None:
    shell.add_group().rejection = KafkaError(ErrorCode.non_empty_group, "members are there")
    with pytest.raises(KafkaError, match="NON_EMPTY_GROUP"):
        shell.ask(OffsetDelete(group_id="g", partitions=(T0,)))


@pytest.mark.parametrize(
    ("group_id", "code"), [("unknown", ErrorCode.group_id_not_found), ("", ErrorCode.invalid_group_id)]
)
def test_offsets_of_an_unknown_group_cannot_be_deleted(
    shell: OffsetsShell, group_id: str, code: ErrorCode
) -> None:
    with pytest.raises(KafkaError) as rejection:
        shell.ask(OffsetDelete(group_id=group_id, partitions=(T0,)))
    assert rejection.value.code is code


def test_deleting_a_topic_deletes_its_offsets_in_every_group_even_if_it_is_subscribed(
    shell: OffsetsShell,
) -> None:
    shell.add_group("member").subscription = {"t"}
    for group_id in ("member", "simple"):
        shell.commit(OffsetToCommit("t", 0, 1), OffsetToCommit("kept", 0, 2), group_id=group_id)
    shell.ask(DeletePartitionOffsets(topics=frozenset({"t", "nobody reads it"})))
    for group_id in ("member", "simple"):
        assert [each.topic for each in shell.fetch(group_id=group_id)] == ["kept"]


def test_deleting_a_group_deletes_its_offsets(shell: OffsetsShell) -> None:
    shell.commit(OffsetToCommit("t", 0, 1), OffsetToCommit("t", 1, 2))
    shell.commit(OffsetToCommit("t", 0, 3), group_id="another")
    shell.records.clear()
    shell.ask(DeleteGroup(group_id="g"))
    assert shell.records == [
        (OffsetCommitKey(group="g", topic="t", partition=0), None),
        (OffsetCommitKey(group="g", topic="t", partition=1), None),
        (GroupMetadataKey(group="g"), None),
    ]
    assert list(shell.machine.state.groups) == ["another"]
    shell.reload()
    assert list(shell.machine.state.groups) == ["another"]


def test_a_group_that_rejects_its_deletion_keeps_its_offsets(shell: OffsetsShell) -> None:
    group = shell.add_group()
    shell.commit(OffsetToCommit("t", 0, 1))
    group.rejection = KafkaError(ErrorCode.non_empty_group, "members are there")
    with pytest.raises(KafkaError, match="NON_EMPTY_GROUP"):
        shell.ask(DeleteGroup(group_id="g"))
    group.rejection = None
    assert shell.offset_of("t") == 1


def test_an_unknown_group_cannot_be_deleted(shell: OffsetsShell) -> None:
    with pytest.raises(KafkaError, match="GROUP_ID_NOT_FOUND"):
        shell.ask(DeleteGroup(group_id="g"))


def test_an_offset_of_a_simple_group_expires_a_retention_after_its_commit(shell: OffsetsShell) -> None:
    shell.commit(OffsetToCommit("t", 0, 1))
    shell.advance(500)
    shell.commit(OffsetToCommit("t", 1, 2))
    shell.advance(499)
    assert [each.partition for each in shell.fetch()] == [0, 1]
    shell.advance(1)
    assert [each.partition for each in shell.fetch()] == [1]


def test_an_empty_group_is_deleted_with_its_last_offset(shell: OffsetsShell) -> None:
    shell.commit(OffsetToCommit("t", 0, 1))
    shell.records.clear()
    shell.advance(1000)
    assert shell.records == [
        (OffsetCommitKey(group="g", topic="t", partition=0), None),
        (GroupMetadataKey(group="g"), None),
    ]
    assert shell.machine.state.groups == {}


def test_a_group_with_members_is_kept_without_offsets(shell: OffsetsShell) -> None:
    shell.add_group()
    shell.commit(OffsetToCommit("t", 0, 1))
    shell.advance(1000)
    assert shell.fetch() == ()
    assert list(shell.machine.state.groups) == ["g"]


def test_an_empty_group_without_commits_is_deleted_at_the_next_check(shell: OffsetsShell) -> None:
    shell.add_group().is_empty = True
    shell.advance(100)
    assert shell.machine.state.groups == {}


def test_offsets_of_subscribed_topics_do_not_expire(shell: OffsetsShell) -> None:
    group = shell.add_group()
    group.subscription = {"used"}
    shell.commit(OffsetToCommit("used", 0, 1), OffsetToCommit("t", 0, 2))
    shell.advance(5000)
    assert [each.topic for each in shell.fetch()] == ["used"]
    group.subscription = set()
    shell.advance(100)
    assert shell.fetch() == ()


def test_nothing_expires_in_a_group_with_unknown_subscriptions(shell: OffsetsShell) -> None:
    shell.add_group().expiry = None
    shell.commit(OffsetToCommit("t", 0, 1))
    shell.advance(5000)
    assert shell.offset_of("t") == 1


def test_the_retention_of_offsets_starts_when_the_group_becomes_empty(shell: OffsetsShell) -> None:
    group = shell.add_group()
    group.subscription = {"t"}
    shell.commit(OffsetToCommit("t", 0, 1))
    shell.advance(3000)
    group.subscription, group.is_empty, group.expiry = set(), True, OffsetExpiry(since_ms=shell.now_ms)
    shell.advance(999)
    assert shell.offset_of("t") == 1
    shell.advance(1)
    assert shell.fetch() == ()
    assert shell.machine.state.groups == {}


def test_an_offset_committed_after_the_group_became_empty_has_its_own_retention(
    shell: OffsetsShell,
) -> None:
    group = shell.add_group()
    group.is_empty, group.expiry = True, OffsetExpiry(since_ms=shell.now_ms)
    shell.commit(OffsetToCommit("t", 0, 1))
    shell.advance(900)
    shell.commit(OffsetToCommit("t", 1, 2))
    shell.advance(900)
    assert [each.partition for each in shell.fetch()] == [1]


@pytest.mark.parametrize("retention_ms", [300, 3000])
def test_an_offset_with_its_own_retention_expires_after_it(shell: OffsetsShell, retention_ms: int) -> None:
    shell.commit(OffsetToCommit("t", 0, 1), retention_ms=retention_ms)
    shell.advance(retention_ms - 1)
    assert shell.offset_of("t") == 1
    shell.advance(1)
    assert shell.offset_of("t") == -1


def test_a_commit_restarts_the_retention_of_an_offset(shell: OffsetsShell) -> None:
    for offset in range(10):
        shell.commit(OffsetToCommit("t", 0, offset))
        shell.advance(900)
    assert shell.offset_of("t") == 9


def test_offsets_expire_after_a_restart_too(shell: OffsetsShell) -> None:
    shell.commit(OffsetToCommit("t", 0, 1))
    shell.advance(950)
    shell.reload()
    shell.advance(50)
    assert shell.offset_of("t") == 1
    shell.advance(50)
    assert shell.offset_of("t") == -1


def test_expiry_is_checked_repeatedly(shell: OffsetsShell) -> None:
    due = [(due_ms, command) for due_ms, _, command in shell.timers.values()]
    assert due == [(shell.now_ms + 100, ExpireOffsets())]
    shell.advance(250)
    due = [(due_ms, command) for due_ms, _, command in shell.timers.values()]
    assert due == [(shell.now_ms + 50, ExpireOffsets())]


def test_a_check_without_anything_to_expire_writes_nothing(shell: OffsetsShell) -> None:
    shell.commit(OffsetToCommit("t", 0, 1))
    shell.records.clear()
    shell.advance(500)
    assert shell.records == []
