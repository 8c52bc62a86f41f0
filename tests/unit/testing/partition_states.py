"""The leader and the in-sync replicas of a partition, as single nodes of a `KafkaCluster` know them.

A client of several nodes asks any of them, also one that lags, and its errors during a change of leader are no answer.
"""

import datetime
from collections.abc import Callable, Collection
from typing import NamedTuple

from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v12.response import MetadataResponse
from kio.schema.produce.v9.request import PartitionProduceData, ProduceRequest, TopicProduceData
from kio.schema.produce.v9.response import ProduceResponse
from kio.schema.types import TopicName
from kio.static.primitive import i16, i32

from ottla.admin.cluster import ClusterError
from ottla.admin.nodes import Node, call
from ottla.model.errors import ErrorCode
from ottla.records.records import Record, build_batch
from ottla.testing import KafkaCluster
from ottla.testing.helpers import wait_until

TIMEOUT_S = 120


class PartitionState(NamedTuple):
    leader: int
    isr: list[int]


def address_of(cluster: KafkaCluster, node: int) -> Node:
    host, _, port = cluster.address(node).rpartition(":")
    return Node(node, host, int(port))


def state_at(cluster: KafkaCluster, node: int, topic: str, partition: int = 0) -> PartitionState | None:
    """As this node knows it; None if it does not answer or does not know the partition."""
    request = MetadataRequest(
        topics=(MetadataRequestTopic(topic_id=None, name=TopicName(topic)),),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    try:
        response = call(address_of(cluster, node), request, MetadataResponse, f"Topic {topic}")
    except ClusterError:
        return None
    for found in response.topics[0].partitions:
        if found.partition_index == partition:
            return PartitionState(int(found.leader_id), sorted(map(int, found.isr_nodes)))
    return None


def wait_for_state(
    cluster: KafkaCluster,
    nodes: Collection[int],
    topic: str,
    condition: Callable[[PartitionState], bool],
    *,
    partition: int = 0,
) -> None:
    """Waits until each of the nodes knows such a state."""
    states: dict[int, PartitionState | None] = {}

    def all_know() -> bool:
        states.update({node: state_at(cluster, node, topic, partition) for node in nodes})
        return all(state is not None and condition(state) for state in states.values())

    assert wait_until(all_know, TIMEOUT_S), f"{topic}-{partition} after {TIMEOUT_S} s, by node: {states}"


def wait_until_led(
    cluster: KafkaCluster, topic: str, *leaders: int, nodes: Collection[int] = (1, 2, 3), partition: int = 0
) -> None:
    """Waits until each of `nodes` knows that one of `leaders` leads."""
    wait_for_state(cluster, nodes, topic, lambda state: state.leader in leaders, partition=partition)


def wait_until_in_sync(cluster: KafkaCluster, topic: str, *isr: int) -> None:
    """Waits until each of the nodes in `isr` knows that these are the in-sync replicas."""
    wait_for_state(cluster, isr, topic, lambda state: state.isr == sorted(isr))


def produce_at(cluster: KafkaCluster, node: int, topic: str, value: bytes, timeout_ms: int) -> ErrorCode:
    """Asks this node, whoever leads, to append a record to partition 0 with acks=all. Returns the error it answers."""
    records = build_batch([Record(0, 0, None, value)])
    request = ProduceRequest(
        acks=i16(-1),
        timeout=datetime.timedelta(milliseconds=timeout_ms),
        topic_data=(
            TopicProduceData(
                name=TopicName(topic),
                partition_data=(PartitionProduceData(index=i32(0), records=records),),
            ),
        ),
    )
    response = call(address_of(cluster, node), request, ProduceResponse, f"A record for {topic}")
    return ErrorCode(response.responses[0].partition_responses[0].error_code)
