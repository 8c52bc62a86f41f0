"""Raft's messages on the wire: round trips in every version, with kio as the other side, and responses that lie."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader as kio_reader
from tests.examples import examples
from tests.unit.protocol.kio_oracle import MUTATIONS, kio_bytes, mutations

from ottla.broker.handlers import k54_end_quorum_epoch
from ottla.broker.quorum import wire_client, wire_server
from ottla.broker.quorum.wire_client import API_OF, Sender, decode_response, encode_request
from ottla.core.raft.log_state import OffsetAndEpoch
from ottla.core.raft.messages import (
    UNKNOWN_HIGH_WATERMARK,
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
from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.fetch_codec import decode_fetch_request, encode_fetch_response
from ottla.protocol.messages import decode_request, encode_response
from ottla.records.header import HEADER, HEADER_SIZE
from ottla.records.records import Record, build_batch
from ottla.rpc.client_protocol import ResponseError

SENDER = Sender("my-cluster", (VoterEndpoint("CONTROLLER", "host", 9093),), 1000, 2000)
ENDPOINT = VoterEndpoint("CONTROLLER", "leader", 9093)
RECEIVER = 2

epochs = st.integers(0, 2**31 - 1)
offsets = st.integers(0, 2**63 - 1)
ids = st.integers(0, 2**31 - 1)
leaders = st.integers(-1, 2**31 - 1)
errors = st.sampled_from([ErrorCode.fenced_leader_epoch, ErrorCode.not_leader_or_follower])
watermarks = st.integers(-1, 2**63 - 1)
ends = st.builds(OffsetAndEpoch, offsets, epochs)

REQUESTS: dict[type[Request], Any] = {
    VoteRequest: st.builds(VoteRequest, epochs, ids, ends, st.booleans()),
    BeginQuorumEpochRequest: st.builds(BeginQuorumEpochRequest, epochs, ids),
    EndQuorumEpochRequest: st.builds(
        EndQuorumEpochRequest, epochs, ids, st.lists(ids, max_size=4).map(tuple)
    ),
    FetchRequest: st.builds(FetchRequest, epochs, ids, offsets, epochs, watermarks),
    FetchSnapshotRequest: st.builds(FetchSnapshotRequest, epochs, ids, ends, offsets),
}
VERSIONS = [
    (kind, version)
    for kind, api in API_OF.items()
    for version in range(api.min_version, APIS[api.key].max_version + 1)
]
READERS: dict[ApiKey, Any] = {
    ApiKey.VOTE: wire_server.read_vote,
    ApiKey.BEGIN_QUORUM_EPOCH: wire_server.read_begin_quorum_epoch,
    ApiKey.END_QUORUM_EPOCH: wire_server.read_end_quorum_epoch,
    ApiKey.FETCH_SNAPSHOT: wire_server.read_fetch_snapshot,
}
BUILDERS: dict[ApiKey, Any] = {
    ApiKey.VOTE: wire_server.build_vote,
    ApiKey.BEGIN_QUORUM_EPOCH: wire_server.build_begin_quorum_epoch,
    ApiKey.END_QUORUM_EPOCH: wire_server.build_end_quorum_epoch,
    ApiKey.FETCH_SNAPSHOT: wire_server.build_fetch_snapshot,
}


def batch(offset: int, epoch: int = 3, values: int = 2) -> ReplicatedBatch:
    records = [Record(offset + index, 5, None, b"value %d" % index) for index in range(values)]
    return ReplicatedBatch(offset, offset + values, epoch, build_batch(records, leader_epoch=epoch))


def received(request: Request, version: int) -> tuple[Any, Any]:
    """The request as it was sent, and as the other side reads it."""
    body = memoryview(encode_request(SENDER, RECEIVER, request, version))
    key = API_OF[type(request)].key
    if key is ApiKey.FETCH:
        fetch = decode_fetch_request(body, version)
        return fetch, wire_server.read_fetch(fetch)
    as_sent, message = decode_request(key, version, body)
    return as_sent, READERS[key](message)


def sent_back(request: Request, response: Response, version: int) -> bytes:
    """The bytes of a response as the handlers build it."""
    key = API_OF[type(request)].key
    if isinstance(response, FetchResponse):
        parts = encode_fetch_response(wire_server.build_fetch(response, ENDPOINT, 0), version)
        return b"".join(bytes(part) for part in parts if not hasattr(part, "file"))
    return encode_response(key, version, BUILDERS[key](response, ENDPOINT))


def answered(request: Request, response: Response, version: int) -> Response:
    return decode_response(request, version, memoryview(sent_back(request, response, version)))


@pytest.mark.parametrize(("kind", "version"), VERSIONS)
def test_a_request_arrives_as_it_was_sent(kind: type[Request], version: int) -> None:
    @given(request=REQUESTS[kind])
    @examples(30)
    def check(request: Any) -> None:
        expected = request
        if kind is VoteRequest and version < wire_client.PRE_VOTE_FROM:
            expected = request._replace(is_pre_vote=False)
        if kind is FetchRequest and version < 18:
            expected = request._replace(high_watermark=UNKNOWN_HIGH_WATERMARK)
        as_sent, arrived = received(request, version)
        assert arrived == expected
        assert as_sent.cluster_id == "my-cluster"

    check()


@pytest.mark.parametrize(("kind", "version"), VERSIONS)
def test_kio_reads_our_requests_and_writes_the_same_bytes(kind: type[Request], version: int) -> None:
    @given(request=REQUESTS[kind])
    @examples(20)
    def check(request: Any) -> None:
        body = encode_request(SENDER, RECEIVER, request, version)
        message, size = kio_reader(load_request_schema(API_OF[kind].key, version))(body, 0)
        assert size == len(body)
        assert kio_bytes(message) == body

    check()


def test_a_fetch_has_the_fields_that_kafkas_leader_reads() -> None:
    body = encode_request(SENDER, RECEIVER, FetchRequest(4, 1, 70, 3, 60), 18)
    message: Any = kio_reader(load_request_schema(ApiKey.FETCH, 18))(body, 0)[0]
    assert message.cluster_id == "my-cluster"
    assert (message.replica_state.replica_id, message.replica_state.replica_epoch) == (1, -1)
    assert (message.max_wait, message.max_bytes) == (timedelta(milliseconds=500), 1000)
    assert (message.session_id, message.session_epoch) == (0, -1)
    (topic,) = message.topics
    (partition,) = topic.partitions
    assert topic.topic_id == METADATA_TOPIC_ID
    assert (partition.partition, partition.current_leader_epoch, partition.fetch_offset) == (0, 4, 70)
    assert (partition.last_fetched_epoch, partition.log_start_offset, partition.high_watermark) == (3, -1, 60)
    assert partition.replica_directory_id is None


def test_a_vote_names_its_receiver_and_an_announcement_the_leaders_address() -> None:
    vote, _ = received(VoteRequest(4, 1, OffsetAndEpoch(70, 3), True), 2)
    begin, _ = received(BeginQuorumEpochRequest(4, 1), 1)
    end, _ = received(EndQuorumEpochRequest(4, 1, (3, 2)), 1)
    assert vote.voter_id == begin.voter_id == RECEIVER
    for message in (begin, end):
        assert [(point.name, point.host, point.port) for point in message.leader_endpoints] == [
            ("CONTROLLER", "host", 9093)
        ]


@pytest.mark.parametrize("version", [0, 1])
def test_older_versions_of_requests_are_read(version: int) -> None:
    schema: Any = load_request_schema(ApiKey.END_QUORUM_EPOCH, 0)
    module: Any = __import__(schema.__module__, fromlist=["PartitionData"])
    partition = module.PartitionData(
        partition_index=0, leader_id=1, leader_epoch=4, preferred_successors=(3, 2)
    )
    topic = module.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,))
    body = memoryview(kio_bytes(schema(cluster_id=None, topics=(topic,))))
    if version == 1:
        body = memoryview(encode_request(SENDER, 2, EndQuorumEpochRequest(4, 1, (3, 2)), 1))
    as_sent, request = decode_request(ApiKey.END_QUORUM_EPOCH, version, body)
    lifted = k54_end_quorum_epoch.lift(request, as_sent, version)
    assert wire_server.read_end_quorum_epoch(lifted) == EndQuorumEpochRequest(4, 1, (3, 2))


BATCHES = st.integers(0, 5).map(lambda count: tuple(batch(10 + 2 * index) for index in range(count)))
FETCHES = st.one_of(
    st.tuples(epochs, leaders, errors).map(lambda parts: FetchResponse(*parts[:2], error=parts[2])),
    st.tuples(epochs, leaders, watermarks, ends).map(
        lambda parts: FetchResponse(*parts[:3], diverging=parts[3])
    ),
    st.tuples(epochs, leaders, watermarks, ends).map(
        lambda parts: FetchResponse(*parts[:3], snapshot=parts[3])
    ),
    st.tuples(epochs, leaders, watermarks, BATCHES).map(lambda parts: FetchResponse(*parts)),
)


@pytest.mark.parametrize(("kind", "version"), VERSIONS)
def test_a_response_arrives_as_it_was_sent(kind: type[Request], version: int) -> None:
    by_kind: dict[Any, Any] = {
        VoteRequest: (
            VoteRequest(5, 1, OffsetAndEpoch(1, 1), False),
            st.builds(VoteResponse, epochs, leaders, st.booleans(), st.just(ErrorCode.none) | errors),
        ),
        BeginQuorumEpochRequest: (
            BeginQuorumEpochRequest(5, 1),
            st.builds(EpochResponse, epochs, leaders, st.just(ErrorCode.none) | errors),
        ),
        EndQuorumEpochRequest: (
            EndQuorumEpochRequest(5, 1, (2,)),
            st.builds(EpochResponse, epochs, leaders, st.just(ErrorCode.none) | errors),
        ),
        FetchRequest: (FetchRequest(5, 1, 10, 3), FETCHES),
        FetchSnapshotRequest: (
            FetchSnapshotRequest(5, 1, OffsetAndEpoch(9, 2), 40),
            st.tuples(epochs, leaders, errors).map(
                lambda parts: FetchSnapshotResponse(*parts[:2], error=parts[2])
            )
            | st.tuples(
                epochs,
                leaders,
                st.just(OffsetAndEpoch(9, 2)),
                st.integers(100, 2**63 - 1),
                st.just(40),
                st.binary(min_size=1, max_size=60),
            ).map(lambda parts: FetchSnapshotResponse(*parts)),
        ),
    }
    request, responses = by_kind[kind]

    @given(response=responses)
    @examples(30)
    def check(response: Any) -> None:
        body = sent_back(request, response, version)
        read: tuple[Any, int] = kio_reader(load_response_schema(API_OF[kind].key, version))(body, 0)
        message, size = read
        assert size == len(body)
        assert decode_response(request, version, memoryview(body)) == response
        hints = [(point.node_id, point.host, point.port) for point in message.node_endpoints]
        assert hints == [(response.leader_id, "leader", 9093)]

    check()


FETCH = FetchRequest(5, 1, 10, 3)
FETCH_SNAPSHOT = FetchSnapshotRequest(5, 1, OffsetAndEpoch(9, 2), 40)


def fetch_response(**partition: Any) -> FetchResponse:
    """The response with this partition, as a follower reads it."""
    defaults: dict[str, Any] = {"index": 0, "current_leader": (2, 5)}
    data = fetch_codec.FetchPartitionResponse(**(defaults | partition))
    topics = [fetch_codec.FetchTopicResponse(None, METADATA_TOPIC_ID, [data])]
    message = fetch_codec.FetchResponse(0, 0, 0, topics)
    (body,) = encode_fetch_response(message, 18)
    response = decode_response(FETCH, 18, memoryview(body))  # type: ignore[arg-type]
    assert isinstance(response, FetchResponse)
    return response


@pytest.mark.parametrize("cut", [1, 11, HEADER_SIZE, HEADER_SIZE + 3])
def test_an_incomplete_last_batch_is_ignored(cut: int) -> None:
    whole, torn = batch(10), batch(12)
    assert fetch_response(records=whole.data + torn.data[:cut]).batches == (whole,)


@pytest.mark.parametrize("cut", [1, HEADER_SIZE, HEADER_SIZE + 3])
def test_a_response_without_a_whole_batch_is_an_error(cut: int) -> None:
    with pytest.raises(KafkaError, match="offset 10 of __cluster_metadata-0 is not complete"):
        fetch_response(records=batch(10).data[:cut])


def test_a_response_without_records_has_no_batches() -> None:
    assert fetch_response(records=b"").batches == fetch_response(records=None).batches == ()


@given(position=st.integers(12, len(batch(12).data) - 1), flipped=st.integers(1, 255))
@examples(100)
def test_a_damaged_batch_is_an_error(position: int, flipped: int) -> None:
    data = bytearray(batch(10).data + batch(12).data)
    if 8 <= position < 16:
        position = 16
    data[len(batch(10).data) + position] ^= flipped
    with pytest.raises(KafkaError, match="offset 12") as damaged:
        fetch_response(records=bytes(data) + batch(14).data)
    assert damaged.value.code is ErrorCode.corrupt_message


@pytest.mark.parametrize("magic", [0, 1, 3, -1])
def test_a_batch_of_another_format_is_an_error(magic: int) -> None:
    data = bytearray(batch(10).data)
    data[16] = magic & 0xFF
    with pytest.raises(KafkaError, match=f"has magic {magic}"):
        fetch_response(records=bytes(data))


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48])
def test_a_batch_with_an_impossible_length_is_an_error(length: int) -> None:
    fields = list(HEADER.unpack_from(batch(10).data))
    fields[1] = length
    with pytest.raises(KafkaError, match="bytes"):
        fetch_response(records=HEADER.pack(*fields) + batch(10).data[HEADER_SIZE:])


def test_a_batch_of_an_earlier_epoch_than_the_one_before_is_an_error() -> None:
    with pytest.raises(KafkaError, match="offset 12"):
        fetch_response(records=batch(10, 4).data + batch(12, 3).data)
    with pytest.raises(KafkaError, match="offset 10"):
        fetch_response(records=batch(10, FETCH.last_epoch - 1).data)


@pytest.mark.parametrize("diverging", [(3, -1), (0, -(2**63))])
def test_a_divergence_at_a_negative_offset_is_an_error(diverging: tuple[int, int]) -> None:
    with pytest.raises(ResponseError):
        fetch_response(diverging_epoch=diverging)


@pytest.mark.parametrize("snapshot", [(-1, 3), (7, -1)])
def test_half_a_snapshot_id_is_an_error(snapshot: tuple[int, int]) -> None:
    with pytest.raises(ResponseError):
        fetch_response(snapshot_id=snapshot)


def test_default_values_of_tagged_fields_mean_that_they_are_not_set() -> None:
    response = fetch_response(diverging_epoch=(-1, -1), snapshot_id=(-1, -1))
    assert (response.diverging, response.snapshot) == (None, None)


def test_a_response_to_fetch_without_a_leader_is_an_error() -> None:
    with pytest.raises(ResponseError, match="does not name the leader"):
        fetch_response(current_leader=None)
    with pytest.raises(ResponseError, match="not an error code"):
        fetch_response(error_code=29_999)


@pytest.mark.parametrize(
    "change",
    [
        {"snapshot": OffsetAndEpoch(9, 3)},
        {"position": 41},
        {"data": b""},
        {"size": 30},
        {"size": -1},
    ],
)
def test_a_piece_of_a_snapshot_that_was_not_asked_for_is_an_error(change: dict[str, Any]) -> None:
    response = FetchSnapshotResponse(5, 2, OffsetAndEpoch(9, 2), 100, 40, b"bytes")
    assert answered(FETCH_SNAPSHOT, response, 1) == response
    with pytest.raises(ResponseError):
        answered(FETCH_SNAPSHOT, response._replace(**change), 1)


SAMPLES: list[tuple[Request, Response]] = [
    (VoteRequest(5, 1, OffsetAndEpoch(1, 1), True), VoteResponse(5, 2, True)),
    (BeginQuorumEpochRequest(5, 1), EpochResponse(5, 1)),
    (EndQuorumEpochRequest(5, 1, (2, 3)), EpochResponse(5, 1)),
    (FETCH, FetchResponse(5, 2, 8, (batch(10), batch(12)))),
    (FETCH_SNAPSHOT, FetchSnapshotResponse(5, 2, OffsetAndEpoch(9, 2), 100, 40, b"bytes")),
]
NAMES = [type(request).__name__ for request, _ in SAMPLES]


@pytest.mark.parametrize(("request_", "response"), SAMPLES, ids=NAMES)
def test_an_error_of_the_whole_request_is_raised(request_: Request, response: Response) -> None:
    key = API_OF[type(request_)].key
    version = APIS[key].max_version
    error = ErrorCode.inconsistent_cluster_id
    if key is ApiKey.FETCH:
        (body,) = encode_fetch_response(fetch_codec.FetchResponse(0, int(error), 0, []), version)
        raw = bytes(body)  # type: ignore[arg-type]
    else:
        schema: Any = load_response_schema(key, version)
        more = {"throttle_time": timedelta()} if key is ApiKey.FETCH_SNAPSHOT else {}
        raw = kio_bytes(schema(error_code=error, topics=(), **more))
    with pytest.raises(KafkaError) as raised:
        decode_response(request_, version, memoryview(raw))
    assert raised.value.code is error


@pytest.mark.parametrize(("request_", "response"), SAMPLES, ids=NAMES)
def test_a_response_for_another_partition_is_an_error(request_: Request, response: Response) -> None:
    version = APIS[API_OF[type(request_)].key].max_version
    body = sent_back(request_, response, version)
    elsewhere = body.replace(METADATA_TOPIC.encode(), METADATA_TOPIC.upper().encode())
    elsewhere = elsewhere.replace(METADATA_TOPIC_ID.bytes, bytes(16))
    assert elsewhere != body
    with pytest.raises(ResponseError):
        decode_response(request_, version, memoryview(elsewhere))


@pytest.mark.parametrize(("request_", "response"), SAMPLES, ids=NAMES)
def test_garbage_is_an_error_and_never_another_exception(request_: Request, response: Response) -> None:
    version = APIS[API_OF[type(request_)].key].max_version
    body = sent_back(request_, response, version)

    @given(damaged=mutations(body) | st.binary(max_size=100).map(lambda raw: memoryview(raw)))
    @MUTATIONS
    def check(damaged: memoryview) -> None:
        try:
            decode_response(request_, version, damaged)
        except (KafkaError, OSError):
            pass

    check()


@pytest.mark.parametrize("kind", list(READERS))
def test_requests_for_other_partitions_are_not_read(kind: ApiKey) -> None:
    request = next(request for request, _ in SAMPLES if API_OF[type(request)].key is kind)
    version = APIS[kind].max_version
    _, message = decode_request(kind, version, memoryview(encode_request(SENDER, RECEIVER, request, version)))
    (topic,) = message.topics
    (partition,) = topic.partitions
    name = "name" if kind is ApiKey.FETCH_SNAPSHOT else "topic_name"
    index = "partition" if kind is ApiKey.FETCH_SNAPSHOT else "partition_index"

    for topics in (
        (),
        (topic, topic),
        (replace(topic, partitions=()),),
        (replace(topic, partitions=(partition, partition)),),
        (replace(topic, **{name: "other"}),),
        (replace(topic, partitions=(replace(partition, **{index: 1}),)),),
    ):
        assert READERS[kind](replace(message, topics=topics)) is None


def test_fetches_of_other_partitions_are_not_read() -> None:
    request = decode_fetch_request(memoryview(encode_request(SENDER, RECEIVER, FETCH, 18)), 18)
    (topic,) = request.topics
    (partition,) = topic.partitions
    for topics in (
        [],
        [topic, topic],
        [topic._replace(partitions=[])],
        [topic._replace(partitions=[partition, partition])],
        [topic._replace(topic_id=None)],
        [topic._replace(partitions=[partition._replace(index=1)])],
    ):
        assert wire_server.read_fetch(request._replace(topics=topics)) is None
