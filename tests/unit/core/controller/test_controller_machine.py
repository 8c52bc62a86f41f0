"""For any sequence of commands the controller's image equals the image replayed from its log, from the beginning or
from any snapshot, and is consistent. Brokers come, go, are fenced, shut down, lose disks and change their ISRs, with
right and wrong epochs; leaders are always available, and each change of a leader has a new epoch."""

import uuid
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.examples import examples, scaled
from tests.unit.core.controller.controller_cluster import Cluster

from ottla.core.controller.commands import (
    AllocateProducerIds,
    AlterConfigs,
    AlteredPartition,
    AlterPartition,
    AlterPartitionTopic,
    AlterReassignments,
    AssignReplicasToDirs,
    BrokerDisconnected,
    BrokerHeartbeat,
    ConfigChange,
    ConfigOp,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ElectLeaders,
    FeatureUpdate,
    FenceStaleBrokers,
    IncrementalAlterConfigs,
    NewPartitions,
    NewTopic,
    TopicToDelete,
    UnregisterBroker,
    UpdateFeatures,
)
from ottla.core.controller.delta import MetadataDelta
from ottla.core.controller.image import (
    ELR_VERSION,
    ConfigResource,
    MetadataImage,
    PartitionImage,
    ResourceType,
)
from ottla.core.controller.machine import ControllerMachine
from ottla.core.controller.partition_commands import Reassignment
from ottla.core.controller.snapshot import image_records
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.metadata_records.codec import decode_record, encode_record

BROKERS = st.integers(1, 4)
REPLICATED = {"one": 1, "two": 2, "three": 3}  # topics that exist from the beginning
NAMES = st.sampled_from(["a", "b", "c", "d.e", "d_e", "bad name"])
CONFIGS = st.sampled_from(
    [
        ("cleanup.policy", "delete"),
        ("cleanup.policy", "compact"),
        ("retention.ms", "7"),
        ("min.insync.replicas", "2"),
        ("unclean.leader.election.enable", "true"),
        ("nope", "7"),
    ]
)
EPOCH_OFFSETS = st.sampled_from([0, 0, 0, -1, 1])
RESOURCES = st.one_of(
    st.sampled_from(["a", "b", "nope", *REPLICATED]).map(
        lambda name: ConfigResource(ResourceType.TOPIC, name)
    ),
    st.sampled_from(["", "1", "3"]).map(lambda name: ConfigResource(ResourceType.BROKER, name)),
)


