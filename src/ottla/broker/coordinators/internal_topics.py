"""The internal topics of the coordinators. They are created when first needed, as the broker's configs say."""

from collections.abc import Mapping
from typing import NamedTuple

from ottla.broker.random_uuid import random_uuid
from ottla.broker.services import BrokerServices
from ottla.core.controller.commands import CreateTopics, NewTopic
from ottla.model.config import BrokerConfig
from ottla.model.errors import ErrorCode, KafkaError

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"


class InternalTopic(NamedTuple):
    name: str
    num_partitions: int
    replication_factor: int
    configs: Mapping[str, str]


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
    )


async def ensure_topic(services: BrokerServices, topic: InternalTopic) -> None:
    """Creates the topic if it does not exist. Raises KafkaError COORDINATOR_NOT_AVAILABLE if that fails.

    With fewer brokers than its replication factor it gets as many replicas as there are brokers: a single node works
    with the default configs, which Apache Kafka does not.
    """
    if topic.name in services.metadata.image.topics:
        return
    active = sum(1 for registered in services.metadata.image.brokers.values() if registered.is_active)
    new = NewTopic(
        topic.name,
        random_uuid(services.env),
        topic.num_partitions,
        min(topic.replication_factor, max(active, 1)),
        configs=tuple(topic.configs.items()),
    )
    (result,) = await services.controller.submit(
        CreateTopics((new,), placement_start=services.env.random.getrandbits(31))
    )
    if result.error.code not in (ErrorCode.none, ErrorCode.topic_already_exists):
        raise KafkaError(
            ErrorCode.coordinator_not_available,
            f"{topic.name} could not be created: {result.error.message or result.error.code.name}",
        )
