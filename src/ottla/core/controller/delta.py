"""Replays records on top of an image. Copies only what the records change, so that the cost of changing one topic does
not depend on the size of the cluster.
"""

import uuid
from collections.abc import Callable, Hashable
from typing import Any, Protocol

from ottla.core.controller.image import (
    BrokerImage,
    ConfigResource,
    ControllerImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from ottla.model.config.definition import ResourceType
from ottla.protocol.metadata_records.opaque_keys import UnknownKey, opaque_change
from ottla.protocol.metadata_records.records import (
    FENCE,
    NO_LEADER_CHANGE,
    UNFENCE,
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    MetadataRecord,
    NoOpRecord,
    OpaqueRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)


class ReplayError(Exception):
    """A record contradicts the records before it in the metadata log."""


# Records of types that a later release has added, and whose key is therefore unknown.
UNKNOWN_RECORDS_MAX = 10_000


class PartitionObserver(Protocol):
    """Is told of each change of a partition while records are replayed."""

    def partition_changed(
        self, topic_id: uuid.UUID, index: int, old: PartitionImage | None, new: PartitionImage | None
    ) -> None: ...

    def partitions_reset(self, image: MetadataImage) -> None:
        """An aborted metadata transaction has been undone."""


class MetadataDelta:
    """Changes since `base`. `image()` makes them the new base."""

    def __init__(self, base: MetadataImage, observer: PartitionObserver | None = None) -> None:
        self._before_transaction: MetadataImage | None = None
        self._observer = observer
        self._reset(base)

    def _reset(self, base: MetadataImage) -> None:
        self._base = base
        self._features = dict(base.features)
        self._brokers = dict(base.brokers)
        self._controllers = dict(base.controllers)
        self._next_producer_id = base.next_producer_id
        # Large in a large cluster, so copied only when a record changes them.
        self._opaque: dict[Hashable, OpaqueRecord] | None = None
        self._unknown_records = 0
        self._topics: dict[str, TopicImage] | None = None
        self._topics_by_id: dict[uuid.UUID, TopicImage] | None = None
        self._partitions: dict[uuid.UUID, dict[int, PartitionImage]] = {}
        self._configs: dict[ConfigResource, dict[str, str]] | None = None
        self._own_configs: set[ConfigResource] = set()

    @property
    def in_transaction(self) -> bool:
        return self._before_transaction is not None

    def replay(self, record: MetadataRecord) -> None:
        """Raises ReplayError. The delta must not be used after that."""
        _REPLAY[type(record)](self, record)

    def image(self, offset: int, epoch: int) -> MetadataImage:
        """The image at `offset`. Inside a transaction it includes the transaction's records so far."""
        base = self._base
        topics, topics_by_id = self._frozen_topics()
        configs = base.configs if self._configs is None else self._configs
        self._reset(
            MetadataImage(
                offset=offset,
                epoch=epoch,
                features=base.features if self._features == base.features else self._features,
                brokers=base.brokers if self._brokers == base.brokers else self._brokers,
                controllers=base.controllers if self._controllers == base.controllers else self._controllers,
                topics=topics,
                topics_by_id=topics_by_id,
                configs=configs,
                next_producer_id=self._next_producer_id,
                opaque=base.opaque if self._opaque is None else self._opaque,
            )
        )
        return self._base

    def _frozen_topics(self) -> tuple[Any, Any]:
        if self._topics is None or self._topics_by_id is None:
            return self._base.topics, self._base.topics_by_id
        for topic_id, partitions in self._partitions.items():
            topic = self._topics_by_id[topic_id]
            changed = topic._replace(partitions=dict(sorted(partitions.items())))
            self._topics_by_id[topic_id] = changed
            self._topics[topic.name] = changed
        return self._topics, self._topics_by_id

    # Topics

    def _own_topics(self) -> tuple[dict[str, TopicImage], dict[uuid.UUID, TopicImage]]:
        if self._topics is None or self._topics_by_id is None:
            self._topics = dict(self._base.topics)
            self._topics_by_id = dict(self._base.topics_by_id)
        return self._topics, self._topics_by_id

    def _partitions_of(self, topic_id: uuid.UUID, record: MetadataRecord) -> dict[int, PartitionImage]:
        partitions = self._partitions.get(topic_id)
        if partitions is None:
            _, topics_by_id = self._own_topics()
            topic = topics_by_id.get(topic_id)
            if topic is None:
                raise ReplayError(f"{record} names a topic id that does not exist")
            partitions = self._partitions[topic_id] = dict(topic.partitions)
        return partitions

    def _replay_topic(self, record: TopicRecord) -> None:
        topics, topics_by_id = self._own_topics()
        if record.name in topics or record.topic_id in topics_by_id:
            raise ReplayError(f"{record} creates a topic that exists already")
        topic = TopicImage(record.name, record.topic_id, {})
        topics[record.name] = topics_by_id[record.topic_id] = topic

    def _replay_partition(self, record: PartitionRecord) -> None:
        new = PartitionImage(
            replicas=record.replicas,
            isr=record.isr,
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            # Before KIP-858 records had no directories; each broker reports its own when it hosts the replica.
            directories=record.directories or (None,) * len(record.replicas),
            adding_replicas=record.adding_replicas,
            removing_replicas=record.removing_replicas,
            leader_recovery_state=record.leader_recovery_state,
            eligible_leader_replicas=record.eligible_leader_replicas or (),
            last_known_elr=record.last_known_elr or (),
        )
        self._put(self._partitions_of(record.topic_id, record), record.topic_id, record.partition_id, new)

    def _put(
        self,
        partitions: dict[int, PartitionImage],
        topic_id: uuid.UUID,
        index: int,
        partition: PartitionImage,
    ) -> None:
        if self._observer is not None:
            self._observer.partition_changed(topic_id, index, partitions.get(index), partition)
        partitions[index] = partition

    def _replay_partition_change(self, record: PartitionChangeRecord) -> None:
        partitions = self._partitions_of(record.topic_id, record)
        old = partitions.get(record.partition_id)
        if old is None:
            raise ReplayError(f"{record} changes a partition that does not exist")
        self._put(partitions, record.topic_id, record.partition_id, changed_partition(old, record))

    def _replay_remove_topic(self, record: RemoveTopicRecord) -> None:
        topics, topics_by_id = self._own_topics()
        topic = topics_by_id.pop(record.topic_id, None)
        if topic is None:
            raise ReplayError(f"{record} removes a topic that does not exist")
        del topics[topic.name]
        partitions = self._partitions.pop(record.topic_id, topic.partitions)
        if self._observer is not None:
            for index, partition in partitions.items():
                self._observer.partition_changed(record.topic_id, index, partition, None)
        resource = ConfigResource(ResourceType.TOPIC, topic.name)
        configs = self._base.configs if self._configs is None else self._configs
        if resource in configs:
            del self._all_configs()[resource]
            self._own_configs.discard(resource)

    def _replay_clear_elr(self, record: ClearElrRecord) -> None:
        topics = self._base.topics if self._topics is None else self._topics
        if record.topic_name and record.topic_name not in topics:
            raise ReplayError(f"{record} names a topic that does not exist")
        for topic in [topics[record.topic_name]] if record.topic_name else list(topics.values()):
            partitions = self._partitions.get(topic.topic_id, topic.partitions)
            for index, partition in list(partitions.items()):
                if partition.eligible_leader_replicas or partition.last_known_elr:
                    cleared = partition._replace(eligible_leader_replicas=(), last_known_elr=())
                    self._put(self._partitions_of(topic.topic_id, record), topic.topic_id, index, cleared)

    # Configs

    def _all_configs(self) -> dict[ConfigResource, dict[str, str]]:
        if self._configs is None:
            self._configs = dict(self._base.configs)  # type: ignore[arg-type]
        return self._configs

    def _replay_config(self, record: ConfigRecord) -> None:
        configs = self._all_configs()
        resource = ConfigResource(record.resource_type, record.resource_name)
        if resource not in self._own_configs:
            configs[resource] = dict(configs.get(resource, {}))
            self._own_configs.add(resource)
        if record.value is None:
            configs[resource].pop(record.name, None)
        else:
            configs[resource][record.name] = record.value
        if not configs[resource]:
            del configs[resource]
            self._own_configs.discard(resource)

    # Brokers and controllers

    def _broker(self, broker_id: int, epoch: int, record: MetadataRecord) -> BrokerImage:
        broker = self._brokers.get(broker_id)
        if broker is None:
            raise ReplayError(f"{record} names a broker that is not registered")
        if broker.epoch != epoch:
            raise ReplayError(f"{record} names a broker that is registered with epoch {broker.epoch}")
        return broker

    def _replay_register_broker(self, record: RegisterBrokerRecord) -> None:
        self._brokers[record.broker_id] = new_broker(record)

    def _replay_unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        self._broker(record.broker_id, record.broker_epoch, record)
        del self._brokers[record.broker_id]

    def _replay_registration_change(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._broker(record.broker_id, record.broker_epoch, record)
        self._brokers[record.broker_id] = changed_broker(broker, record)

    def _replay_fence(self, record: FenceBrokerRecord) -> None:
        self._brokers[record.id] = self._broker(record.id, record.epoch, record)._replace(fenced=True)

    def _replay_unfence(self, record: UnfenceBrokerRecord) -> None:
        self._brokers[record.id] = self._broker(record.id, record.epoch, record)._replace(fenced=False)

    def _replay_register_controller(self, record: RegisterControllerRecord) -> None:
        self._controllers[record.controller_id] = ControllerImage(
            record.controller_id, record.incarnation_id, record.end_points, record.features
        )

    # The rest

    def _replay_feature_level(self, record: FeatureLevelRecord) -> None:
        if record.feature_level:
            self._features[record.name] = record.feature_level
        else:
            self._features.pop(record.name, None)

    def _replay_producer_ids(self, record: ProducerIdsRecord) -> None:
        if record.next_producer_id <= self._next_producer_id:
            raise ReplayError(f"{record} is not above the last one, {self._next_producer_id}")
        self._next_producer_id = record.next_producer_id

    def _replay_opaque(self, record: OpaqueRecord) -> None:
        if self._opaque is None:
            self._opaque = dict(self._base.opaque)
            self._unknown_records = sum(isinstance(key, UnknownKey) for key in self._opaque)
        key, is_removal = opaque_change(record)
        if is_removal:
            self._opaque.pop(key, None)
            return
        if isinstance(key, UnknownKey) and key not in self._opaque:
            self._unknown_records += 1
            if self._unknown_records > UNKNOWN_RECORDS_MAX:
                raise ReplayError(
                    f"the metadata log has more than {UNKNOWN_RECORDS_MAX} records of types that this release does not "
                    f"know, the last one of type {record.api_key}. Upgrade this node to the release that writes them"
                )
        self._opaque[key] = record

    def _replay_no_op(self, record: NoOpRecord) -> None:
        pass

    def _replay_begin(self, record: BeginTransactionRecord) -> None:
        if self._before_transaction is not None:
            raise ReplayError("a metadata transaction begins inside another")
        self._before_transaction = self.image(self._base.offset, self._base.epoch)

    def _replay_end(self, record: EndTransactionRecord) -> None:
        if self._before_transaction is None:
            raise ReplayError("a metadata transaction ends, but none has begun")
        self._before_transaction = None

    def _replay_abort(self, record: AbortTransactionRecord) -> None:
        if self._before_transaction is None:
            raise ReplayError("a metadata transaction is aborted, but none has begun")
        before = self._before_transaction
        self._before_transaction = None
        self._reset(before)
        if self._observer is not None:
            self._observer.partitions_reset(before)


def new_broker(record: RegisterBrokerRecord) -> BrokerImage:
    return BrokerImage(
        record.broker_id,
        record.broker_epoch,
        record.incarnation_id,
        record.end_points,
        record.features,
        record.rack,
        record.fenced,
        record.in_controlled_shutdown,
        record.log_dirs,
        record.cordoned_log_dirs,
    )


def changed_broker(old: BrokerImage, record: BrokerRegistrationChangeRecord) -> BrokerImage:
    """An empty list of directories means no change."""
    return old._replace(
        fenced=record.fenced == FENCE if record.fenced in (FENCE, UNFENCE) else old.fenced,
        in_controlled_shutdown=bool(record.in_controlled_shutdown) or old.in_controlled_shutdown,
        log_dirs=record.log_dirs or old.log_dirs,
        cordoned_log_dirs=(
            old.cordoned_log_dirs if record.cordoned_log_dirs is None else record.cordoned_log_dirs
        ),
    )


def changed_partition(old: PartitionImage, record: PartitionChangeRecord) -> PartitionImage:
    """A record with a leader raises the leader epoch, even if the leader stays the same, to fence its older process."""
    leads = record.leader != NO_LEADER_CHANGE
    return PartitionImage(
        replicas=old.replicas if record.replicas is None else record.replicas,
        isr=old.isr if record.isr is None else record.isr,
        leader=record.leader if leads else old.leader,
        leader_epoch=old.leader_epoch + leads,
        partition_epoch=old.partition_epoch + 1,
        directories=old.directories if record.directories is None else record.directories,
        adding_replicas=old.adding_replicas if record.adding_replicas is None else record.adding_replicas,
        removing_replicas=(
            old.removing_replicas if record.removing_replicas is None else record.removing_replicas
        ),
        leader_recovery_state=(
            old.leader_recovery_state if record.leader_recovery_state == -1 else record.leader_recovery_state
        ),
        eligible_leader_replicas=(
            old.eligible_leader_replicas
            if record.eligible_leader_replicas is None
            else record.eligible_leader_replicas
        ),
        last_known_elr=old.last_known_elr if record.last_known_elr is None else record.last_known_elr,
    )


_REPLAY: dict[type[Any], Callable[[MetadataDelta, Any], None]] = {
    TopicRecord: MetadataDelta._replay_topic,
    PartitionRecord: MetadataDelta._replay_partition,
    PartitionChangeRecord: MetadataDelta._replay_partition_change,
    RemoveTopicRecord: MetadataDelta._replay_remove_topic,
    ClearElrRecord: MetadataDelta._replay_clear_elr,
    ConfigRecord: MetadataDelta._replay_config,
    RegisterBrokerRecord: MetadataDelta._replay_register_broker,
    UnregisterBrokerRecord: MetadataDelta._replay_unregister_broker,
    BrokerRegistrationChangeRecord: MetadataDelta._replay_registration_change,
    FenceBrokerRecord: MetadataDelta._replay_fence,
    UnfenceBrokerRecord: MetadataDelta._replay_unfence,
    RegisterControllerRecord: MetadataDelta._replay_register_controller,
    FeatureLevelRecord: MetadataDelta._replay_feature_level,
    ProducerIdsRecord: MetadataDelta._replay_producer_ids,
    OpaqueRecord: MetadataDelta._replay_opaque,
    NoOpRecord: MetadataDelta._replay_no_op,
    BeginTransactionRecord: MetadataDelta._replay_begin,
    EndTransactionRecord: MetadataDelta._replay_end,
    AbortTransactionRecord: MetadataDelta._replay_abort,
}