class ControllerRules(RuleBasedStateMachine):
    @initialize(brokers=st.integers(2, 4), has_elr=st.booleans())
    def start(self, brokers: int, has_elr: bool) -> None:
        self.cluster = Cluster(brokers=0, features={ELR_VERSION: 1} if has_elr else {})
        for broker_id in range(1, brokers + 1):
            self.cluster.start_broker(broker_id, directories=2)
        for name, replication_factor in REPLICATED.items():
            self.cluster.create(name, 2, min(brokers, replication_factor))
            self.assign_replicas(1, 0)
        self.snapshots: list[MetadataImage] = []
        self.producer_ids = 0
        self.partitions: dict[tuple[uuid.UUID, int], PartitionImage] = {}

    def attempt(self, command: Any) -> Any:
        """Commands may be rejected; a rejected command writes no record."""
        before = len(self.cluster.log)
        try:
            return self.cluster.submit(command)
        except KafkaError:
            assert len(self.cluster.log) == before
            return None

    @rule(
        name=NAMES,
        partitions=st.integers(-1, 5),
        factor=st.integers(-1, 3),
        start=st.integers(0, 50),
        configs=st.lists(CONFIGS, max_size=2, unique_by=lambda config: config[0]),
    )
    def create_topic(
        self, name: str, partitions: int, factor: int, start: int, configs: list[tuple[str, str]]
    ) -> None:
        existed = name in self.cluster.image.topics
        topic = NewTopic(name, self.cluster.new_id(), partitions, factor, configs=tuple(configs))
        (result,) = self.attempt(CreateTopics((topic,), start))
        created = result.error.code is ErrorCode.none
        assert not (created and existed)
        if created:
            assert self.cluster.image.topics[name].topic_id == topic.topic_id
            assert self.cluster.image.config(ResourceType.TOPIC, name) == dict(configs)

    @rule(name=NAMES)
    def delete_topic(self, name: str) -> None:
        self.attempt(DeleteTopics((TopicToDelete(name=name),)))
        assert name not in self.cluster.image.topics

    @rule(name=NAMES, total=st.integers(0, 8))
    def create_partitions(self, name: str, total: int) -> None:
        ((_, error),) = self.attempt(CreatePartitions((NewPartitions(name, total),)))
        if error.code is ErrorCode.none:
            assert len(self.cluster.image.topics[name].partitions) == total

    @rule(resource=RESOURCES, config=CONFIGS, op=st.sampled_from(ConfigOp))
    def alter_incrementally(self, resource: ConfigResource, config: tuple[str, str], op: ConfigOp) -> None:
        self.attempt(IncrementalAlterConfigs(((resource, (ConfigChange(config[0], op, config[1]),)),)))

    @rule(resource=RESOURCES, configs=st.lists(CONFIGS, max_size=2))
    def alter_wholly(self, resource: ConfigResource, configs: list[tuple[str, str]]) -> None:
        ((_, error),) = self.attempt(AlterConfigs(((resource, tuple(configs)),)))
        if error.code is ErrorCode.none:
            assert self.cluster.image.configs.get(resource, {}) == dict(configs)

    # Brokers

    def _led_by(self, broker_id: int) -> dict[tuple[str, int], int]:
        return {
            (name, index): partition.leader_epoch
            for name, topic in self.cluster.image.topics.items()
            for index, partition in topic.partitions.items()
            if partition.leader == broker_id
        }

    def _epoch(self, broker_id: int) -> int:
        broker = self.cluster.image.brokers.get(broker_id)
        return 0 if broker is None else broker.epoch

    @rule(broker_id=BROKERS, directories=st.integers(1, 2), is_clean=st.booleans())
    def restart_broker(self, broker_id: int, directories: int, is_clean: bool) -> None:
        led = self._led_by(broker_id)
        previous = self._epoch(broker_id) if is_clean else -1
        self.cluster.register(broker_id, directories=directories, previous_broker_epoch=previous)
        assert not self._led_by(broker_id)
        self.cluster.heartbeat(broker_id)
        after = self._led_by(broker_id)
        assert all(after[key] > epoch for key, epoch in led.items() if key in after)

    @rule(broker_id=BROKERS)
    def register_from_another_host(self, broker_id: int) -> None:
        before = self.cluster.image.brokers.get(broker_id)
        epoch = self.attempt(self.cluster.registration(broker_id))
        if epoch is not None:
            assert before is None or epoch > before.epoch
            assert self.cluster.image.brokers[broker_id].fenced

    @rule(broker_id=BROKERS, lag=st.integers(0, 40), wants=st.tuples(st.booleans(), st.booleans()))
    def send_heartbeat(self, broker_id: int, lag: int, wants: tuple[bool, bool]) -> None:
        offset = self.cluster.image.offset - lag
        command = BrokerHeartbeat(broker_id, self._epoch(broker_id), offset, *wants)
        reply = self.attempt(command)
        if reply is not None:
            assert reply.is_fenced == self.cluster.image.brokers[broker_id].fenced
            assert not reply.should_shut_down or not self._led_by(broker_id)

    @rule(broker_id=BROKERS)
    def shut_down_broker(self, broker_id: int) -> None:
        """The second heartbeat begins the shutdown if the first did not: all other brokers have shown that they are
        alive. They apply all metadata, so the third one ends it.
        """
        if broker_id in self.cluster.image.brokers:
            for _ in range(2):
                self.cluster.heartbeat(broker_id, want_shut_down=True)
                for other, broker in list(self.cluster.image.brokers.items()):
                    if other != broker_id and not broker.fenced:
                        self.cluster.heartbeat(other)
            assert self.cluster.heartbeat(broker_id, want_shut_down=True).should_shut_down

    @rule(broker_id=BROKERS, number=st.integers(0, 1))
    def lose_directory(self, broker_id: int, number: int) -> None:
        broker = self.cluster.image.brokers.get(broker_id)
        if broker is not None and number < len(broker.log_dirs):
            self.cluster.heartbeat(broker_id, offline_log_dirs=(broker.log_dirs[number],))

    @rule(broker_id=BROKERS, number=st.integers(0, 2))
    def assign_replicas(self, broker_id: int, number: int) -> None:
        broker = self.cluster.image.brokers.get(broker_id)
        if broker is None:
            return
        known = [each for each in broker.log_dirs if each is not None]
        directory = known[number] if number < len(known) else uuid.UUID(int=2)
        topics = tuple(
            (topic.topic_id, tuple(topic.partitions)) for topic in self.cluster.image.topics.values()
        )
        self.attempt(AssignReplicasToDirs(broker_id, broker.epoch, ((directory, topics),)))

    @rule(broker_id=BROKERS)
    def disconnect_broker(self, broker_id: int) -> None:
        self.attempt(BrokerDisconnected(broker_id, self._epoch(broker_id)))

    @rule(waited_ms=st.sampled_from([10, 1500, 5000, 9000]))
    def time_passes(self, waited_ms: int) -> None:
        self.cluster.now_ms += waited_ms
        self.attempt(FenceStaleBrokers())
        timeout_ms = self.cluster.machine.next_timeout_ms()
        assert timeout_ms is None or timeout_ms > self.cluster.now_ms
        active = [broker for broker in self.cluster.image.brokers.values() if not broker.fenced]
        assert timeout_ms is not None or not active

    @rule()
    def another_controller_becomes_active(self) -> None:
        self.cluster.machine = ControllerMachine(self.cluster.settings, self.cluster.replayed())
        self.cluster.machine.on_activated(self.cluster.now_ms)

    @rule(broker_id=BROKERS)
    def unregister_broker(self, broker_id: int) -> None:
        before = self.cluster.image
        broker = before.brokers.get(broker_id)
        self.attempt(UnregisterBroker(broker_id))
        if broker is not None and not broker.fenced:
            assert self.cluster.image is before
        else:
            assert broker_id not in self.cluster.image.brokers
            assert not self._led_by(broker_id)

    @rule(broker_id=BROKERS, wants=st.tuples(st.booleans(), st.booleans()))
    def use_a_stale_broker_epoch(self, broker_id: int, wants: tuple[bool, bool]) -> None:
        before, epoch = self.cluster.image, self._epoch(broker_id) - 1
        commands: list[Any] = [
            BrokerHeartbeat(broker_id, epoch, before.offset, *wants),
            AlterPartition(broker_id, epoch, ()),
            AssignReplicasToDirs(broker_id, epoch, ()),
            AllocateProducerIds(broker_id, epoch),
            BrokerDisconnected(broker_id, epoch),
        ]
        for command in commands:
            self.attempt(command)
        assert self.cluster.image is before

    # Partitions

    @rule(
        name=st.sampled_from([*REPLICATED]),
        others=st.lists(BROKERS, max_size=3, unique=True),
        offsets=st.tuples(*[EPOCH_OFFSETS] * 3),
    )
    def alter_isr(self, name: str, others: list[int], offsets: tuple[int, int, int]) -> None:
        topic = self.cluster.image.topics.get(name)
        if topic is None or not topic.partitions[0].has_leader:
            return
        partition, before = topic.partitions[0], self.cluster.image
        isr = [partition.leader, *(other for other in others if other in partition.replicas)]
        members = tuple((member, self._epoch(member) + offsets[2]) for member in isr)
        wanted = AlteredPartition(
            0, partition.leader_epoch + offsets[0], members, 0, partition.partition_epoch + offsets[1]
        )
        alter = AlterPartitionTopic(topic.topic_id, (wanted,))
        epoch = self._epoch(partition.leader)
        (result,) = self.attempt(AlterPartition(partition.leader, epoch, (alter,)))
        changed = self.cluster.image.topics[name].partitions[0]
        if partition.is_being_reassigned and not changed.is_being_reassigned:
            assert result.error in (ErrorCode.none, ErrorCode.new_leader_elected)
            kept = set(partition.replicas) - set(partition.removing_replicas)
            assert kept == set(changed.replicas) == set(changed.isr) <= set(isr)
        elif result.error is ErrorCode.none:
            assert offsets[:2] == (0, 0)
            assert changed.isr == tuple(isr) == result.isr
            assert (changed.leader, changed.leader_epoch) == (partition.leader, partition.leader_epoch)
            assert result.partition_epoch == changed.partition_epoch
            assert offsets[2] == 0
            assert all(before.is_active(member) for member in isr)
        else:
            assert self.cluster.image is before

    @rule(
        name=st.sampled_from([*REPLICATED]),
        replicas=st.none() | st.lists(BROKERS, min_size=1, max_size=4),
        allows_change=st.booleans(),
    )
    def reassign(self, name: str, replicas: list[int] | None, allows_change: bool) -> None:
        wanted = Reassignment(name, 0, None if replicas is None else tuple(replicas))
        before = self.cluster.image.partition(name, 0)
        (result,) = self.attempt(AlterReassignments((wanted,), allows_change))
        after = self.cluster.image.partition(name, 0)
        if before is None or after is None or result.error.code is not ErrorCode.none:
            assert before is after
        elif replicas is None:
            assert set(after.replicas) == set(before.replicas) - set(before.adding_replicas)
            assert not after.is_being_reassigned
        else:
            assert after.replicas[: len(replicas)] == tuple(replicas)
            assert after.is_being_reassigned or set(replicas) == set(after.replicas)
            assert set(after.replicas) >= set(before.replicas) or set(replicas) == set(after.isr)

    @rule(election_type=st.sampled_from([0, 1]))
    def elect_leaders(self, election_type: int) -> None:
        for result in self.attempt(ElectLeaders(election_type, None)):
            partition = self.cluster.partition(result.topic, result.partition)
            if result.error.code is ErrorCode.none:
                assert partition.has_leader

    @rule(level=st.sampled_from([0, 1]))
    def update_feature(self, level: int) -> None:
        upgrade_type = 1 if level > self.cluster.image.features.get(ELR_VERSION, 0) else 2
        self.attempt(UpdateFeatures((FeatureUpdate(ELR_VERSION, level, upgrade_type),)))

    # The rest

    @rule(broker_id=BROKERS)
    def allocate_producer_ids(self, broker_id: int) -> None:
        epoch = self.cluster.image.brokers[broker_id].epoch if broker_id in self.cluster.image.brokers else 0
        block = self.attempt(AllocateProducerIds(broker_id, epoch))
        if block is not None:
            assert block.first == self.producer_ids
            self.producer_ids += block.size

    @rule()
    def take_snapshot(self) -> None:
        image = self.cluster.image
        delta = MetadataDelta(MetadataImage())
        for record in image_records(image):
            delta.replay(decode_record(encode_record(record)))
        loaded = delta.image(image.offset, image.epoch)
        assert loaded == image
        self.snapshots = [*self.snapshots[-2:], loaded]

    @invariant()
    def each_change_of_a_leader_has_a_new_epoch(self) -> None:
        for topic_id, topic in self.cluster.image.topics_by_id.items():
            for index, new in topic.partitions.items():
                old = self.partitions.get((topic_id, index), new)
                assert new.leader_epoch >= old.leader_epoch
                assert new.partition_epoch >= old.partition_epoch
                assert new.leader == old.leader or new.leader_epoch > old.leader_epoch
                assert new.isr == old.isr or new.partition_epoch > old.partition_epoch
                self.partitions[topic_id, index] = new

    @invariant()
    def the_log_makes_the_image_from_the_beginning_and_from_every_snapshot(self) -> None:
        assert self.cluster.replayed() == self.cluster.image
        for snapshot in self.snapshots:
            assert self.cluster.replayed(snapshot) == self.cluster.image


