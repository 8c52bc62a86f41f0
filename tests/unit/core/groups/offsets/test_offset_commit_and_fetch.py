"""OffsetCommit and OffsetFetch."""

import uuid

import pytest
from tests.unit.core.groups.offsets.offsets_shell import OffsetsShell

from ottla.core.groups.classic.group import ClassicGroup
from ottla.core.groups.commands import CommittedOffset, OffsetFetch, OffsetToCommit, PartitionError
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition
from ottla.protocol.group_records.records import ExpiringOffsetCommitValue, OffsetCommitKey, OffsetCommitValue

TOPIC_ID = uuid.UUID(int=7)
REJECTION = KafkaError(ErrorCode.rebalance_in_progress, "the group rebalances: join again")


@pytest.fixture
def shell() -> OffsetsShell:
    return OffsetsShell()


def test_a_committed_offset_is_fetched_with_its_epoch_metadata_and_topic_id(shell: OffsetsShell) -> None:
    shell.commit(OffsetToCommit("t", 3, 42, leader_epoch=5, metadata="from host a", topic_id=TOPIC_ID))
    assert shell.fetch(TopicPartition("t", 3)) == (CommittedOffset("t", 3, 42, 5, "from host a", TOPIC_ID),)


def test_the_last_commit_of_a_partition_counts(shell: OffsetsShell) -> None:
    shell.commit(OffsetToCommit("t", 0, 10))
    shell.commit(OffsetToCommit("t", 0, 4))
    assert shell.offset_of("t") == 4


def test_the_response_to_a_commit_is_in_the_order_of_its_partitions(shell: OffsetsShell) -> None:
    response = shell.commit(OffsetToCommit("b", 1, 1), OffsetToCommit("a", 0, 1), OffsetToCommit("b", 0, 1))
    assert response == (
        PartitionError("b", 1, ErrorCode.none),
        PartitionError("a", 0, ErrorCode.none),
        PartitionError("b", 0, ErrorCode.none),
    )


def test_a_commit_writes_one_record_per_partition_with_the_time_of_the_commit(shell: OffsetsShell) -> None:
    shell.commit(OffsetToCommit("t", 0, 10, leader_epoch=2), OffsetToCommit("t", 1, 20, topic_id=TOPIC_ID))
    assert shell.records == [
        (
            OffsetCommitKey(group="g", topic="t", partition=0),
            OffsetCommitValue(offset=10, leader_epoch=2, metadata="", commit_timestamp=shell.now_ms),
        ),
        (
            OffsetCommitKey(group="g", topic="t", partition=1),
            OffsetCommitValue(offset=20, metadata="", commit_timestamp=shell.now_ms, topic_id=TOPIC_ID),
        ),
    ]


def test_the_retention_of_an_old_client_is_written_as_an_expiry_time(shell: OffsetsShell) -> None:
    shell.commit(OffsetToCommit("t", 0, 10, leader_epoch=2, topic_id=TOPIC_ID), retention_ms=500)
    expected = ExpiringOffsetCommitValue(
        offset=10, metadata="", commit_timestamp=shell.now_ms, expire_timestamp=shell.now_ms + 500
    )
    assert [value for _, value in shell.records] == [expected]
    assert shell.fetch(TopicPartition("t", 0)) == (CommittedOffset("t", 0, 10),)


def test_metadata_that_is_too_large_is_rejected_only_for_its_partition() -> None:
    shell = OffsetsShell(offset_metadata_max_bytes=3)
    response = shell.commit(
        OffsetToCommit("t", 0, 1, metadata="abc"),
        OffsetToCommit("t", 1, 1, metadata="abcd"),
        OffsetToCommit("t", 2, 1, metadata="\N{LATIN SMALL LETTER E WITH ACUTE}" * 3),
        OffsetToCommit("t", 3, 1, metadata="\N{CLINKING BEER MUGS}" * 2),
        OffsetToCommit("t", 4, 1),
    )
    assert [each.error_code for each in response] == [
        ErrorCode.none,
        ErrorCode.offset_metadata_too_large,
        ErrorCode.none,
        ErrorCode.offset_metadata_too_large,
        ErrorCode.none,
    ]
    assert [each.partition for each in shell.fetch()] == [0, 2, 4]


