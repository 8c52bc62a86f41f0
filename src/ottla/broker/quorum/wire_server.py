"""Raft's messages on the wire, from the side of the node that is asked: reads requests, builds responses.

All are in their newest version; `ottla.protocol.messages` converts the others. A reader returns None for a request that
does not ask for exactly `__cluster_metadata-0`.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from kio.schema.begin_quorum_epoch.v1 import request as begin_request
from kio.schema.begin_quorum_epoch.v1 import response as begin_response
from kio.schema.end_quorum_epoch.v1 import request as end_request
from kio.schema.end_quorum_epoch.v1 import response as end_response
from kio.schema.fetch_snapshot.v1 import request as snapshot_request
from kio.schema.fetch_snapshot.v1 import response as snapshot_response
from kio.schema.vote.v2 import request as vote_request
from kio.schema.vote.v2 import response as vote_response

from ottla.broker.quorum.voters import controller_listener_name
from ottla.broker.services import NodeServices
from ottla.core.raft.log_state import OffsetAndEpoch
from ottla.core.raft.messages import (
    NO_NODE,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    EpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    VoteRequest,
    VoteResponse,
)
from ottla.core.raft.voter_set import VoterEndpoint
from ottla.model.errors import ErrorCode
from ottla.model.ids import METADATA_TOPIC, METADATA_TOPIC_ID
from ottla.protocol import fetch_codec
from ottla.protocol.primitives import LeaderIdAndEpoch, NodeEndpoint

T = TypeVar("T")

_NO_SNAPSHOT = OffsetAndEpoch(0, 0)


# Requests


def learn_leader(
    services: NodeServices, asked: BeginQuorumEpochRequest | EndQuorumEpochRequest, endpoints: Sequence[Any]
) -> None:
    """The leader tells its endpoints: a node whose log is behind has none of a new voter (KIP-853).

    Called before raft sees the request, because raft asks the leader at once. Only those of one leader are kept, and
    only if raft may follow it.
    """
    if not services.quorum.driver.node.may_follow(asked.epoch, asked.leader_id):
        return
    listener = controller_listener_name(services.config)
    for found in endpoints:
        if found.name.upper() == listener:
            services.quorum.learned.clear()
            services.quorum.learned[asked.leader_id] = VoterEndpoint(listener, found.host, int(found.port))


def rejection(services: NodeServices, cluster_id: str | None, asked: object) -> ErrorCode:
    """The error for a whole request, before raft sees it. `asked` is what its reader returned."""
    if cluster_id is not None and cluster_id != services.cluster_id:
        return ErrorCode.inconsistent_cluster_id
    return ErrorCode.invalid_request if asked is None else ErrorCode.none


def is_for_another_voter(services: NodeServices, voter_id: int) -> bool:
    """Whether a Vote or BeginQuorumEpoch request was meant for another node: an address is wrong then (KIP-853)."""
    return voter_id not in (NO_NODE, services.config.node_id)


def _only_partition(topics: Sequence[Any]) -> Any:
    """The partition `__cluster_metadata-0` of a request, unless it has another one."""
    found = [
        (topic.topic_name, [partition.partition_index for partition in topic.partitions]) for topic in topics
    ]
    return topics[0].partitions[0] if found == [(METADATA_TOPIC, [0])] else None


def read_vote(request: vote_request.VoteRequest) -> VoteRequest | None:
    partition: vote_request.PartitionData | None = _only_partition(request.topics)
    if partition is None:
        return None
    log_end = OffsetAndEpoch(partition.last_offset, partition.last_offset_epoch)
    return VoteRequest(
        partition.replica_epoch,
        partition.replica_id,
        log_end,
        partition.pre_vote,
        partition.replica_directory_id,
        partition.voter_directory_id,
    )


def read_begin_quorum_epoch(request: begin_request.BeginQuorumEpochRequest) -> BeginQuorumEpochRequest | None:
    partition: begin_request.PartitionData | None = _only_partition(request.topics)
    if partition is None:
        return None
    return BeginQuorumEpochRequest(partition.leader_epoch, partition.leader_id, partition.voter_directory_id)


def read_end_quorum_epoch(request: end_request.EndQuorumEpochRequest) -> EndQuorumEpochRequest | None:
    partition: end_request.PartitionData | None = _only_partition(request.topics)
    if partition is None:
        return None
    successors = tuple(candidate.candidate_id for candidate in partition.preferred_candidates)
    return EndQuorumEpochRequest(partition.leader_epoch, partition.leader_id, successors)


def read_fetch(request: fetch_codec.FetchRequest) -> FetchRequest | None:
    if [(topic.topic_id, len(topic.partitions)) for topic in request.topics] != [(METADATA_TOPIC_ID, 1)]:
        return None
    partition = request.topics[0].partitions[0]
    if partition.index != 0:
        return None
    return FetchRequest(
        partition.current_leader_epoch,
        request.replica_id,
        partition.fetch_offset,
        partition.last_fetched_epoch,
        partition.high_watermark,
        partition.replica_directory_id,
    )


def read_fetch_snapshot(request: snapshot_request.FetchSnapshotRequest) -> FetchSnapshotRequest | None:
    if [(topic.name, len(topic.partitions)) for topic in request.topics] != [(METADATA_TOPIC, 1)]:
        return None
    partition = request.topics[0].partitions[0]
    if partition.partition != 0:
        return None
    return FetchSnapshotRequest(
        partition.current_leader_epoch,
        request.replica_id,
        OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch),
        partition.position,
        partition.replica_directory_id,
    )


# Responses. `endpoint` is that of the leader, if it is known.


def _hint(kind: Callable[..., T], leader_id: int, endpoint: VoterEndpoint | None) -> tuple[T, ...]:
    """Where the leader is, for nodes that do not know (KIP-853)."""
    if endpoint is None:
        return ()
    return (kind(node_id=leader_id, host=endpoint.host, port=endpoint.port),)


def build_vote(response: VoteResponse, endpoint: VoterEndpoint | None) -> vote_response.VoteResponse:
    partition = vote_response.PartitionData(
        partition_index=0,
        error_code=response.error,
        leader_id=response.leader_id,
        leader_epoch=response.epoch,
        vote_granted=response.is_granted,
    )
    return vote_response.VoteResponse(
        error_code=ErrorCode.none,
        topics=(vote_response.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,)),),
        node_endpoints=_hint(vote_response.NodeEndpoint, response.leader_id, endpoint),
    )


def build_begin_quorum_epoch(
    response: EpochResponse, endpoint: VoterEndpoint | None
) -> begin_response.BeginQuorumEpochResponse:
    partition = begin_response.PartitionData(
        partition_index=0,
        error_code=response.error,
        leader_id=response.leader_id,
        leader_epoch=response.epoch,
    )
    return begin_response.BeginQuorumEpochResponse(
        error_code=ErrorCode.none,
        topics=(begin_response.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,)),),
        node_endpoints=_hint(begin_response.NodeEndpoint, response.leader_id, endpoint),
    )


def build_end_quorum_epoch(
    response: EpochResponse, endpoint: VoterEndpoint | None
) -> end_response.EndQuorumEpochResponse:
    partition = end_response.PartitionData(
        partition_index=0,
        error_code=response.error,
        leader_id=response.leader_id,
        leader_epoch=response.epoch,
    )
    return end_response.EndQuorumEpochResponse(
        error_code=ErrorCode.none,
        topics=(end_response.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,)),),
        node_endpoints=_hint(end_response.NodeEndpoint, response.leader_id, endpoint),
    )


def build_fetch(
    response: FetchResponse, endpoint: VoterEndpoint | None, log_start_offset: int
) -> fetch_codec.FetchResponse:
    """A batch is bytes of the log."""
    diverging, snapshot = response.diverging, response.snapshot
    partition = fetch_codec.FetchPartitionResponse(
        0,
        int(response.error),
        response.high_watermark,
        log_start_offset=log_start_offset,
        aborted=(),
        records=b"".join(batch.data for batch in response.batches),
        diverging_epoch=(
            None if diverging is None else fetch_codec.EpochEndOffset(diverging.epoch, diverging.offset)
        ),
        current_leader=LeaderIdAndEpoch(response.leader_id, response.epoch),
        snapshot_id=None if snapshot is None else fetch_codec.SnapshotId(*snapshot),
    )
    topics = [fetch_codec.FetchTopicResponse(METADATA_TOPIC, METADATA_TOPIC_ID, [partition])]
    endpoints: Sequence[NodeEndpoint] = ()
    if endpoint is not None:
        endpoints = [NodeEndpoint(response.leader_id, endpoint.host, endpoint.port)]
    return fetch_codec.FetchResponse(0, 0, 0, topics, endpoints)


def build_fetch_snapshot(
    response: FetchSnapshotResponse, endpoint: VoterEndpoint | None
) -> snapshot_response.FetchSnapshotResponse:
    snapshot = response.snapshot or _NO_SNAPSHOT
    partition = snapshot_response.PartitionSnapshot(
        index=0,
        error_code=response.error,
        snapshot_id=snapshot_response.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch),
        current_leader=snapshot_response.LeaderIdAndEpoch(
            leader_id=response.leader_id, leader_epoch=response.epoch
        ),
        size=response.size,
        position=response.position,
        unaligned_records=response.data,
    )
    return snapshot_response.FetchSnapshotResponse(
        throttle_time=timedelta(),
        error_code=ErrorCode.none,
        topics=(snapshot_response.TopicSnapshot(name=METADATA_TOPIC, partitions=(partition,)),),
        node_endpoints=_hint(snapshot_response.NodeEndpoint, response.leader_id, endpoint),
    )