TestControllerRules = ControllerRules.TestCase
TestControllerRules.settings = examples(60, stateful_step_count=40)


@pytest.mark.parametrize("seed", range(scaled(20)))
def test_the_same_holds_for_long_walks(seed: int) -> None:
    """Hypothesis finds short counterexamples, but rarely takes more than some ten steps."""
    random = Random(seed)
    rules = ControllerRules()
    rules.start(random.randint(2, 4), random.random() < 0.5)

    def broker() -> int:
        return random.randint(1, 4)

    def wants() -> tuple[bool, bool]:
        return random.random() < 0.1, random.random() < 0.1

    def epoch_offset() -> int:
        return random.choice([0, 0, 0, 0, 0, -1, 1])

    steps: list[tuple[int, Callable[[], None]]] = [
        (3, lambda: rules.restart_broker(broker(), random.randint(1, 2), random.random() < 0.5)),
        (2, lambda: rules.register_from_another_host(broker())),
        (20, lambda: rules.send_heartbeat(broker(), random.randint(0, 3), wants())),
        (2, lambda: rules.shut_down_broker(broker())),
        (2, lambda: rules.lose_directory(broker(), random.randint(0, 1))),
        (4, lambda: rules.assign_replicas(broker(), random.randint(0, 2))),
        (2, lambda: rules.disconnect_broker(broker())),
        (5, lambda: rules.time_passes(random.choice([10, 1500, 5000]))),
        (1, lambda: rules.another_controller_becomes_active()),
        (1, lambda: rules.unregister_broker(broker())),
        (2, lambda: rules.use_a_stale_broker_epoch(broker(), wants())),
        (
            20,
            lambda: rules.alter_isr(
                random.choice([*REPLICATED]),
                random.sample(range(1, 5), random.randint(0, 3)),
                (epoch_offset(), epoch_offset(), epoch_offset()),
            ),
        ),
        (4, lambda: rules.reassign(*_random_reassignment(random))),
        (2, lambda: rules.elect_leaders(random.randint(0, 1))),
        (1, lambda: rules.update_feature(random.randint(0, 1))),
        (1, lambda: rules.alter_incrementally(*_random_config(random))),
    ]
    weights = [weight for weight, _ in steps]
    for _ in range(300):
        ((_, step),) = random.choices(steps, weights)
        step()
        rules.each_change_of_a_leader_has_a_new_epoch()
    rules.take_snapshot()
    rules.the_log_makes_the_image_from_the_beginning_and_from_every_snapshot()


def _random_config(random: Random) -> tuple[ConfigResource, tuple[str, str], ConfigOp]:
    name = random.choice([*REPLICATED])
    config = random.choice([("min.insync.replicas", "2"), ("unclean.leader.election.enable", "true")])
    op = random.choice([ConfigOp.SET, ConfigOp.DELETE])
    return ConfigResource(ResourceType.TOPIC, name), config, op


def _random_reassignment(random: Random) -> tuple[str, list[int] | None, bool]:
    cancels, allows_change = random.random() < 0.3, random.random() < 0.8
    replicas = None if cancels else random.sample(range(1, 5), random.randint(1, 3))
    return random.choice([*REPLICATED]), replicas, allows_change
