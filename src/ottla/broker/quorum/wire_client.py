"""Raft's messages on the wire, from the side of the node that asks: encodes requests, decodes responses.

A request or response has exactly one partition, `__cluster_metadata-0`. Responses are not trusted: bytes that are no
valid response are a ResponseError, and damaged batches never reach the log.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kio.index import load_request_schema, load_response_schema
from kio.schema.begin_quorum_epoch.v1 import request as begin_v1
from kio.schema.end_quorum_epoch.v1 import request as end_v1
from kio.schema.fetch_snapshot.v1 import request as snapshot_v1
from kio.schema.vote.v2 import request as vote_v2

from ottla.broker.quorum.membership_records import membership_of_batch
from ottla.core.raft.log_state import OffsetAndEpoch
from ottla.core.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    EpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    ReplicatedBatch,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)
from ottla.core.raft.voter_set import VoterEndpoint
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import METADATA_TOPIC, METADATA_TOPIC_ID
from ottla.protocol import fetch_codec
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages import converter
from ottla.records.header import HEADER_SIZE, MAGIC, crc_matches, read_header
from ottla.rpc.client_protocol import ResponseError
from ottla.rpc.fetch import decode_fetch_response, encode_fetch_request
from ottla.rpc.messages import decode_message, encode_message

FETCH_WAIT_MS = 500  # as KafkaRaftClient


class Api(NamedTuple):
    """`min_version` is that of Kafka 3.9, the first one with KIP-853."""

    key: ApiKey
    min_version: int


API_OF: dict[type[Request], Api] = {
    VoteRequest: Api(ApiKey.VOTE, 1),
    BeginQuorumEpochRequest: Api(ApiKey.BEGIN_QUORUM_EPOCH, 1),
    EndQuorumEpochRequest: Api(ApiKey.END_QUORUM_EPOCH, 1),
    FetchRequest: Api(ApiKey.FETCH, 17),
    FetchSnapshotRequest: Api(ApiKey.FETCH_SNAPSHOT, 1),
}
PRE_VOTE_FROM = 2
Learn = Callable[[int, str, int], None]


class Sender(NamedTuple):
    """What the requests of a node have in common. `endpoints` are its own."""

    cluster_id: str
    endpoints: Sequence[VoterEndpoint]
    fetch_max_bytes: int
    fetch_snapshot_max_bytes: int
    fetch_wait_ms: int = FETCH_WAIT_MS


# Requests


def encode_request(sender: Sender, to: int, request: Request, version: int) -> bytes:
    """The body of a request to the node `to`. A pre-vote needs Vote v2."""
    if isinstance(request, FetchRequest):
        return encode_fetch_request(_fetch(sender, request), version)
    message: Any = _newest(sender, to, request)
    newest: Any = type(message)
    lowered: Any = load_request_schema(message.__api_key__, version)
    return encode_message(converter(newest, lowered)(message))


def _newest(sender: Sender, to: int, request: Request) -> object:
    match request:
        case VoteRequest():
            return _vote(sender, to, request)
        case BeginQuorumEpochRequest():
            return _begin_quorum_epoch(sender, to, request)
        case EndQuorumEpochRequest():
            return _end_quorum_epoch(sender, request)
        case FetchSnapshotRequest():
            return _fetch_snapshot(sender, request)
        case FetchRequest():
            return _fetch(sender, request)


def _vote(sender: Sender, to: int, request: VoteRequest) -> vote_v2.VoteRequest:
    partition = vote_v2.PartitionData(
        partition_index=0,
        replica_epoch=request.epoch,
        replica_id=request.candidate_id,
        replica_directory_id=request.candidate_directory_id,
        voter_directory_id=request.voter_directory_id,
        last_offset_epoch=request.log_end.epoch,
        last_offset=request.log_end.offset,
        pre_vote=request.is_pre_vote,
    )
    topic = vote_v2.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,))
    return vote_v2.VoteRequest(cluster_id=sender.cluster_id, voter_id=to, topics=(topic,))


def _begin_quorum_epoch(
    sender: Sender, to: int, request: BeginQuorumEpochRequest
) -> begin_v1.BeginQuorumEpochRequest:
    partition = begin_v1.PartitionData(
        partition_index=0,
        voter_directory_id=request.voter_directory_id,
        leader_id=request.leader_id,
        leader_epoch=request.epoch,
    )
    return begin_v1.BeginQuorumEpochRequest(
        cluster_id=sender.cluster_id,
        voter_id=to,
        topics=(begin_v1.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,)),),
        leader_endpoints=tuple(
            begin_v1.LeaderEndpoint(name=name, host=host, port=port) for name, host, port in sender.endpoints
        ),
    )


def _end_quorum_epoch(sender: Sender, request: EndQuorumEpochRequest) -> end_v1.EndQuorumEpochRequest:
    partition = end_v1.PartitionData(
        partition_index=0,
        leader_id=request.leader_id,
        leader_epoch=request.epoch,
        preferred_candidates=tuple(
            end_v1.ReplicaInfo(candidate_id=successor, candidate_directory_id=None)
            for successor in request.preferred_successors
        ),
    )
    return end_v1.EndQuorumEpochRequest(
        cluster_id=sender.cluster_id,
        topics=(end_v1.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,)),),
        leader_endpoints=tuple(
            end_v1.LeaderEndpoint(name=name, host=host, port=port) for name, host, port in sender.endpoints
        ),
    )


def _fetch(sender: Sender, request: FetchRequest) -> fetch_codec.FetchRequest:
    partition = fetch_codec.FetchPartition(
        0,
        request.epoch,
        request.offset,
        request.last_epoch,
        -1,
        sender.fetch_max_bytes,
        request.directory_id,
        high_watermark=request.high_watermark,
    )
    return fetch_codec.FetchRequest(
        replica_id=request.replica_id,
        replica_epoch=-1,
        max_wait_ms=sender.fetch_wait_ms,
        min_bytes=0,
        max_bytes=sender.fetch_max_bytes,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[fetch_codec.FetchTopic(METADATA_TOPIC, METADATA_TOPIC_ID, [partition])],
        forgotten=[],
        cluster_id=sender.cluster_id,
    )


def _fetch_snapshot(sender: Sender, request: FetchSnapshotRequest) -> snapshot_v1.FetchSnapshotRequest:
    partition = snapshot_v1.PartitionSnapshot(
        partition=0,
        current_leader_epoch=request.epoch,
        snapshot_id=snapshot_v1.SnapshotId(end_offset=request.snapshot.offset, epoch=request.snapshot.epoch),
        position=request.position,
        replica_directory_id=request.directory_id,
    )
    return snapshot_v1.FetchSnapshotRequest(
        cluster_id=sender.cluster_id,
        replica_id=request.replica_id,
        max_bytes=sender.fetch_snapshot_max_bytes,
        topics=(snapshot_v1.TopicSnapshot(name=METADATA_TOPIC, partitions=(partition,)),),
    )


# Responses


def decode_response(
    request: Request, version: int, body: memoryview, learn: Learn = lambda *endpoint: None
) -> Response:
    """Raises KafkaError if the whole request is rejected or a batch is damaged, and ResponseError for other bytes.

    `learn` is called with the id, the host and the port of the leader, if the response has them (KIP-853).
    """
    if isinstance(request, FetchRequest):
        fetched = decode_fetch_response(body, version)
        for found in fetched.node_endpoints:
            learn(found.node_id, found.host, found.port)
        return _fetch_response(request, fetched)
    schema: Any = load_response_schema(API_OF[type(request)].key, version)
    message: Any = decode_message(schema, body)
    _check_top_level(message.error_code, type(request).__name__)
    for found in message.node_endpoints:
        learn(int(found.node_id), found.host, int(found.port))
    if isinstance(request, FetchSnapshotRequest):
        names = [(topic.name, [part.index for part in topic.partitions]) for topic in message.topics]
    else:
        names = [
            (topic.topic_name, [part.partition_index for part in topic.partitions])
            for topic in message.topics
        ]
    if names != [(METADATA_TOPIC, [0])]:
        raise ResponseError(f"a {schema.__name__} has {names} and not {METADATA_TOPIC}-0")
    partition = message.topics[0].partitions[0]
    if isinstance(request, FetchSnapshotRequest):
        return _fetch_snapshot_response(request, partition)
    epoch, leader_id, error = partition.leader_epoch, partition.leader_id, partition.error_code
    if isinstance(request, VoteRequest):
        return VoteResponse(epoch, leader_id, partition.vote_granted, error)
    return EpochResponse(epoch, leader_id, error)


def _check_top_level(error: ErrorCode, request: str) -> None:
    if error is not ErrorCode.none:
        raise KafkaError(error, f"the other node rejects a {request}")


def _fetch_response(request: FetchRequest, message: fetch_codec.FetchResponse) -> FetchResponse:
    _check_top_level(_error_code(message.error_code), "FetchRequest")
    names = [(topic.topic_id, [part.index for part in topic.partitions]) for topic in message.topics]
    if names != [(METADATA_TOPIC_ID, [0])]:
        raise ResponseError(f"a response to Fetch has {names} and not partition 0 of {METADATA_TOPIC_ID}")
    partition = message.topics[0].partitions[0]
    if partition.current_leader is None:
        raise ResponseError("a response to Fetch of the metadata does not name the leader and its epoch")
    leader_id, epoch = partition.current_leader
    error = _error_code(partition.error_code)
    if error is not ErrorCode.none:
        return FetchResponse(epoch, leader_id, error=error)
    response = FetchResponse(epoch, leader_id, partition.high_watermark)
    if partition.diverging_epoch is not None and partition.diverging_epoch.epoch >= 0:
        diverging = OffsetAndEpoch(partition.diverging_epoch.end_offset, partition.diverging_epoch.epoch)
        return response._replace(diverging=_checked(diverging))
    if partition.snapshot_id is not None and max(partition.snapshot_id) >= 0:
        return response._replace(snapshot=_checked(OffsetAndEpoch(*partition.snapshot_id)))
    return response._replace(batches=_read_batches(request, _bytes(partition.records)))


def _bytes(records: Any) -> memoryview:
    return memoryview(b"") if records is None else memoryview(records)


def _error_code(value: int) -> ErrorCode:
    try:
        return ErrorCode(value)
    except ValueError:
        raise ResponseError(f"{value} is not an error code") from None


def _checked(end: OffsetAndEpoch) -> OffsetAndEpoch:
    if min(end) < 0:
        raise ResponseError(f"a response to Fetch has the negative offset or epoch {end}")
    return end


def _read_batches(request: FetchRequest, records: memoryview) -> tuple[ReplicatedBatch, ...]:
    """The batches of a response. The last one may be cut off, because the response has a maximum size.

    Raises KafkaError if one of them is damaged.
    """
    batches: list[ReplicatedBatch] = []
    position, epoch = 0, request.last_epoch
    while position + HEADER_SIZE <= len(records):
        header = read_header(records, position)
        end = position + header.size
        if header.magic != MAGIC or header.size < HEADER_SIZE:
            raise _damaged(header.base_offset, f"has magic {header.magic} and {header.size} bytes")
        if end > len(records):
            break
        if not crc_matches(records, position, header):
            raise _damaged(header.base_offset, "has a wrong CRC32C")
        if header.last_offset_delta < 0 or header.partition_leader_epoch < epoch:
            # The checksum does not cover offset and epoch, but both only grow along the log.
            raise _damaged(
                header.base_offset, f"ends at {header.last_offset} in epoch {header.partition_leader_epoch}"
            )
        epoch = header.partition_leader_epoch
        data = bytes(records[position:end])
        membership = membership_of_batch(data) if header.is_control else ()
        batches.append(ReplicatedBatch(header.base_offset, header.next_offset, epoch, data, membership))
        position = end
    if records and not batches:
        raise _damaged(request.offset, f"is not complete in the {len(records)} bytes of the response")
    return tuple(batches)


def _damaged(offset: int, what: str) -> KafkaError:
    return KafkaError(ErrorCode.corrupt_message, f"the batch at offset {offset} of {METADATA_TOPIC}-0 {what}")


def _fetch_snapshot_response(request: FetchSnapshotRequest, partition: Any) -> FetchSnapshotResponse:
    leader_id, epoch = partition.current_leader.leader_id, partition.current_leader.leader_epoch
    if partition.error_code is not ErrorCode.none:
        return FetchSnapshotResponse(epoch, leader_id, error=partition.error_code)
    snapshot = OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
    data = partition.unaligned_records or b""
    position, size = partition.position, partition.size
    if (snapshot, position) != (request.snapshot, request.position) or not 0 < len(data) <= size - position:
        raise ResponseError(
            f"{len(data)} bytes at position {position} of snapshot {snapshot}, which has {size} bytes, are no response "
            f"to a FetchSnapshot of {request.snapshot} from position {request.position}"
        )
    return FetchSnapshotResponse(epoch, leader_id, snapshot, size, position, data)
