"""Random events in a whole shard: groups that change between protocols, commits by members, by other clients and in
transactions, deletions, expiry, changes of topics, restarts, and a log cleaner.

After every step the shard equals the one rebuilt from the bytes of its log.
"""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.examples import examples
from tests.unit.core.groups.consumer.consumer_groups import Topics
from tests.unit.core.groups.migration.mixed_groups import ClassicConsumer
from tests.unit.core.groups.transactional_shell import Marker, Written, replay_entry
from tests.unit.core.groups.whole_shard import FENCING, GroupOfShard, ModernConsumer, ShardShell

from ottla.core.groups.commands import (
    DeleteGroup,
    DeletePartitionOffsets,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetToCommit,
    TxnOffsetCommit,
)
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition

TOPICS = ("orders", "clicks")
GROUPS = ("a", "b")
RETENTION_MS = 60_000
SETTINGS = {
    "initial_rebalance_delay_ms": 500,
    "offsets_retention_ms": RETENTION_MS,
    "offsets_retention_check_interval_ms": 10_000,
}
# Seconds after which stopped members are removed and expiry has been checked.
SETTLED_AFTER = 70
CHECKED_AFTER = 11
COMMIT_REJECTIONS = {
    ErrorCode.unknown_member_id,
    ErrorCode.fenced_instance_id,
    ErrorCode.illegal_generation,
    ErrorCode.stale_member_epoch,
    ErrorCode.rebalance_in_progress,
    ErrorCode.group_id_not_found,
}

AnyConsumer = ClassicConsumer | ModernConsumer


def epoch_of(consumer: AnyConsumer) -> int:
    return consumer.generation_id if isinstance(consumer, ClassicConsumer) else consumer.epoch


picks = st.integers(0, 1000)
group_ids = st.sampled_from(GROUPS)
partitions = st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 1))
positions = st.integers(0, 1000)


class ShardModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.topics = Topics(orders=3, clicks=2)
        self.shell = ShardShell(self.topics, **SETTINGS)
        self.groups = {group_id: GroupOfShard(self.shell, group_id) for group_id in GROUPS}
        self.consumers: list[AnyConsumer] = []
        self.made = 0
        self.open: set[int] = set()
        self.rebuilt = self.shell.fresh()
        self.num_replayed = 0

    # -- members

    @initialize(kinds=st.lists(st.tuples(group_ids, st.booleans()), max_size=3))
    def start_together(self, kinds: list[tuple[str, bool]]) -> None:
        for group_id, classic in kinds:
            self.start(group_id, classic, TOPICS, None)
        self.let_all_act(8)

    @precondition(lambda self: len(self.consumers) < 6)
    @rule(
        group_id=group_ids,
        classic=st.booleans(),
        topics=st.sampled_from((("orders",), ("clicks",), TOPICS)),
        instance_id=st.sampled_from((None, None, "one")),
    )
    def start(self, group_id: str, classic: bool, topics: tuple[str, ...], instance_id: str | None) -> None:
        """The previous process with the same instance id has stopped: this is its restart."""
        self.made += 1
        groups: Any = self.groups[group_id]
        kind = ClassicConsumer if classic else ModernConsumer
        consumer = kind(groups, f"m{self.made}", *topics, instance_id=instance_id)
        if instance_id is not None:
            self.consumers = [c for c in self.consumers if (c.groups, c.instance_id) != (groups, instance_id)]
        self.consumers.append(consumer)
        consumer.act()
        self.listen()

    @precondition(lambda self: self.consumers)
    @rule(pick=picks)
    def one_acts(self, pick: int) -> None:
        self.picked(pick).act()
        self.listen()

    @rule(seconds=st.integers(1, 8))
    def let_all_act(self, seconds: int) -> None:
        for _ in range(seconds if self.consumers else 0):
            for consumer in self.consumers:
                consumer.act()
            self.shell.advance(1000)
            self.listen()

    @precondition(lambda self: self.consumers)
    @rule(pick=picks, properly=st.booleans())
    def stop(self, pick: int, properly: bool) -> None:
        consumer = self.picked(pick)
        self.consumers.remove(consumer)
        if properly and consumer.member_id:
            try:
                consumer.leave()
            except KafkaError as rejection:
                if rejection.code not in FENCING:
                    raise
        self.listen()

    def picked(self, pick: int) -> AnyConsumer:
        return self.consumers[pick % len(self.consumers)]

    def listen(self) -> None:
        for consumer in self.consumers:
            if isinstance(consumer, ClassicConsumer):
                consumer.listen()

    # -- offsets

    @precondition(lambda self: any(consumer.member_id for consumer in self.consumers))
    @rule(pick=picks, partition=partitions, position=positions)
    def commit_as_member(self, pick: int, partition: TopicPartition, position: int) -> None:
        members = [consumer for consumer in self.consumers if consumer.member_id]
        consumer = members[pick % len(members)]
        group_id = consumer.groups.group_id  # type: ignore[attr-defined]
        group = self.shell.find(group_id)
        may_commit = group is None or group.is_empty or consumer.member_id in self.groups[group_id].members
        is_classic = isinstance(consumer, ClassicConsumer)
        self.commit(
            may_commit,
            OffsetCommit(
                group_id=group_id,
                member_id=consumer.member_id,
                group_instance_id=consumer.instance_id if is_classic else None,
                generation_or_member_epoch=epoch_of(consumer),
                offsets=(OffsetToCommit(*partition, position, metadata=consumer.member_id),),
            ),
        )

    @rule(
        group_id=group_ids, partition=partitions, position=positions, retention_ms=st.none() | st.just(5000)
    )
    def commit_from_outside(
        self, group_id: str, partition: TopicPartition, position: int, retention_ms: int | None
    ) -> None:
        group = self.shell.find(group_id)
        is_free = group is None or group.is_empty
        command = OffsetCommit(
            group_id=group_id,
            member_id="",
            group_instance_id=None,
            generation_or_member_epoch=-1,
            offsets=(OffsetToCommit(*partition, position),),
            retention_ms=retention_ms,
        )
        error = self.commit(is_free, command)
        assert error is (ErrorCode.none if is_free else ErrorCode.unknown_member_id)

    def commit(self, may_commit: bool, command: OffsetCommit) -> ErrorCode:
        """A rejected commit changes nothing; an accepted one can be fetched."""
        (committed,) = command.offsets
        partition = TopicPartition(committed.topic, committed.partition)
        before = self.offset_of(command.group_id, partition)
        error = self.shell.error_of(command)
        if error is ErrorCode.none:
            assert may_commit
            assert self.offset_of(command.group_id, partition) == committed.offset
        else:
            assert error in COMMIT_REJECTIONS
            assert self.offset_of(command.group_id, partition) == before
        return error

    @rule(group_id=group_ids, producer_id=st.sampled_from((7, 8)), partition=partitions, position=positions)
    def commit_in_transaction(
        self, group_id: str, producer_id: int, partition: TopicPartition, position: int
    ) -> None:
        before = self.shell.offsets_of(group_id)
        self.shell.ask(
            TxnOffsetCommit(
                group_id=group_id,
                producer_id=producer_id,
                producer_epoch=0,
                member_id="",
                group_instance_id=None,
                generation_id=-1,
                offsets=(OffsetToCommit(*partition, position),),
            )
        )
        self.open.add(producer_id)
        assert self.shell.offsets_of(group_id) == before

    @precondition(lambda self: self.open)
    @rule(pick=picks, committed=st.booleans())
    def end_transaction(self, pick: int, committed: bool) -> None:
        producer_id = sorted(self.open)[pick % len(self.open)]
        self.open.remove(producer_id)
        self.shell.end_transaction(producer_id, committed)

    def offset_of(self, group_id: str, partition: TopicPartition) -> int | None:
        offsets = self.shell.offsets_of(group_id)
        return next((each.offset for each in offsets if (each.topic, each.partition) == partition), None)

    # -- deletion and time

    @rule(group_id=group_ids, partition=partitions)
    def delete_offset(self, group_id: str, partition: TopicPartition) -> None:
        group = self.shell.find(group_id)
        error = self.shell.error_of(OffsetDelete(group_id=group_id, partitions=(partition,)))
        if group is None:
            assert error is ErrorCode.group_id_not_found
        elif not group.is_subscribed_to(partition.topic):
            assert self.offset_of(group_id, partition) is None

    @rule(group_id=group_ids)
    def delete_group(self, group_id: str) -> None:
        group = self.shell.find(group_id)
        if group is None:
            expected = ErrorCode.group_id_not_found
        else:
            expected = ErrorCode.none if group.is_empty else ErrorCode.non_empty_group
        assert self.shell.error_of(DeleteGroup(group_id=group_id)) is expected
        if expected is ErrorCode.none:
            assert self.shell.find(group_id) is None
            assert self.shell.offsets_of(group_id) == ()

    @rule(name=st.sampled_from(TOPICS), is_notified=st.booleans())
    def change_topic(self, name: str, is_notified: bool) -> None:
        topic = self.topics.find(name)
        if topic is None:
            self.topics.create(name, 2)
        elif topic.num_partitions < 4:
            self.topics.grow(name, topic.num_partitions + 1)
        else:
            self.topics.delete(name)
            self.shell.ask(DeletePartitionOffsets(topics=frozenset({name})))
            assert all(each.topic != name for group_id in GROUPS for each in self.shell.offsets_of(group_id))
        if is_notified:
            self.shell.changed_topics()

    @rule(ms=st.sampled_from((1, 1000, 12_000, RETENTION_MS + 10_000)))
    def time_passes(self, ms: int) -> None:
        self.shell.advance(ms)
        self.listen()

    @rule()
    def restart(self) -> None:
        self.shell.restart()
        for consumer in self.consumers:
            if isinstance(consumer, ClassicConsumer) and consumer.waits_for is not None:
                consumer.waits_for = None
                consumer.joined, consumer.is_stable = None, False

    @rule(percent=st.integers(0, 100))
    def clean_the_log(self, percent: int) -> None:
        self.shell.clean_log(len(self.shell.log) * percent // 100)
        self.rebuilt = self.shell.fresh()
        self.num_replayed = 0

    # -- invariants

    @invariant()
    def what_is_rebuilt_from_the_log_is_what_is_there(self) -> None:
        entries: list[Written | Marker] = self.shell.log[self.num_replayed :]
        for entry in entries:
            replay_entry(entry, self.rebuilt)
        self.num_replayed = len(self.shell.log)
        self.rebuilt.validate()
        assert durable(self.rebuilt) == durable(self.shell.machine)

    @invariant()
    def all_groups_are_listed(self) -> None:
        listed = {group.group_id for group in self.shell.ask(ListGroups())}
        assert listed == {group_id for group_id in GROUPS if self.shell.find(group_id) is not None}

    def teardown(self) -> None:
        """When all members have stopped, in the end no group and no offset is left."""
        self.let_all_act(SETTLED_AFTER)
        before = [self.membership(consumer) for consumer in self.consumers]
        self.let_all_act(CHECKED_AFTER)
        assert [self.membership(consumer) for consumer in self.consumers] == before
        for producer_id in self.open:
            self.shell.end_transaction(producer_id, committed=True)
        self.shell.advance(10 * RETENTION_MS)
        assert self.shell.machine.state.groups == {}
        assert all(self.shell.offsets_of(group_id) == () for group_id in GROUPS)

    def membership(self, consumer: AnyConsumer) -> tuple[str, int]:
        assert consumer.member_id in consumer.groups.members  # type: ignore[attr-defined]
        return consumer.member_id, epoch_of(consumer)


def durable(shard: Any) -> dict[str, Any]:
    """Without classic groups that have no record of their own: the cleaner may have removed their offsets."""
    state: dict[str, Any] = shard.durable_state()
    return state | {"classic": {group_id: value for group_id, value in state["classic"].items() if value}}


TestShardModel = ShardModel.TestCase
TestShardModel.settings = examples(60, stateful_step_count=40)
