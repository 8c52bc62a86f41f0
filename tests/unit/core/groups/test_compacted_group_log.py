"""Groups are rebuilt from a compacted log, in which offsets may come first and tombstones may be missing."""

import pytest
from tests.unit.core.groups.consumer.consumer_groups import Topics
from tests.unit.core.groups.migration.mixed_groups import ClassicConsumer
from tests.unit.core.groups.whole_shard import GroupOfShard, ModernConsumer, ShardShell

from ottla.core.groups.classic.group import ClassicGroup
from ottla.core.groups.commands import DeleteGroup, OffsetCommit, OffsetToCommit
from ottla.core.groups.consumer.group import ConsumerGroup

AnyConsumer = ClassicConsumer | ModernConsumer


@pytest.fixture
def shell() -> ShardShell:
    return ShardShell(Topics(t=2), initial_rebalance_delay_ms=0)


def commit_from_outside(shell: ShardShell, offset: int = 1) -> None:
    offsets = (OffsetToCommit("t", 0, offset),)
    shell.ask(
        OffsetCommit(
            group_id="g",
            member_id="",
            group_instance_id=None,
            generation_or_member_epoch=-1,
            offsets=offsets,
        )
    )


def let_act(shell: ShardShell, *consumers: AnyConsumer) -> None:
    for _ in range(10):
        for consumer in consumers:
            consumer.act()
        shell.advance(1000)


def clean_and_restart(shell: ShardShell) -> None:
    before = shell.machine.durable_state()
    shell.clean_log(len(shell.log))
    shell.restart()
    assert shell.machine.durable_state() == before


def test_a_consumer_group_whose_records_follow_its_offsets(shell: ShardShell) -> None:
    commit_from_outside(shell)
    consumer = ModernConsumer(GroupOfShard(shell, "g"), "m", "t")
    let_act(shell, consumer)
    clean_and_restart(shell)
    assert isinstance(shell.find("g"), ConsumerGroup)
    assert [each.offset for each in shell.offsets_of("g")] == [1]
    epoch = consumer.epoch
    let_act(shell, consumer)
    assert consumer.epoch == epoch


def test_a_classic_group_whose_record_follows_its_offsets(shell: ShardShell) -> None:
    commit_from_outside(shell)
    consumer = ClassicConsumer(GroupOfShard(shell, "g"), "m", "t")  # type: ignore[arg-type]
    let_act(shell, consumer)
    clean_and_restart(shell)
    assert [each.offset for each in shell.offsets_of("g")] == [1]
    generation_id = consumer.generation_id
    let_act(shell, consumer)
    assert consumer.generation_id == generation_id


def test_a_group_that_was_upgraded_to_the_consumer_protocol(shell: ShardShell) -> None:
    groups = GroupOfShard(shell, "g")
    old = ClassicConsumer(groups, "old", "t")  # type: ignore[arg-type]
    let_act(shell, old)
    new = ModernConsumer(groups, "new", "t")
    let_act(shell, old, new)
    clean_and_restart(shell)
    assert isinstance(shell.find("g"), ConsumerGroup)
    assert set(groups.members) == {old.member_id, new.member_id}


def test_a_group_that_was_downgraded_to_the_classic_protocol(shell: ShardShell) -> None:
    groups = GroupOfShard(shell, "g")
    old = ClassicConsumer(groups, "old", "t")  # type: ignore[arg-type]
    new = ModernConsumer(groups, "new", "t")
    let_act(shell, old)
    let_act(shell, old, new)
    new.leave()
    let_act(shell, old)
    clean_and_restart(shell)
    assert isinstance(shell.find("g"), ClassicGroup)
    assert set(groups.members) == {old.member_id}


def test_a_deleted_group_leaves_no_state(shell: ShardShell) -> None:
    consumer = ModernConsumer(GroupOfShard(shell, "g"), "m", "t")
    let_act(shell, consumer)
    consumer.leave()
    commit_from_outside(shell)
    shell.ask(DeleteGroup(group_id="g"))
    clean_and_restart(shell)
    assert shell.log == []
    assert shell.find("g") is None