def test_a_commit_without_a_generation_to_an_unknown_group_creates_a_simple_group(
    shell: OffsetsShell,
) -> None:
    shell.commit(OffsetToCommit("t", 0, 10))
    group = shell.machine.state.groups["g"]
    assert isinstance(group, ClassicGroup)
    assert group.is_empty
    listed = group.as_listed_group()
    assert (listed.state, listed.protocol_type) == ("Empty", "")


def test_a_commit_that_is_rejected_for_every_partition_creates_no_group() -> None:
    shell = OffsetsShell(offset_metadata_max_bytes=0)
    shell.commit(OffsetToCommit("t", 0, 10, metadata="x"))
    assert shell.machine.state.groups == {}


@pytest.mark.parametrize(
    ("supports_stale_member_epoch", "code"),
    [(True, ErrorCode.group_id_not_found), (False, ErrorCode.illegal_generation)],
)
def test_a_commit_of_a_generation_to_an_unknown_group_is_rejected(
    shell: OffsetsShell, supports_stale_member_epoch: bool, code: ErrorCode
) -> None:
    with pytest.raises(KafkaError) as rejection:
        shell.commit(
            OffsetToCommit("t", 0, 10),
            member_id="m",
            generation_or_member_epoch=0,
            supports_stale_member_epoch=supports_stale_member_epoch,
        )
    assert rejection.value.code is code
    assert "'g'" in rejection.value.message
    assert shell.records == []
    assert shell.machine.state.groups == {}


def test_the_group_decides_who_may_commit(shell: OffsetsShell) -> None:
    shell.add_group().rejection = REJECTION
    with pytest.raises(KafkaError, match="REBALANCE_IN_PROGRESS"):
        shell.commit(OffsetToCommit("t", 0, 10), member_id="m", generation_or_member_epoch=1)
    assert shell.records == []


def test_old_clients_may_commit_and_fetch_with_an_empty_group_id(shell: OffsetsShell) -> None:
    shell.commit(OffsetToCommit("t", 0, 10), group_id="")
    assert shell.offset_of("t", group_id="") == 10


def test_a_partition_without_a_commit_is_fetched_as_minus_one(shell: OffsetsShell) -> None:
    shell.commit(OffsetToCommit("t", 0, 10))
    asked = TopicPartition("t", 1), TopicPartition("other", 0), TopicPartition("t", 0), TopicPartition("t", 1)
    assert shell.fetch(*asked) == (
        CommittedOffset("t", 1, -1, -1, ""),
        CommittedOffset("other", 0, -1, -1, ""),
        CommittedOffset("t", 0, 10),
        CommittedOffset("t", 1, -1, -1, ""),
    )


def test_a_fetch_of_an_unknown_group_returns_no_offsets_and_no_error(shell: OffsetsShell) -> None:
    assert shell.fetch(TopicPartition("t", 0), member_id="m", member_epoch=3) == (CommittedOffset("t", 0),)
    assert shell.fetch() == ()
    assert shell.machine.state.groups == {}


def test_a_fetch_of_all_offsets_returns_every_committed_partition_of_the_group(shell: OffsetsShell) -> None:
    shell.commit(OffsetToCommit("b", 1, 1), OffsetToCommit("a", 0, 2), OffsetToCommit("b", 0, 3))
    shell.commit(OffsetToCommit("a", 0, 99), group_id="another")
    fetched = {(each.topic, each.partition): each.offset for each in shell.fetch()}
    assert fetched == {("b", 1): 1, ("a", 0): 2, ("b", 0): 3}


def test_a_fetch_of_no_partitions_returns_none(shell: OffsetsShell) -> None:
    shell.commit(OffsetToCommit("t", 0, 10))
    assert shell.ask(OffsetFetch(group_id="g", partitions=())) == ()


def test_the_group_decides_who_may_fetch(shell: OffsetsShell) -> None:
    shell.add_group().rejection = KafkaError(ErrorCode.stale_member_epoch, "the member's epoch is 2, not 1")
    with pytest.raises(KafkaError, match="STALE_MEMBER_EPOCH"):
        shell.fetch(TopicPartition("t", 0), member_id="m", member_epoch=1)


def test_offsets_and_simple_groups_survive_a_restart(shell: OffsetsShell) -> None:
    shell.commit(OffsetToCommit("t", 0, 10, metadata="kept"), OffsetToCommit("t", 1, 11), retention_ms=7)
    shell.commit(OffsetToCommit("t", 1, 12, topic_id=TOPIC_ID))
    before = shell.fetch()
    shell.reload()
    assert shell.fetch() == before
    assert shell.machine.state.groups["g"].is_empty
