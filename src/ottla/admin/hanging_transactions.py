"""Hanging transactions: open in a partition, while no coordinator will ever end them (KIP-664).

Such a one holds back the last stable offset, and with it everybody who reads committed records. It can be aborted by
hand, with a marker that is written straight into the partition.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from kio.schema.describe_producers.v0.request import DescribeProducersRequest, TopicRequest
from kio.schema.describe_producers.v0.response import DescribeProducersResponse
from kio.schema.types import ProducerId, TopicName
from kio.schema.write_txn_markers.v1.request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kio.schema.write_txn_markers.v1.response import WriteTxnMarkersResponse
from kio.static.primitive import i16, i32

from ottla.admin.cluster import Cluster, ClusterError
from ottla.admin.configs import describe_configs
from ottla.admin.group_offsets import TopicScope, partition_leaders
from ottla.admin.nodes import Node, call, list_nodes
from ottla.admin.transactions import TransactionDescription, describe_transactions, list_transactions
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition

MAX_TIMEOUT = "transaction.max.timeout.ms"
_PARTITIONS_A_REQUEST = 500


class OpenTransaction(NamedTuple):
    """What a partition knows of a transaction that has no marker in it yet."""

    topic: str
    partition: int
    start_offset: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    # The time of the producer's newest batch, by the clock that stamps the topic's records.
    last_timestamp_ms: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def max_timeout_ms(cluster: Cluster) -> int:
    """No transaction is open for longer than this: its coordinator aborts it."""
    lines = [
        line for node in list_nodes(cluster) for line in describe_configs(cluster, "broker", str(node.id))
    ]
    return max(int(line.value) for line in lines if line.name == MAX_TIMEOUT and line.value is not None)


def hanging_transactions(
    cluster: Cluster, scopes: Collection[TopicScope], longer_than_ms: int, now_ms: int
) -> list[OpenTransaction]:
    """Sorted; in the partitions that a scope covers, or in all where there is none."""
    leaders = partition_leaders(cluster)
    chosen = [p for p in leaders if not scopes or any(scope.covers(p) for scope in scopes)]
    for scope in scopes:
        if not any(scope.covers(partition) for partition in chosen):
            raise ClusterError(f"{scope}: no such topic or partition. See: ottla topics list")
    opened = open_transactions(cluster, {partition: leaders[partition] for partition in chosen})
    old = [found for found in opened if now_ms - found.last_timestamp_ms > longer_than_ms]
    return without_coordinator(old, _known(cluster, old))


def abort_transaction(cluster: Cluster, partition: TopicPartition, start_offset: int) -> OpenTransaction:
    """Writes the marker. Raises ClusterError where nothing is open there, or a coordinator will end it itself."""
    leaders = partition_leaders(cluster)
    if partition not in leaders:
        raise ClusterError(f"{partition}: no such topic or partition. See: ottla topics list")
    opened = open_transactions(cluster, {partition: leaders[partition]})
    wanted = [found for found in opened if found.start_offset == start_offset]
    if not wanted:
        raise ClusterError(
            f"{partition} has no open transaction that begins at offset {start_offset}. "
            f"See: ottla transactions hanging --topic {partition.topic}:{partition.partition}"
        )
    known = _known(cluster, wanted)
    if not without_coordinator(wanted, known):
        owner = known[wanted[0].producer_id]
        raise ClusterError(
            f"The transaction at offset {start_offset} of {partition} is not hanging: it is {owner.state} for the "
            f"transactional id {owner.transactional_id}, and its coordinator ends it within {owner.timeout_ms} ms of "
            "its start. Nothing was aborted"
        )
    _write_abort_marker(cluster, wanted[0], leaders[partition])
    return wanted[0]


def without_coordinator(
    opened: Iterable[OpenTransaction], known: Mapping[int, TransactionDescription]
) -> list[OpenTransaction]:
    """Those that the coordinator of their producer does not have in this partition. `known` is by producer id."""
    return sorted(
        found
        for found in opened
        if found.producer_id not in known or found.topic_partition not in known[found.producer_id].partitions
    )


def open_transactions(cluster: Cluster, leaders: Mapping[TopicPartition, int]) -> list[OpenTransaction]:
    """Of these partitions, as their leaders say; a partition without a leader cannot be asked."""
    by_id = {node.id: node for node in list_nodes(cluster)}
    by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
    for partition in sorted(leaders):
        by_leader[leaders[partition]].append(partition)
    return [
        found
        for leader, partitions in by_leader.items()
        if leader in by_id
        for begin in range(0, len(partitions), _PARTITIONS_A_REQUEST)
        for found in _open_at(by_id[leader], partitions[begin : begin + _PARTITIONS_A_REQUEST])
    ]


def _open_at(leader: Node, partitions: list[TopicPartition]) -> list[OpenTransaction]:
    by_topic: dict[str, list[i32]] = defaultdict(list)
    for topic, number in partitions:
        by_topic[topic].append(i32(number))
    topics = tuple(TopicRequest(name=TopicName(t), partition_indexes=tuple(n)) for t, n in by_topic.items())
    what = f"Producers of {', '.join(by_topic)}"
    response = call(leader, DescribeProducersRequest(topics=topics), DescribeProducersResponse, what)
    found = []
    for answer in response.topics:
        for line in answer.partitions:
            if line.error_code is not ErrorCode.none:
                raise ClusterError(
                    f"Producers of {answer.name}-{line.partition_index}: broker {leader} answered "
                    f"{line.error_code.name.upper()}. Try again"
                )
            found += [
                OpenTransaction(
                    answer.name,
                    line.partition_index,
                    producer.current_txn_start_offset,
                    producer.producer_id,
                    producer.producer_epoch,
                    producer.coordinator_epoch,
                    producer.last_timestamp,
                )
                for producer in line.active_producers
                if producer.current_txn_start_offset >= 0
            ]
    return found


def _known(cluster: Cluster, opened: Iterable[OpenTransaction]) -> dict[int, TransactionDescription]:
    """What coordinators know, by producer id. A producer of which none knows is left out."""
    producer_ids = {found.producer_id for found in opened}
    if not producer_ids:
        return {}
    listed = list_transactions(cluster, producer_ids=sorted(producer_ids))
    described = describe_transactions(cluster, [line.transactional_id for line in listed])
    # Meanwhile a transactional id may have gone on with another producer id.
    return {found.producer_id: found for found in described if found.producer_id in producer_ids}


def _write_abort_marker(cluster: Cluster, hanging: OpenTransaction, leader_id: int) -> None:
    (leader,) = [node for node in list_nodes(cluster) if node.id == leader_id]
    topic = WritableTxnMarkerTopic(name=TopicName(hanging.topic), partition_indexes=(i32(hanging.partition),))
    marker = WritableTxnMarker(
        producer_id=ProducerId(hanging.producer_id),
        producer_epoch=i16(hanging.producer_epoch),
        transaction_result=False,
        topics=(topic,),
        # -1 where this producer never ended a transaction here. 0 is no newer than any coordinator.
        coordinator_epoch=i32(max(hanging.coordinator_epoch, 0)),
    )
    what = f"The transaction at offset {hanging.start_offset} of {hanging.topic_partition} was not aborted"
    response = call(leader, WriteTxnMarkersRequest(markers=(marker,)), WriteTxnMarkersResponse, what)
    (error,) = [
        line.error_code
        for result in response.markers
        for answer in result.topics
        for line in answer.partitions
    ]
    if error is not ErrorCode.none:
        raise ClusterError(f"{what}: broker {leader} answered {error.name.upper()}")
