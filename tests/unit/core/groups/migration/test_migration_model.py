"""A group whose members change between the protocols one by one in any order, with crashes, restarts and reloads.

At no time do two members that the coordinator accepts own the same partition. After all members have acted for a while,
every partition has an owner, and the group has the type of its members.
"""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.examples import examples
from tests.unit.core.groups.consumer.consumer_groups import Member, Partition, Topics
from tests.unit.core.groups.migration.mixed_groups import ClassicConsumer, MixedGroups, all_partitions

from ottla.core.groups.classic.group import ClassicGroup
from ottla.core.groups.consumer.group import ConsumerGroup
from ottla.model.errors import ErrorCode, KafkaError

FENCING = (
    ErrorCode.unknown_member_id,
    ErrorCode.fenced_member_epoch,
    ErrorCode.fenced_instance_id,
    ErrorCode.group_id_not_found,
)
picks = st.integers(0, 1000)


class ModernConsumer(Member):
    """A member of the consumer protocol that rejoins when it is fenced."""

    def act(self) -> None:
        try:
            if self.epoch > 0:
                self.report()
            else:
                self.join()
        except KafkaError as rejection:
            self.epoch = 0
            self.owned.clear()
            self.assigned.clear()
            if rejection.code not in (*FENCING, ErrorCode.unreleased_instance_id):
                raise


AnyConsumer = ModernConsumer | ClassicConsumer


class MigrationModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.groups = MixedGroups(Topics(t=5), initial_rebalance_delay_ms=500)
        self.consumers: list[AnyConsumer] = []
        self.made = 0
        self.cooperative = True

    @initialize(
        cooperative=st.booleans(),
        classic=st.lists(st.booleans(), min_size=1, max_size=3),
        rounds=st.integers(0, 8),
    )
    def begin(self, cooperative: bool, classic: list[bool], rounds: int) -> None:
        """Classic members of one group need a common assignor."""
        self.cooperative = cooperative
        for is_classic in classic:
            self.start(is_classic, None)
        self.all_act(rounds)

    # -- events

    def make(self, classic: bool, instance_id: str | None) -> AnyConsumer:
        self.made += 1
        if classic:
            return ClassicConsumer(
                self.groups, f"m{self.made}", "t", cooperative=self.cooperative, instance_id=instance_id
            )
        return ModernConsumer(
            self.groups, f"m{self.made}", "t", instance_id=instance_id, rebalance_timeout_ms=20_000
        )

    @precondition(lambda self: len(self.consumers) < 5)
    @rule(classic=st.booleans(), instance_id=st.sampled_from([None, "one", "two"]))
    def one_starts(self, classic: bool, instance_id: str | None) -> None:
        self.start(classic, instance_id)

    def start(self, classic: bool, instance_id: str | None) -> None:
        """The previous process with the same instance id has stopped: this is its restart."""
        if instance_id is not None:
            self.consumers = [c for c in self.consumers if c.instance_id != instance_id]
        consumer = self.make(classic, instance_id)
        self.consumers.append(consumer)
        consumer.act()
        self.listen()

    @precondition(lambda self: self.consumers)
    @rule(pick=picks)
    def change_over(self, pick: int) -> None:
        """A rolling restart: the process leaves properly and starts with the other protocol."""
        old = self.consumers[pick % len(self.consumers)]
        self.consumers.remove(old)
        if old.instance_id is None or isinstance(old, ModernConsumer):
            self.leave(old)
        new = self.make(isinstance(old, ModernConsumer), old.instance_id)
        self.consumers.append(new)
        new.act()
        self.listen()

    @precondition(lambda self: self.consumers)
    @rule(pick=picks)
    def one_acts(self, pick: int) -> None:
        self.consumers[pick % len(self.consumers)].act()
        self.listen()

    @rule(rounds=st.integers(1, 10))
    def some_seconds_pass(self, rounds: int) -> None:
        self.all_act(rounds)

    def all_act(self, rounds: int) -> None:
        for _ in range(rounds):
            for consumer in self.consumers:
                consumer.act()
            self.groups.advance(1000)
            self.listen()

    @precondition(lambda self: self.consumers)
    @rule(pick=picks, properly=st.booleans())
    def stop(self, pick: int, properly: bool) -> None:
        consumer = self.consumers.pop(pick % len(self.consumers))
        if properly:
            self.leave(consumer)
        self.listen()

    def leave(self, consumer: AnyConsumer) -> None:
        try:
            if isinstance(consumer, ClassicConsumer):
                if consumer.member_id:
                    consumer.leave()
            else:
                consumer.leave(-1 if consumer.instance_id is None else -2)
        except KafkaError as rejection:
            if rejection.code not in FENCING:
                raise

    @rule(ms=st.sampled_from([1, 1000, 5000, 12_000]))
    def time_passes(self, ms: int) -> None:
        self.groups.advance(ms)
        self.listen()

    @rule()
    def the_topic_grows(self) -> None:
        topic = self.groups.topics.find("t")
        assert topic is not None
        if topic.num_partitions < 8:
            self.groups.topics.grow("t", topic.num_partitions + 1)
            self.groups.changed_topics()

    @rule()
    def reload(self) -> None:
        self.groups.restart()
        for consumer in self.consumers:
            if isinstance(consumer, ClassicConsumer) and consumer.waits_for is not None:
                consumer.waits_for = None
                consumer.joined, consumer.is_stable = None, False

    def listen(self) -> None:
        for consumer in self.consumers:
            if isinstance(consumer, ClassicConsumer):
                consumer.listen()

    # -- invariants

    def is_heard(self, consumer: AnyConsumer) -> bool:
        """Whether the coordinator would accept its requests now, for example a commit."""
        group: Any = self.groups.any_group
        if group is None or consumer.member_id not in group.members:
            return False
        if isinstance(consumer, ClassicConsumer):
            epoch = consumer.generation_id
        elif isinstance(group, ClassicGroup):
            return False
        else:
            epoch = consumer.epoch
        if isinstance(group, ClassicGroup):
            return epoch == group.generation_id
        return epoch == group.members[consumer.member_id].member_epoch

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        owners: dict[Partition, str] = {}
        for consumer in self.consumers:
            if self.is_heard(consumer):
                for partition in consumer.owned:
                    other = owners.setdefault(partition, consumer.member_id)
                    assert other == consumer.member_id, f"{other} and {consumer.member_id} own {partition}"

    @invariant()
    def no_partition_of_a_classic_member_is_assigned_to_another_one(self) -> None:
        """Also of a member of an earlier generation: it consumes until a response tells it to stop."""
        group: Any = self.groups.any_group
        if not isinstance(group, ConsumerGroup):
            return
        assigned = {
            (topic_id, index): member.member_id
            for member in group.members.values()
            for topic_id, of_topic in member.assigned.items()
            for index in of_topic
        }
        for consumer in self.consumers:
            if isinstance(consumer, ClassicConsumer) and consumer.member_id in group.members:
                for partition in consumer.owned:
                    other = assigned.get(partition, consumer.member_id)
                    assert other == consumer.member_id, (
                        f"{partition} of {consumer.member_id} is assigned to {other}"
                    )

    @invariant()
    def what_is_rebuilt_from_the_log_is_what_is_there(self) -> None:
        rebuilt = self.groups.rebuilt(self.groups.fresh())
        rebuilt.validate()
        assert rebuilt.durable_state() == self.groups.machine.durable_state()

    def let_returned_leaders_rejoin(self) -> None:
        """A static leader that returns does not assign (KIP-814), so it misses partitions that were added before.

        They have no owner until the next rebalance, as with Apache Kafka.
        """
        returned = [c for c in self.consumers if isinstance(c, ClassicConsumer) and c.has_skipped_assignment]
        for leader in returned:
            leader.join()
        if returned:
            self.all_act(80)

    def teardown(self) -> None:
        """Stopped members are removed by timeouts, and the others reach a state in which every partition has an
        owner.
        """
        self.all_act(80)
        self.let_returned_leaders_rejoin()
        group = self.groups.any_group
        if not self.consumers:
            assert group is None or group.is_empty
            return
        assert group is not None
        assert len(group.members) == len(self.consumers), (group.members, self.consumers)
        owned = [partition for consumer in self.consumers for partition in consumer.owned]
        classic_only = all(isinstance(consumer, ClassicConsumer) for consumer in self.consumers)
        assert isinstance(group, ClassicGroup if classic_only else ConsumerGroup)
        assert len(owned) == len(set(owned))
        assert set(owned) == all_partitions(self.groups, "t")


TestMigrationModel = MigrationModel.TestCase
TestMigrationModel.settings = examples(60, stateful_step_count=30)


def test_a_group_that_is_upgraded_again_before_a_classic_member_rejoins() -> None:
    """An example that the model once failed: m5 got partitions that m1 had not revoked."""
    model = MigrationModel()

    def check() -> None:
        model.no_partition_has_two_owners()
        model.no_partition_of_a_classic_member_is_assigned_to_another_one()
        model.what_is_rebuilt_from_the_log_is_what_is_there()

    model.begin(cooperative=True, classic=[True], rounds=1)
    model.one_starts(classic=True, instance_id=None)
    model.one_acts(0)
    model.the_topic_grows()
    for _ in range(3):
        model.change_over(1)
        check()
    model.one_acts(0)
    check()
    model.teardown()
