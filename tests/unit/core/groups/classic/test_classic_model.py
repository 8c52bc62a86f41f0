"""A classic group whose members join, sync, stop, restart and leave in any order, with reloads in between.

Clients behave like real ones: they act on responses, and the leader assigns all partitions to the members. At all times
no partition has two owners in a generation, all partitions of a stable group have an owner, the group's invariants
hold, and a restart would read the machine's state from the log.
"""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.examples import examples
from tests.unit.core.groups.classic.classic_groups import GROUP, Shell, machine

from ottla.core.groups.commands import JoinGroupResponse, SyncGroupResponse
from ottla.core.groups.consumer_protocol import read_assignment, write_assignment
from ottla.core.groups.settings import GroupSettings
from ottla.model.errors import ErrorCode, KafkaError

TOPIC = "orders"
PARTITIONS = range(5)
SETTINGS = GroupSettings(initial_rebalance_delay_ms=1000, max_size=5)
RESET = {ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id, ErrorCode.group_max_size_reached}


class Consumer:
    """What one process knows. `waits_for` is a waiter of a JoinGroup or SyncGroup."""

    def __init__(self, instance_id: str | None, protocols: tuple[tuple[str, bytes], ...]) -> None:
        self.instance_id = instance_id
        self.protocols = protocols
        self.skips = instance_id == "one"
        self.reset()

    def reset(self) -> None:
        self.member_id = ""
        self.generation_id = -1
        self.joined: JoinGroupResponse | None = None
        self.owned: set[int] | None = None
        self.waits_for: int | None = None

    def must_rejoin(self) -> None:
        self.joined = None
        self.owned = None


def partitions(assignment: bytes) -> set[int]:
    read = read_assignment(assignment)
    return set() if read is None else {index for _, indexes in read.partitions for index in indexes}


protocol_choices = st.sampled_from(
    [
        (("range", b"a"),),
        (("range", b"b"),),
        (("range", b"a"), ("sticky", b"a")),
        (("sticky", b"a"), ("range", b"a")),
    ]
)


class ClassicGroupModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.shell = Shell(SETTINGS)
        self.consumers: list[Consumer] = []

    def pick(self, data: st.DataObject, waiting: bool = False) -> Consumer | None:
        candidates = [c for c in self.consumers if (c.waits_for is not None) == waiting]
        return data.draw(st.sampled_from(candidates)) if candidates else None

    @initialize(
        starting=st.lists(st.sampled_from([None, "one", "two"]), min_size=1, max_size=3),
        rounds=st.integers(0, 8),
    )
    def begin(self, starting: list[str | None], rounds: int) -> None:
        for instance_id in starting:
            self.start(instance_id, (("range", b"a"),))
        self.all_act(rounds)

    # -- actions of clients

    @precondition(lambda self: len(self.consumers) < 7)
    @rule(instance_id=st.sampled_from([None, None, "one", "two"]), protocols=protocol_choices)
    def one_starts(self, instance_id: str | None, protocols: tuple[tuple[str, bytes], ...]) -> None:
        self.start(instance_id, protocols)

    def start(self, instance_id: str | None, protocols: tuple[tuple[str, bytes], ...]) -> None:
        """The previous process with the same instance id has stopped: this is its restart."""
        if instance_id is not None:
            self.consumers = [c for c in self.consumers if c.instance_id != instance_id]
        consumer = Consumer(instance_id, protocols)
        self.consumers.append(consumer)
        self.send_join(consumer)

    @rule(data=st.data())
    def one_acts(self, data: st.DataObject) -> None:
        consumer = self.pick(data)
        if consumer is not None:
            self.act(consumer)

    @rule(rounds=st.integers(1, 10))
    def some_seconds_pass(self, rounds: int) -> None:
        self.all_act(rounds)

    def all_act(self, rounds: int) -> None:
        """For some seconds all clients behave like real ones."""
        for _ in range(rounds):
            for consumer in list(self.consumers):
                if consumer.waits_for is None:
                    self.act(consumer)
            self.shell.advance(500)
            self.listen()

    def act(self, consumer: Consumer) -> None:
        """The next step of a client's own: to join, to sync, or to send a heartbeat."""
        if consumer.joined is None and consumer.owned is None:
            self.send_join(consumer)
        elif consumer.owned is None:
            self.send_sync(consumer)
        else:
            self.send_heartbeat(consumer)

    @rule(data=st.data(), protocols=protocol_choices)
    def subscribe(self, data: st.DataObject, protocols: tuple[tuple[str, bytes], ...]) -> None:
        consumer = self.pick(data)
        if consumer is not None:
            consumer.protocols = protocols
            consumer.must_rejoin()
            self.send_join(consumer)

    @rule(data=st.data())
    def lose_the_answer(self, data: st.DataObject) -> None:
        """A client that waits for too long gives up its request and sends it again."""
        consumer = self.pick(data, waiting=True)
        if consumer is not None:
            consumer.waits_for = None
            consumer.must_rejoin()
            self.send_join(consumer)

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        consumer = self.pick(data)
        if consumer is not None:
            self.consumers.remove(consumer)
            if consumer.member_id and consumer.instance_id is None:
                self.shell.leave(consumer.member_id)
            self.listen()

    @rule(data=st.data(), waiting=st.booleans())
    def crash(self, data: st.DataObject, waiting: bool) -> None:
        consumer = self.pick(data, waiting)
        if consumer is not None:
            self.consumers.remove(consumer)

    @rule(ms=st.sampled_from([1, 500, 1000, 3000, 6000]))
    def time_passes(self, ms: int) -> None:
        self.shell.advance(ms)
        self.listen()

    @rule()
    def reload(self) -> None:
        self.shell.restart()
        for consumer in self.consumers:
            if consumer.waits_for is not None:
                consumer.waits_for = None
                consumer.must_rejoin()

    # -- requests and responses

    def send_join(self, consumer: Consumer) -> None:
        consumer.waits_for = self.shell.join(
            consumer.member_id,
            protocols=consumer.protocols,
            group_instance_id=consumer.instance_id,
            require_known_member_id=True,
            can_skip_assignment=consumer.skips,
            session_timeout_ms=6000,
            rebalance_timeout_ms=10_000,
        )
        self.listen()

    def send_sync(self, consumer: Consumer) -> None:
        joined = consumer.joined
        assert joined is not None
        assigned: dict[str, list[int]] = {member.member_id: [] for member in joined.members}
        if joined.leader == consumer.member_id and not joined.skip_assignment:
            ids = list(assigned)
            for index in PARTITIONS:
                assigned[ids[index % len(ids)]].append(index)
        assignments = tuple(
            (member_id, write_assignment(3, {TOPIC: tuple(indexes)}))
            for member_id, indexes in assigned.items()
        )
        consumer.waits_for = self.shell.sync(
            consumer.member_id,
            consumer.generation_id,
            group_instance_id=consumer.instance_id,
            protocol_type="consumer",
            protocol_name=joined.protocol_name,
            assignments=() if joined.skip_assignment else assignments,
        )
        self.listen()

    def send_heartbeat(self, consumer: Consumer) -> None:
        error = self.shell.heartbeat(
            consumer.member_id, consumer.generation_id, group_instance_id=consumer.instance_id
        )
        self.heed(consumer, error)

    def listen(self) -> None:
        for consumer in self.consumers:
            if consumer.waits_for in self.shell.replies:
                response = self.shell.replies[consumer.waits_for]
                consumer.waits_for = None
                self.hear(consumer, response)

    def hear(self, consumer: Consumer, response: Any) -> None:
        if isinstance(response, KafkaError):
            self.heed(consumer, response.code)
        elif isinstance(response, SyncGroupResponse):
            consumer.joined = None
            consumer.owned = partitions(response.assignment)
        elif response.error_code is ErrorCode.member_id_required:
            consumer.member_id = response.member_id
        elif response.error_code is not ErrorCode.none:
            self.heed(consumer, response.error_code)
        else:
            consumer.member_id, consumer.generation_id = response.member_id, response.generation_id
            consumer.joined = response

    def heed(self, consumer: Consumer, error: ErrorCode) -> None:
        if error in RESET:
            consumer.reset()
        elif error in (
            ErrorCode.rebalance_in_progress,
            ErrorCode.illegal_generation,
            ErrorCode.inconsistent_group_protocol,
        ):
            consumer.must_rejoin()
        else:
            assert error is ErrorCode.none, error

    # -- invariants

    @invariant()
    def no_partition_has_two_owners_in_a_generation(self) -> None:
        owners: dict[tuple[int, int], str] = {}
        for consumer in self.consumers:
            for index in consumer.owned or ():
                other = owners.setdefault((consumer.generation_id, index), consumer.member_id)
                assert other == consumer.member_id, f"{other} and {consumer.member_id} own {index}"

    @invariant()
    def every_partition_is_owned_when_the_group_is_stable(self) -> None:
        group = self.shell.machine._state.groups.get(GROUP)
        if group is not None and group.state.value == "Stable":
            owned = [index for m in group.members.values() for index in partitions(m.assignment)]
            assert sorted(owned) == list(PARTITIONS)

    @invariant()
    def what_is_rebuilt_from_the_log_is_what_is_there(self) -> None:
        rebuilt = self.shell.rebuilt(machine(SETTINGS))
        rebuilt.validate()
        assert rebuilt.durable_state() == self.shell.machine.durable_state()

    def teardown(self) -> None:
        """If all clients stop, every waiting request gets a response and the group becomes empty."""
        waiting = [c.waits_for for c in self.consumers if c.waits_for is not None]
        self.shell.advance(1_000_000)
        assert all(waiter in self.shell.replies for waiter in waiting)
        assert self.shell.timers == {}
        group = self.shell.machine._state.groups.get(GROUP)
        assert group is None or group.is_empty


TestClassicGroupModel = ClassicGroupModel.TestCase
TestClassicGroupModel.settings = examples(60, stateful_step_count=50)
