"""The replication factor of the internal topics: as configured, or not created, except on a single node."""

import pytest
from tests.unit.broker.broker_bench import Bench, on_broker
from tests.unit.broker.group_bench import message
from tests.unit.broker.roles import register_other

from ottla.broker.coordinators.internal_topics import (
    CONSUMER_OFFSETS,
    ClusterSize,
    consumer_offsets,
    replication_factor_of,
    transaction_state,
)
from ottla.model.config import BrokerConfig
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.api_keys import ApiKey

DEFAULT = consumer_offsets(BrokerConfig({"node.id": "1", "log.dirs": "/data"}))
SINGLE = ClusterSize(is_own_quorum=True, registered_brokers=1, active_brokers=1)


@pytest.mark.parametrize(
    ("cluster", "is_set", "expected"),
    [
        (ClusterSize(False, 3, 3), False, 3),
        (ClusterSize(True, 5, 5), True, 3),
        (ClusterSize(False, 3, 2), False, None),  # the third broker has not started yet
        (ClusterSize(False, 1, 1), False, None),  # the first broker of three
        (ClusterSize(True, 2, 2), False, None),
        (ClusterSize(True, 2, 1), False, None),  # the other one is fenced
        (SINGLE, False, 1),
        (SINGLE, True, None),
        (ClusterSize(True, 1, 0), False, 1),
    ],
)
def test_the_replication_factor_is_the_configured_one_except_on_a_single_node(
    cluster: ClusterSize, is_set: bool, expected: int | None
) -> None:
    if expected is not None:
        assert replication_factor_of(DEFAULT, cluster, is_set=is_set) == expected
        return
    with pytest.raises(KafkaError) as rejected:
        replication_factor_of(DEFAULT, cluster, is_set=is_set)
    assert rejected.value.code is ErrorCode.coordinator_not_available
    assert "offsets.topic.replication.factor" in rejected.value.message


def test_the_error_says_what_to_set() -> None:
    with pytest.raises(KafkaError) as rejected:
        replication_factor_of(DEFAULT, SINGLE, is_set=True)
    assert rejected.value.message == (
        "__consumer_offsets cannot be created: offsets.topic.replication.factor is 3, but the brokers that are active "
        "now are 1. Set offsets.topic.replication.factor=1 for a single node"
    )
    topic = transaction_state(BrokerConfig({"node.id": "1", "log.dirs": "/data"}))
    with pytest.raises(KafkaError) as rejected:
        replication_factor_of(topic, ClusterSize(False, 2, 2), is_set=False)
    assert rejected.value.message.endswith(
        "Start more brokers, or set transaction.state.log.replication.factor to a smaller number"
    )


async def find_coordinator(bench: Bench) -> ErrorCode:
    request = message(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=("g",))
    (found,) = (await bench.ask(request)).coordinators
    code: ErrorCode = found.error_code
    return code


@on_broker(offsets_topic_replication_factor="3", offsets_topic_num_partitions="2")
async def test_a_topic_whose_configured_replication_factor_is_too_large_is_not_created(bench: Bench) -> None:
    assert await find_coordinator(bench) is ErrorCode.coordinator_not_available
    assert CONSUMER_OFFSETS not in bench.services.metadata.image.topics


@on_broker(offsets_topic_num_partitions="2")
async def test_a_cluster_of_two_brokers_does_not_create_the_topic_with_one_replica(bench: Bench) -> None:
    register_other(bench, fenced=True)
    assert await find_coordinator(bench) is ErrorCode.coordinator_not_available
    assert CONSUMER_OFFSETS not in bench.services.metadata.image.topics


@on_broker(offsets_topic_num_partitions="2")
async def test_a_single_node_works_with_the_default_configs(bench: Bench) -> None:
    assert await find_coordinator(bench) is ErrorCode.none
    topic = bench.services.metadata.image.topics[CONSUMER_OFFSETS]
    assert [partition.replicas for partition in topic.partitions.values()] == [(1,), (1,)]
