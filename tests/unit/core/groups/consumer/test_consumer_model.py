"""Random events in consumer groups: no partition ever has two owners from the members' point of view, and when
the group is quiet every partition has one. After every step a machine rebuilt from the log equals the live
one.
"""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.examples import examples
from tests.unit.core.groups.consumer.consumer_groups import Groups, Member, Partition, Topics

from ottla.model.errors import ErrorCode, KafkaError

NAMES = ("t1", "t2", "t3")
SUBSCRIPTIONS = (("t1",), ("t1", "t2"), ("t2", "t3"), NAMES, ())
REGEXES = ("t.*", "t[12]", "t3", "none")
REVOCATION_MS = 20_000

subscriptions = st.one_of(
    st.sampled_from(SUBSCRIPTIONS).map(lambda names: (names, None)),
    st.sampled_from(REGEXES).map(lambda regex: ((), regex)),
)
picks = st.integers(0, 1000)


class ConsumerGroupModel(RuleBasedStateMachine):
    """The members are the clients of `consumer_groups`; slow ones revoke in a separate step."""

    def __init__(self) -> None:
        super().__init__()
        self.groups = Groups(Topics(t1=3, t2=2))
        self.members: list[Member] = []
        self.away: list[Member] = []
        self.made = 0
        self.rebuilt = self.groups.fresh()
        self.replayed = 0

    @initialize(slow=st.booleans())
    def join_together(self, slow: bool) -> None:
        for is_slow in (slow, True):
            self.join((("t1", "t2"), None), is_slow, static=False, assignor=None)

    # -- events

    @precondition(lambda self: len(self.members) < 5)
    @rule(
        subscription=subscriptions,
        slow=st.booleans(),
        static=st.booleans(),
        assignor=st.sampled_from(("range", None)),
    )
    def join(
        self, subscription: tuple[tuple[str, ...], str | None], slow: bool, static: bool, assignor: str | None
    ) -> None:
        names, regex = subscription
        self.made += 1
        member = Member(
            self.groups,
            f"m{self.made}",
            *names,
            regex=regex,
            slow=slow,
            instance_id=f"i{self.made}" if static else None,
            rebalance_timeout_ms=REVOCATION_MS,
            server_assignor=assignor,
        )
        member.join()
        self.members.append(member)

    @precondition(lambda self: self.members)
    @rule(pick=picks, tells=st.booleans())
    def heartbeat(self, pick: int, tells: bool) -> None:
        member = self.picked(pick)
        with self.fencing(member):
            if tells:
                member.report()
            else:
                member.heartbeat()

    @precondition(lambda self: self.members)
    @rule(pick=picks)
    def full_heartbeat(self, pick: int) -> None:
        member = self.picked(pick)
        with self.fencing(member):
            member.full_heartbeat()

    @precondition(lambda self: self.members)
    @rule(pick=picks)
    def lose_the_answer(self, pick: int) -> None:
        """The member missed the response: it sends a full heartbeat again."""
        member = self.picked(pick)
        known = (member.epoch, set(member.assigned), set(member.owned), member.interval_ms)
        with self.fencing(member):
            member.report()
            member.epoch, member.assigned, member.owned, member.interval_ms = known
            member.full_heartbeat()

    @precondition(lambda self: self.members)
    @rule(pick=picks)
    def revoke(self, pick: int) -> None:
        member = self.picked(pick)
        member.revoke()
        with self.fencing(member):
            member.report()

    @precondition(lambda self: self.members)
    @rule(pick=picks, subscription=subscriptions)
    def subscribe(self, pick: int, subscription: tuple[tuple[str, ...], str | None]) -> None:
        names, regex = subscription
        member = self.picked(pick)
        with self.fencing(member):
            member.subscribe(*names, regex=regex or "")

    @precondition(lambda self: len(self.members) > 2)
    @rule(pick=picks)
    def leave(self, pick: int) -> None:
        member = self.picked(pick)
        self.members.remove(member)
        with self.fencing(member):
            member.leave()

    @precondition(lambda self: len(self.members) > 1)
    @rule(pick=picks)
    def crash(self, pick: int) -> None:
        """The member sends no more heartbeats, and consumes nothing."""
        self.members.remove(self.picked(pick))

    @precondition(lambda self: any(member.instance_id for member in self.members))
    @rule(pick=picks)
    def go_for_a_while(self, pick: int) -> None:
        static = [member for member in self.members if member.instance_id]
        member = static[pick % len(static)]
        self.members.remove(member)
        with self.fencing(member):
            member.leave(-2)
            self.away.append(member)

    @precondition(lambda self: self.away)
    @rule(pick=picks)
    def come_back(self, pick: int) -> None:
        gone = self.away.pop(pick % len(self.away))
        self.made += 1
        member = Member(
            self.groups,
            f"m{self.made}",
            *gone.names,
            regex=gone.regex,
            slow=gone.slow,
            instance_id=gone.instance_id,
            rebalance_timeout_ms=REVOCATION_MS,
        )
        member.join()
        self.members.append(member)

    @rule(name=st.sampled_from(NAMES), partitions=st.integers(1, 4), is_notified=st.booleans())
    def change_topic(self, name: str, partitions: int, is_notified: bool) -> None:
        topic = self.groups.topics.find(name)
        if topic is None:
            self.groups.topics.create(name, partitions)
        elif partitions > topic.num_partitions:
            self.groups.topics.grow(name, partitions)
        else:
            self.groups.topics.delete(name)
        if is_notified:
            self.groups.changed_topics()

    @rule(ms=st.sampled_from((1, 250, 1000)))
    def pass_time(self, ms: int) -> None:
        self.groups.advance(ms)
        self.forget_fenced()

    @rule(seconds=st.sampled_from((10, 25, 50)))
    def pass_much_time(self, seconds: int) -> None:
        """Active members send heartbeats, but slow ones do not revoke and may time out."""
        for _ in range(seconds // 5):
            self.groups.advance(5000)
            self.forget_fenced()
            for member in list(self.members):
                with self.fencing(member):
                    member.heartbeat()

    @rule()
    def restart(self) -> None:
        self.groups.restart()

    @precondition(lambda self: self.members)
    @rule()
    def settle(self) -> None:
        """After heartbeats of all members and some time, every partition has an owner and nothing moves."""
        for _ in range(25):
            for member in list(self.members):
                with self.fencing(member):
                    member.revoke()
                    member.report()
            self.groups.advance(5000)
            self.forget_fenced()
        self.away.clear()
        if not self.members:
            return
        group = self.groups.group()
        assert group.state == "Stable", self.groups.described()
        self.assert_all_owned()
        self.assert_nothing_moves()

    # -- invariants

    @invariant()
    def a_partition_has_at_most_one_owner(self) -> None:
        owners: dict[Partition, str] = {}
        for member in self.members:
            for partition in member.owned:
                other = owners.setdefault(partition, member.member_id)
                assert other == member.member_id, f"{partition} is owned by {other} and {member.member_id}"

    @invariant()
    def a_machine_rebuilt_from_the_log_equals_the_live_one(self) -> None:
        for key, value in self.groups.records[self.replayed :]:
            self.rebuilt.replay(key, value)
        self.replayed = len(self.groups.records)
        self.rebuilt.validate()
        assert self.rebuilt.durable_state() == self.groups.machine.durable_state()

    # -- helpers

    def picked(self, pick: int) -> Member:
        return self.members[pick % len(self.members)]

    @contextmanager
    def fencing(self, member: Member) -> Iterator[None]:
        """A fenced member gives up all its partitions."""
        try:
            yield
        except KafkaError as rejection:
            if rejection.code not in (ErrorCode.unknown_member_id, ErrorCode.fenced_member_epoch):
                raise
            member.owned.clear()
            if member in self.members:
                self.members.remove(member)

    def forget_fenced(self) -> None:
        """A client whose session has expired by its own clock stops consuming. Client and coordinator share a
        clock here.
        """
        known = self.groups.group().members
        self.members = [member for member in self.members if member.member_id in known]
        self.away = [member for member in self.away if member.member_id in known]

    def assert_all_owned(self) -> None:
        owned = {partition for member in self.members for partition in member.owned}
        expected: set[tuple[uuid.UUID, int]] = set()
        for name in self.groups.group().subscriptions.names():
            topic = self.groups.topics.find(name)
            if topic is not None:
                expected |= {(topic.topic_id, partition) for partition in range(topic.num_partitions)}
        assert owned == expected

    def assert_nothing_moves(self) -> None:
        """Without a change no partition moves, even if the leader of the shard changes."""
        owned = {member.member_id: set(member.owned) for member in self.members}
        epoch = self.groups.group().group_epoch
        self.groups.restart()
        for _ in range(3):
            for member in self.members:
                member.report()
            self.groups.advance(5000)
        assert {member.member_id: member.owned for member in self.members} == owned
        assert self.groups.group().group_epoch == epoch


ConsumerGroupModel.TestCase.settings = examples(60, stateful_step_count=40)
TestConsumerGroupModel = ConsumerGroupModel.TestCase
