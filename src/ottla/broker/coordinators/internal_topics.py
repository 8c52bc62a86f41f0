"""The internal topics of the coordinators. They are created when first needed, as the broker's configs say."""

from collections.abc import Mapping
from typing import NamedTuple

from ottla.broker.active_controller import AUTO_CREATE_TIMEOUT_S
from ottla.broker.random_uuid import random_uuid
from ottla.broker.services import BrokerServices
from ottla.core.controller.commands import CreateTopics, NewTopic
from ottla.model.config import BrokerConfig
from ottla.model.errors import ErrorCode, KafkaError

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"


class InternalTopic(NamedTuple):
    """`replication_config` is the config that sets the replication factor."""

    name: str
    num_partitions: int
    replication_factor: int
    configs: Mapping[str, str]
    replication_config: str


def consumer_offsets(config: BrokerConfig) -> InternalTopic:
    return InternalTopic(
        CONSUMER_OFFSETS,
        config.get_int("offsets.topic.num.partitions"),
        config.get_int("offsets.topic.replication.factor"),
        {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.get_int("offsets.topic.segment.bytes")),
        },
        "offsets.topic.replication.factor",
    )


def transaction_state(config: BrokerConfig) -> InternalTopic:
    return InternalTopic(
        TRANSACTION_STATE,
        config.get_int("transaction.state.log.num.partitions"),
        config.get_int("transaction.state.log.replication.factor"),
        {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(config.get_int("transaction.state.log.min.isr")),
            "segment.bytes": str(config.get_int("transaction.state.log.segment.bytes")),
            "unclean.leader.election.enable": "false",
        },
        "transaction.state.log.replication.factor",
    )


_QUORUM_CONFIGS = ("controller.quorum.voters", "controller.quorum.bootstrap.servers")


class ClusterSize(NamedTuple):
    """`active_brokers` are those of the registered ones that may get replicas now.

    `is_own_quorum`: this node is the only voter, because no config names one. A cluster of one controller and several
    brokers has one voter too, and at first one broker.
    """

    is_own_quorum: bool
    registered_brokers: int
    active_brokers: int

    @property
    def is_single_node(self) -> bool:
        return self.is_own_quorum and self.registered_brokers == 1


def replication_factor_of(topic: InternalTopic, cluster: ClusterSize, *, is_set: bool) -> int:
    """The replication factor to create `topic` with; `is_set` says whether a user has configured it.

    A cluster that starts must not create the topic with fewer replicas because its other brokers come later: the topic
    would keep them. But a single node works with the default configs, which Apache Kafka does not. Raises KafkaError.
    """
    if cluster.active_brokers >= topic.replication_factor:
        return topic.replication_factor
    if cluster.is_single_node and not is_set:
        return 1
    remedy = (
        f"Set {topic.replication_config}=1 for a single node"
        if cluster.is_single_node
        else f"Start more brokers, or set {topic.replication_config} to a smaller number"
    )
    raise KafkaError(
        ErrorCode.coordinator_not_available,
        f"{topic.name} cannot be created: {topic.replication_config} is {topic.replication_factor}, but the brokers "
        f"that are active now are {cluster.active_brokers}. {remedy}",
    )


def _cluster_size(services: BrokerServices) -> ClusterSize:
    brokers = services.metadata.image.brokers.values()
    active = sum(1 for broker in brokers if broker.is_active)
    is_own_quorum = not any(map(services.config.is_set, _QUORUM_CONFIGS))
    return ClusterSize(is_own_quorum, len(brokers), active)


async def ensure_topic(services: BrokerServices, topic: InternalTopic) -> None:
    """Creates the topic if it does not exist. Raises KafkaError COORDINATOR_NOT_AVAILABLE if that fails."""
    if topic.name in services.metadata.image.topics:
        return
    is_set = services.config.is_set(topic.replication_config)
    replication_factor = replication_factor_of(topic, _cluster_size(services), is_set=is_set)
    new = NewTopic(
        topic.name,
        random_uuid(services.env),
        topic.num_partitions,
        replication_factor,
        configs=tuple(topic.configs.items()),
    )
    (result,) = await services.topic_creation.submit(
        CreateTopics((new,), placement_start=services.env.random.getrandbits(31)), AUTO_CREATE_TIMEOUT_S
    )
    if result.error.code not in (ErrorCode.none, ErrorCode.topic_already_exists):
        raise KafkaError(
            ErrorCode.coordinator_not_available,
            f"{topic.name} could not be created: {result.error.message or result.error.code.name}",
        )
