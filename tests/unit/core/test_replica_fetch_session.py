"""The follower's side of fetch sessions, against the broker's side."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from ottla.core.fetch_session import FetchSessionCache
from ottla.core.replica_fetch_session import ReplicaFetchSession
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.fetch_codec import FetchPartition, FetchPartitionResponse

TOPIC, OTHER = UUID(int=7), UUID(int=8)


def partition(index: int, offset: int = 0) -> FetchPartition:
    return FetchPartition(index, 1, offset, 1, 0, 1000)


def test_the_first_fetch_names_all_partitions_and_the_next_only_those_that_changed() -> None:
    session = ReplicaFetchSession()
    session.put(TOPIC, partition(0))
    session.put(TOPIC, partition(1))
    first = session.next_fetch()
    assert (first.session_id, first.session_epoch) == (0, 0)
    assert [topic.partitions for topic in first.topics] == [[partition(0), partition(1)]]
    assert session.on_response(55, ErrorCode.none)
    session.put(TOPIC, partition(1, offset=9))
    session.put(TOPIC, partition(0))  # nothing new
    second = session.next_fetch()
    assert (second.session_id, second.session_epoch) == (55, 1)
    assert [topic.partitions for topic in second.topics] == [[partition(1, offset=9)]]


def test_a_removed_partition_is_forgotten_once() -> None:
    session = ReplicaFetchSession()
    session.put(TOPIC, partition(0))
    session.put(OTHER, partition(3))
    session.next_fetch()
    session.on_response(55, ErrorCode.none)
    session.remove(OTHER, 3)
    assert [(each.topic_id, each.partitions) for each in session.next_fetch().forgotten] == [(OTHER, [3])]
    session.on_response(55, ErrorCode.none)
    assert session.next_fetch().forgotten == []
    assert len(session) == 1
    assert (TOPIC, 0) in session


def test_a_partition_that_is_removed_while_a_full_fetch_is_on_its_way_is_forgotten() -> None:
    session = ReplicaFetchSession()
    session.put(TOPIC, partition(0))
    session.put(TOPIC, partition(1))
    session.next_fetch()
    session.remove(TOPIC, 0)
    session.on_response(77, ErrorCode.none)
    assert [(each.topic_id, each.partitions) for each in session.next_fetch().forgotten] == [(TOPIC, [0])]


def test_a_partition_that_is_removed_and_put_again_before_the_response_is_not_forgotten() -> None:
    session = ReplicaFetchSession()
    session.put(TOPIC, partition(0))
    session.next_fetch()
    session.remove(TOPIC, 0)
    session.put(TOPIC, partition(0, offset=4))
    session.on_response(77, ErrorCode.none)
    second = session.next_fetch()
    assert second.forgotten == []
    assert [topic.partitions for topic in second.topics] == [[partition(0, offset=4)]]


def test_after_a_failure_the_next_fetch_is_a_full_one_that_replaces_the_session() -> None:
    session = ReplicaFetchSession()
    session.put(TOPIC, partition(0))
    session.next_fetch()
    session.on_response(55, ErrorCode.none)
    session.next_fetch()
    session.on_failure()
    full = session.next_fetch()
    assert (full.session_id, full.session_epoch) == (55, 0)
    assert [topic.partitions for topic in full.topics] == [[partition(0)]]


def test_a_session_that_the_broker_has_evicted_is_opened_again() -> None:
    session = ReplicaFetchSession()
    session.put(TOPIC, partition(0))
    session.next_fetch()
    session.on_response(55, ErrorCode.none)
    session.next_fetch()
    assert not session.on_response(0, ErrorCode.fetch_session_id_not_found)
    full = session.next_fetch()
    assert (full.session_id, full.session_epoch, len(full.topics)) == (0, 0, 1)


def test_without_a_session_every_fetch_is_a_full_one() -> None:
    session = ReplicaFetchSession()
    session.put(TOPIC, partition(0))
    for _ in range(2):
        fetch = session.next_fetch()
        assert (fetch.session_id, fetch.session_epoch, len(fetch.topics)) == (0, 0, 1)
        assert session.on_response(0, ErrorCode.none)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 2), st.integers(0, 3)),
        st.tuples(st.just("remove"), st.integers(0, 2), st.just(0)),
        st.tuples(st.sampled_from(["request", "response"]), st.just(0), st.just(0)),
        st.tuples(st.sampled_from(["lost request", "lost response", "evict"]), st.just(0), st.just(0)),
    ),
    max_size=40,
)


@examples(300)
@given(STEPS)
def test_the_broker_reads_exactly_the_partitions_that_the_follower_has(
    steps: list[tuple[str, int, int]],
) -> None:
    session, wanted = ReplicaFetchSession(), dict[int, FetchPartition]()
    cache, random_id = FetchSessionCache(10), iter(range(1, 1000))
    in_flight: list[
        tuple[int, ErrorCode]
    ] = []  # the session id and the error of the response on its way, if any

    def request() -> None:
        if in_flight:
            return
        sent = session.next_fetch()
        try:
            context = cache.resolve(
                session_id=sent.session_id,
                session_epoch=sent.session_epoch,
                topics=sent.topics,
                forgotten=sent.forgotten,
                uses_topic_ids=True,
                is_follower=True,
                now_ms=0,
                random_id=next(random_id),
            )
        except KafkaError as error:
            in_flight.append((0, error.code))
            return
        read = {each.request.index: each.request for each in context.partitions}
        assert read == wanted
        response = context.respond(
            [(each, FetchPartitionResponse(each.request.index)) for each in context.partitions], 0
        )
        in_flight.append((response.session_id, ErrorCode.none))

    def respond() -> None:
        while in_flight:
            session_id, error = in_flight.pop()
            assert session.on_response(session_id, error) == (error is ErrorCode.none)

    for step, index, offset in steps:
        match step:
            case "put":
                wanted[index] = partition(index, offset)
                session.put(TOPIC, wanted[index])
            case "remove":
                wanted.pop(index, None)
                session.remove(TOPIC, index)
            case "request":
                request()
            case "response":
                respond()
            case "lost response" if in_flight:
                in_flight.clear()
                session.on_failure()
            case "lost request" if not in_flight:
                session.next_fetch()
                session.on_failure()
            case "evict":
                cache = FetchSessionCache(10)
    respond()
    request()


def test_without_a_session_a_partition_that_got_records_is_named_after_the_others() -> None:
    """The leader reads in the order of the request, and the first one may fill the response."""
    session, topics = ReplicaFetchSession(), (UUID(int=1), UUID(int=2))
    for topic_id in topics:
        for index in range(2):
            session.put(topic_id, FetchPartition(index, 0, 0, -1, 0, 1 << 20))
    read_first = []
    for offset in range(1, 5):
        first = session.next_fetch().topics[0]
        assert first.topic_id is not None
        index = first.partitions[0].index
        read_first.append((first.topic_id, index))
        session.on_response(0, ErrorCode.none)
        session.put(first.topic_id, FetchPartition(index, 0, offset, -1, 0, 1 << 20))
    assert read_first == [(topic_id, index) for topic_id in topics for index in range(2)]
