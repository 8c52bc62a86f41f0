"""Hanging transactions: open in a partition, but no coordinator will end them (KIP-664).

A hanging transaction holds back the last stable offset, and with it all `read_committed` consumers. It can be aborted
with a marker that is written directly to the partition.
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

_MAX_TIMEOUT = "transaction.max.timeout.ms"
_PARTITIONS_PER_REQUEST = 500


class OpenTransaction(NamedTuple):
    """A transaction that has no marker in this partition yet."""

    topic: str
    partition: int
    start_offset: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    # Of the producer's newest batch: create time or append time, as the topic is configured.
    last_timestamp_ms: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def max_timeout_ms(cluster: Cluster) -> int:
    """The longest time after which a coordinator aborts a transaction: `transaction.max.timeout.ms`."""
    lines = [
        line for node in list_nodes(cluster) for line in describe_configs(cluster, "broker", str(node.id))
    ]
    return max(int(line.value) for line in lines if line.name == _MAX_TIMEOUT and line.value is not None)


def find_hanging_transactions(
    cluster: Cluster, scopes: Collection[TopicScope], longer_than_ms: int, now_ms: int
) -> list[OpenTransaction]:
    """Sorted. Looks in the partitions that a scope covers, or in all if there is no scope."""
    leaders = partition_leaders(cluster)
    chosen = [p for p in leaders if not scopes or any(scope.covers(p) for scope in scopes)]
    for scope in scopes:
        if not any(scope.covers(partition) for partition in chosen):
            raise ClusterError(f"{scope}: no such topic or partition. See: ottla topics list")
    opened = _open_transactions(cluster, {partition: leaders[partition] for partition in chosen})
    old = [found for found in opened if now_ms - found.last_timestamp_ms > longer_than_ms]
    return without_coordinator(old, _transactions_by_producer(cluster, old))


def abort_transaction(cluster: Cluster, partition: TopicPartition, start_offset: int) -> OpenTransaction:
    """Writes an abort marker. Raises ClusterError if no transaction begins there, or its coordinator will end it."""
    leaders = partition_leaders(cluster)
    if partition not in leaders:
        raise ClusterError(f"{partition}: no such topic or partition. See: ottla topics list")
    opened = _open_transactions(cluster, {partition: leaders[partition]})
    wanted = [found for found in opened if found.start_offset == start_offset]
    if not wanted:
        raise ClusterError(
            f"{partition} has no open transaction that begins at offset {start_offset}. "
            f"See: ottla transactions hanging --topic {partition.topic}:{partition.partition}"
        )
    known = _transactions_by_producer(cluster, wanted)
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
    """The transactions that no coordinator has in this partition. `known` is by producer id."""
    return sorted(
        found
        for found in opened
        if found.producer_id not in known or found.topic_partition not in known[found.producer_id].partitions
    )


def _open_transactions(cluster: Cluster, leaders: Mapping[TopicPartition, int]) -> list[OpenTransaction]:
    """The open transactions of these partitions, from their leaders. Partitions without a leader are left out."""
    by_id = {node.id: node for node in list_nodes(cluster)}
    by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
    for partition in sorted(leaders):
        by_leader[leaders[partition]].append(partition)
    return [
        found
        for leader, partitions in by_leader.items()
        if leader in by_id
        for begin in range(0, len(partitions), _PARTITIONS_PER_REQUEST)
        for found in _open_at(by_id[leader], partitions[begin : begin + _PARTITIONS_PER_REQUEST])
    ]


def _open_at(leader: Node, partitions: list[TopicPartition]) -> list[OpenTransaction]:
    by_topic: dict[str, list[i32]] = defaultdict(list)
    for name, number in partitions:
        by_topic[name].append(i32(number))
    topics = tuple(TopicRequest(name=TopicName(t), partition_indexes=tuple(n)) for t, n in by_topic.items())
    what = f"Producers of {', '.join(by_topic)}"
    response = call(leader, DescribeProducersRequest(topics=topics), DescribeProducersResponse, what)
    found = []
    for topic in response.topics:
        for line in topic.partitions:
            if line.error_code is not ErrorCode.none:
                raise ClusterError(
                    f"Producers of {topic.name}-{line.partition_index}: broker {leader} responded "
                    f"{line.error_code.name.upper()}. Try again"
                )
            found += [
                OpenTransaction(
                    topic.name,
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


def _transactions_by_producer(
    cluster: Cluster, opened: Iterable[OpenTransaction]
) -> dict[int, TransactionDescription]:
    """The transactions that coordinators know of these producers, by producer id."""
    producer_ids = {found.producer_id for found in opened}
    if not producer_ids:
        return {}
    listed = list_transactions(cluster, producer_ids=sorted(producer_ids))
    described = describe_transactions(cluster, [line.transactional_id for line in listed])
    # A transactional id may have got another producer id between the two requests.
    return {found.producer_id: found for found in described if found.producer_id in producer_ids}


def _write_abort_marker(cluster: Cluster, hanging: OpenTransaction, leader_id: int) -> None:
    (leader,) = [node for node in list_nodes(cluster) if node.id == leader_id]
    topic = WritableTxnMarkerTopic(name=TopicName(hanging.topic), partition_indexes=(i32(hanging.partition),))
    marker = WritableTxnMarker(
        producer_id=ProducerId(hanging.producer_id),
        producer_epoch=i16(hanging.producer_epoch),
        transaction_result=False,
        topics=(topic,),
        # -1 if this producer has never ended a transaction here. 0 is not newer than any coordinator.
        coordinator_epoch=i32(max(hanging.coordinator_epoch, 0)),
    )
    what = f"The transaction at offset {hanging.start_offset} of {hanging.topic_partition} was not aborted"
    response = call(leader, WriteTxnMarkersRequest(markers=(marker,)), WriteTxnMarkersResponse, what)
    (error,) = [
        line.error_code
        for result in response.markers
        for topic_result in result.topics
        for line in topic_result.partitions
    ]
    if error is not ErrorCode.none:
        raise ClusterError(f"{what}: broker {leader} responded {error.name.upper()}")
