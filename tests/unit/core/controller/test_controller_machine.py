"""For any sequence of commands the controller's image equals the image replayed from its log, from the beginning or
from any snapshot, and is consistent."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.examples import examples
from tests.unit.core.controller.controller_cluster import Cluster

from ottla.core.controller.commands import (
    AllocateProducerIds,
    AlterConfigs,
    ConfigChange,
    ConfigOp,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    FenceBroker,
    IncrementalAlterConfigs,
    NewPartitions,
    NewTopic,
    TopicToDelete,
    UnregisterBroker,
)
from ottla.core.controller.delta import MetadataDelta
from ottla.core.controller.image import ConfigResource, MetadataImage, ResourceType
from ottla.core.controller.snapshot import image_records
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.metadata_records.codec import decode_record, encode_record

BROKERS = st.integers(1, 4)
NAMES = st.sampled_from(["a", "b", "c", "d.e", "d_e", "bad name"])
CONFIGS = st.tuples(
    st.sampled_from(["cleanup.policy", "retention.ms", "nope"]), st.sampled_from(["delete", "compact", "7"])
)
RESOURCES = st.one_of(
    NAMES.map(lambda name: ConfigResource(ResourceType.TOPIC, name)),
    st.sampled_from(["", "1", "3"]).map(lambda name: ConfigResource(ResourceType.BROKER, name)),
)


class ControllerRules(RuleBasedStateMachine):
    @initialize(brokers=st.integers(1, 3))
    def start(self, brokers: int) -> None:
        self.cluster = Cluster(brokers)
        self.snapshots: list[MetadataImage] = []
        self.producer_ids = 0

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

    @rule(broker_id=BROKERS)
    def restart_broker(self, broker_id: int) -> None:
        led = self._led_by(broker_id)
        self.cluster.start_broker(broker_id)
        after = self._led_by(broker_id)
        assert all(after[key] > epoch for key, epoch in led.items() if key in after)

    def _led_by(self, broker_id: int) -> dict[tuple[str, int], int]:
        return {
            (name, index): partition.leader_epoch
            for name, topic in self.cluster.image.topics.items()
            for index, partition in topic.partitions.items()
            if partition.leader == broker_id
        }

    @rule(broker_id=BROKERS)
    def register_broker_only(self, broker_id: int) -> None:
        self.cluster.register(broker_id)

    @rule(broker_id=BROKERS)
    def fence_broker(self, broker_id: int) -> None:
        if broker_id in self.cluster.image.brokers:
            was_fenced = self.cluster.image.brokers[broker_id].fenced
            self.attempt(FenceBroker(broker_id, self.cluster.image.brokers[broker_id].epoch))
            assert was_fenced or not self._led_by(broker_id)

    @rule(broker_id=BROKERS)
    def unregister_broker(self, broker_id: int) -> None:
        self.attempt(UnregisterBroker(broker_id))
        assert not self._led_by(broker_id)

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
    def the_log_makes_the_image_from_the_beginning_and_from_every_snapshot(self) -> None:
        assert self.cluster.replayed() == self.cluster.image
        for snapshot in self.snapshots:
            assert self.cluster.replayed(snapshot) == self.cluster.image


TestControllerRules = ControllerRules.TestCase
TestControllerRules.settings = examples(40, stateful_step_count=25)
