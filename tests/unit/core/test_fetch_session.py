"""KIP-227: incremental fetches, and the eviction of sessions."""

import gc
import weakref
from collections.abc import Iterable
from uuid import UUID

import pytest

from ottla.core.fetch_session import FetchContext, FetchSessionCache, SessionResponse
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.region import FileRegion
from ottla.protocol.fetch_codec import (
    EpochEndOffset,
    FetchPartition,
    FetchPartitionResponse,
    FetchTopic,
    ForgottenTopic,
)

TOPIC_ID = UUID(int=77)
OTHER_ID = UUID(int=78)


def asked(index: int, offset: int = 0) -> FetchPartition:
    return FetchPartition(index, -1, offset, -1, -1, 1000)


def topic(name: str, *indexes: int, offset: int = 0) -> FetchTopic:
    return FetchTopic(name, None, [asked(index, offset) for index in indexes])


def resolve(
    cache: FetchSessionCache,
    session_id: int,
    epoch: int,
    topics: Iterable[FetchTopic] = (),
    forgotten: Iterable[ForgottenTopic] = (),
    *,
    uses_topic_ids: bool = False,
    is_follower: bool = False,
    now_ms: int = 0,
    random_id: int = 1234,
) -> FetchContext:
    return cache.resolve(
        session_id=session_id,
        session_epoch=epoch,
        topics=list(topics),
        forgotten=list(forgotten),
        uses_topic_ids=uses_topic_ids,
        is_follower=is_follower,
        now_ms=now_ms,
        random_id=random_id,
    )


def partition_response(index: int, **fields: object) -> FetchPartitionResponse:
    values: dict[str, object] = {
        "high_watermark": 10,
        "last_stable_offset": 10,
        "log_start_offset": 0,
        **fields,
    }
    return FetchPartitionResponse(index, **values)  # type: ignore[arg-type]


def respond(
    context: FetchContext, changed: Iterable[FetchPartitionResponse] = (), now_ms: int = 0
) -> SessionResponse:
    """Partitions that are not in `changed` have no news."""
    by_index = {response.index: response for response in changed}
    results = [
        (partition, by_index.get(partition.request.index) or partition_response(partition.request.index))
        for partition in context.partitions
    ]
    return context.respond(results, now_ms)


def order(context: FetchContext) -> list[int]:
    return [partition.request.index for partition in context.partitions]


def included(response: SessionResponse) -> list[int]:
    return [partition.index for topic in response.topics for partition in topic.partitions]


def opened(cache: FetchSessionCache, *indexes: int, **options: object) -> int:
    context = resolve(cache, 0, 0, [topic("t", *indexes)], **options)  # type: ignore[arg-type]
    return respond(context, now_ms=int(options.get("now_ms", 0))).session_id  # type: ignore[call-overload]


def error_of(
    cache: FetchSessionCache, session_id: int, epoch: int, *, uses_topic_ids: bool = False
) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        resolve(cache, session_id, epoch, uses_topic_ids=uses_topic_ids)
    return caught.value.code


def test_a_fetch_with_the_final_epoch_gets_a_full_response_without_a_session() -> None:
    cache = FetchSessionCache()
    context = resolve(cache, 0, -1, [topic("t", 2, 0), topic("u", 1)])
    assert order(context) == [2, 0, 1]
    response = respond(context)
    assert response.session_id == 0
    assert [(entry.name, len(entry.partitions)) for entry in response.topics] == [("t", 2), ("u", 1)]
    assert len(cache) == 0


def test_a_fetch_with_the_initial_epoch_gets_a_full_response_and_a_session() -> None:
    cache = FetchSessionCache()
    response = respond(resolve(cache, 0, 0, [topic("t", 0, 1)]))
    assert response.session_id == 1234
    assert included(response) == [0, 1]
    assert len(cache) == 1


def test_an_incremental_fetch_reads_all_partitions_and_returns_only_news() -> None:
    cache = FetchSessionCache()
    session_id = opened(cache, 0, 1, 2)
    context = resolve(cache, session_id, 1)
    assert order(context) == [0, 1, 2]
    response = respond(context)
    assert response == SessionResponse(session_id, [])


@pytest.mark.parametrize(
    "news",
    [
        {"records": b"bytes"},
        {"records": FileRegion(None, 0, 1)},  # type: ignore[arg-type]
        {"high_watermark": 11},
        {"log_start_offset": 1},
        {"error_code": 3, "high_watermark": -1},
        {"preferred_read_replica": 2},
        {"diverging_epoch": EpochEndOffset(1, 2)},
    ],
)
def test_a_partition_with_news_is_in_the_response(news: dict[str, object]) -> None:
    cache = FetchSessionCache()
    session_id = opened(cache, 0, 1, 2)
    response = respond(resolve(cache, session_id, 1), [partition_response(1, **news)])
    assert included(response) == [1]


@pytest.mark.parametrize("records", [None, b"", FileRegion(None, 5, 0)])  # type: ignore[arg-type]
def test_empty_records_are_not_sent(records: object) -> None:
    cache = FetchSessionCache()
    session_id = opened(cache, 0)
    assert included(respond(resolve(cache, session_id, 1), [partition_response(0, records=records)])) == []


def test_a_new_high_watermark_is_sent_once() -> None:
    cache = FetchSessionCache()
    session_id = opened(cache, 0)
    for epoch, expected in ((1, [0]), (2, [])):
        response = respond(resolve(cache, session_id, epoch), [partition_response(0, high_watermark=11)])
        assert included(response) == expected


def test_after_an_error_the_partition_is_in_the_response_again_when_the_error_is_gone() -> None:
    cache = FetchSessionCache()
    session_id = opened(cache, 0)
    assert included(respond(resolve(cache, session_id, 1), [partition_response(0, error_code=6)])) == [0]
    assert included(respond(resolve(cache, session_id, 2))) == [0]
    assert included(respond(resolve(cache, session_id, 3))) == []


def test_after_a_diverging_epoch_the_high_watermark_is_sent_again() -> None:
    """A follower ignores that of the response: its log may not be the leader's up to there before it has truncated."""
    cache = FetchSessionCache()
    session_id = opened(cache, 0)
    diverged = partition_response(0, diverging_epoch=EpochEndOffset(3, 5))
    assert included(respond(resolve(cache, session_id, 1), [diverged])) == [0]
    assert included(respond(resolve(cache, session_id, 2))) == [0]
    assert included(respond(resolve(cache, session_id, 3))) == []


def test_partitions_that_returned_records_go_to_the_end_so_that_none_starves() -> None:
    cache = FetchSessionCache()
    session_id = opened(cache, 0, 1, 2, 3)
    respond(
        resolve(cache, session_id, 1),
        [partition_response(0, records=b"x"), partition_response(2, records=b"x")],
    )
    context = resolve(cache, session_id, 2)
    assert order(context) == [1, 3, 0, 2]
    respond(context, [partition_response(1, high_watermark=99)])  # news without records moves nothing
    assert order(resolve(cache, session_id, 3)) == [1, 3, 0, 2]


def test_a_request_changes_adds_and_forgets_partitions_of_its_session() -> None:
    cache = FetchSessionCache()
    session_id = opened(cache, 0, 1)
    context = resolve(
        cache,
        session_id,
        1,
        [topic("t", 1, 5, offset=42)],
        [ForgottenTopic("t", None, [0, 9]), ForgottenTopic("x", None, [0])],
    )
    assert [
        (partition.request.index, partition.request.fetch_offset) for partition in context.partitions
    ] == [
        (1, 42),
        (5, 42),
    ]
    assert included(respond(context)) == [5]


def test_the_same_index_of_two_topics_is_two_partitions() -> None:
    cache = FetchSessionCache()
    respond(resolve(cache, 0, 0, [topic("t", 0), topic("u", 0), topic("t", 1)]))
    context = resolve(cache, 1234, 1, forgotten=[ForgottenTopic("t", None, [0])])
    assert [(partition.topic.name, partition.request.index) for partition in context.partitions] == [
        ("u", 0),
        ("t", 1),
    ]


def test_a_session_that_forgets_all_its_partitions_is_closed() -> None:
    cache = FetchSessionCache()
    session_id = opened(cache, 0)
    context = resolve(cache, session_id, 1, forgotten=[ForgottenTopic("t", None, [0])])
    assert respond(context) == SessionResponse(0, [])
    assert error_of(cache, session_id, 2) is ErrorCode.fetch_session_id_not_found


def test_an_unknown_session_is_rejected() -> None:
    assert error_of(FetchSessionCache(), 5, 1) is ErrorCode.fetch_session_id_not_found


@pytest.mark.parametrize("epoch", [2, 7])
def test_a_session_accepts_only_the_epoch_that_follows(epoch: int) -> None:
    cache = FetchSessionCache()
    session_id = opened(cache, 0)
    assert error_of(cache, session_id, epoch) is ErrorCode.invalid_fetch_session_epoch
    respond(resolve(cache, session_id, 1))
    assert error_of(cache, session_id, 1) is ErrorCode.invalid_fetch_session_epoch


def test_the_epoch_after_the_largest_is_one() -> None:
    cache = FetchSessionCache()
    session_id = opened(cache, 0)
    cache._sessions[session_id].epoch = 2**31 - 1
    respond(resolve(cache, session_id, 2**31 - 1))
    respond(resolve(cache, session_id, 1))


def test_a_request_that_the_next_one_has_overtaken_gets_an_error() -> None:
    cache = FetchSessionCache()
    session_id = opened(cache, 0)
    slow = resolve(cache, session_id, 1)
    resolve(cache, session_id, 2)
    with pytest.raises(KafkaError) as caught:
        respond(slow)
    assert caught.value.code is ErrorCode.invalid_fetch_session_epoch


def test_a_session_with_names_rejects_topic_ids_and_vice_versa() -> None:
    cache = FetchSessionCache()
    by_name = opened(cache, 0)
    assert error_of(cache, by_name, 1, uses_topic_ids=True) is ErrorCode.fetch_session_topic_id_error
    ids = [FetchTopic(None, TOPIC_ID, [asked(0)])]
    by_id = respond(resolve(cache, 0, 0, ids, uses_topic_ids=True)).session_id
    assert error_of(cache, by_id, 1, uses_topic_ids=False) is ErrorCode.fetch_session_topic_id_error


def test_with_topic_ids_partitions_are_distinguished_by_id() -> None:
    cache = FetchSessionCache()
    topics = [FetchTopic(None, TOPIC_ID, [asked(0)]), FetchTopic(None, OTHER_ID, [asked(0)])]
    session_id = respond(resolve(cache, 0, 0, topics, uses_topic_ids=True)).session_id
    equal_id = UUID(int=77)
    context = resolve(
        cache, session_id, 1, forgotten=[ForgottenTopic(None, equal_id, [0])], uses_topic_ids=True
    )
    assert [partition.topic.topic_id for partition in context.partitions] == [OTHER_ID]


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_full_fetch_closes_the_session_whose_id_it_carries(epoch: int) -> None:
    cache = FetchSessionCache()
    session_id = opened(cache, 0)
    resolve(cache, session_id, epoch, [topic("t", 0)])
    assert error_of(cache, session_id, 1) is ErrorCode.fetch_session_id_not_found


def test_session_ids_are_positive_and_unique_for_any_random_number() -> None:
    cache = FetchSessionCache()
    ids = [opened(cache, 0, random_id=random_id) for random_id in (0, -5, 2**31 - 1, 2**31 - 1, 7, 7, 7)]
    assert len(set(ids)) == len(ids)
    assert all(0 < session_id < 2**31 for session_id in ids)


def test_a_full_cache_without_a_less_valuable_session_opens_no_session() -> None:
    cache = FetchSessionCache(max_sessions=1, min_eviction_ms=1000)
    session_id = opened(cache, 0)
    assert opened(cache, 0, 1, 2) == 0
    respond(resolve(cache, session_id, 1))


def test_without_slots_no_session_is_opened() -> None:
    assert opened(FetchSessionCache(max_sessions=0), 0) == 0


def test_a_session_that_was_not_used_for_the_eviction_time_is_evicted() -> None:
    cache = FetchSessionCache(max_sessions=2, min_eviction_ms=1000)
    used = opened(cache, 0, random_id=2)
    stale = opened(cache, *range(9), random_id=1)
    respond(resolve(cache, used, 1, now_ms=900))
    assert opened(cache, 0, random_id=3, now_ms=1000) == 0
    assert opened(cache, 0, random_id=3, now_ms=1001) == 3
    assert error_of(cache, stale, 1) is ErrorCode.fetch_session_id_not_found
    respond(resolve(cache, used, 2, now_ms=1001))
    assert cache.evictions == 1


def test_a_followers_session_evicts_a_consumers_session_of_any_age_but_not_vice_versa() -> None:
    cache = FetchSessionCache(max_sessions=1, min_eviction_ms=1000)
    consumer = opened(cache, *range(9), random_id=1)
    follower = opened(cache, 0, random_id=2, is_follower=True)
    assert follower == 2
    assert error_of(cache, consumer, 1) is ErrorCode.fetch_session_id_not_found
    assert opened(cache, *range(9), random_id=3) == 0
    assert opened(cache, *range(9), random_id=3, is_follower=True) == 0


def test_a_session_with_more_partitions_evicts_the_smallest_that_is_old_enough() -> None:
    cache = FetchSessionCache(max_sessions=2, min_eviction_ms=1000)
    small, large = opened(cache, 0, 1, random_id=1), opened(cache, 0, 1, 2, random_id=2)
    for session_id in (small, large):  # both in use, and alive for longer than the eviction time
        respond(resolve(cache, session_id, 1, now_ms=1001))
    assert opened(cache, 0, random_id=3, now_ms=1002) == 0
    assert opened(cache, 0, 1, random_id=3, now_ms=1002) == 0  # no larger than the smallest
    assert opened(cache, 0, 1, 2, random_id=3, now_ms=1002) == 3
    assert error_of(cache, small, 2) is ErrorCode.fetch_session_id_not_found
    respond(resolve(cache, large, 2, now_ms=1002))


def test_a_session_that_grows_becomes_more_valuable() -> None:
    cache = FetchSessionCache(max_sessions=2, min_eviction_ms=1000)
    first, second = opened(cache, 0, random_id=1), opened(cache, 0, 1, random_id=2)
    respond(resolve(cache, second, 1, now_ms=1001))
    respond(resolve(cache, first, 1, [topic("t", 5, 6, 7)], now_ms=1001))
    assert opened(cache, 0, 1, 2, random_id=3, now_ms=1002) == 3
    assert error_of(cache, second, 2) is ErrorCode.fetch_session_id_not_found
    respond(resolve(cache, first, 2, now_ms=1002))


def grow(cache: FetchSessionCache, session_id: int, epoch: int, *indexes: int, now_ms: int = 0) -> None:
    respond(resolve(cache, session_id, epoch, [topic("t", *indexes)], now_ms=now_ms), now_ms=now_ms)


def test_the_cache_counts_topics_and_partitions_of_all_sessions() -> None:
    cache = FetchSessionCache()
    first, second = opened(cache, 0, 1), opened(cache, 0, 1, 2)
    assert cache.entries == (1 + 2) + (1 + 3)
    grow(cache, first, 1, 7)
    assert cache.entries == (1 + 3) + (1 + 3)
    respond(resolve(cache, first, 2, forgotten=[ForgottenTopic("t", None, [0, 1, 7])]))
    assert cache.entries == 1 + 3
    respond(resolve(cache, second, -1))
    assert cache.entries == 0


def test_a_session_without_room_is_not_opened_even_if_the_others_are_large() -> None:
    cache = FetchSessionCache(max_entries=10)
    small = opened(cache, 0)
    grow(cache, small, 1, 0, now_ms=129_000)
    assert opened(cache, *range(8), now_ms=130_000) == 0, "it is smaller and old, but a client uses it"
    assert opened(cache, *range(10)) == 0
    assert len(cache) == 1
    assert opened(cache, *range(7)) != 0
    grow(cache, small, 2, 0)


def test_unused_sessions_are_evicted_until_the_partitions_fit() -> None:
    cache = FetchSessionCache(max_entries=10)
    old = [opened(cache, 0, 1), opened(cache, 0, 1), opened(cache, 0, 1)]
    grow(cache, old[2], 1, 0, now_ms=50_000)
    assert opened(cache, *range(6), now_ms=130_000, random_id=99) == 99
    assert [error_of(cache, session_id, 1) for session_id in old[:2]] == [
        ErrorCode.fetch_session_id_not_found
    ] * 2
    assert cache.entries == 3 + 7
    assert cache.evictions == 2


def test_sessions_of_consumers_are_evicted_for_the_memory_of_a_followers_session() -> None:
    cache = FetchSessionCache(max_entries=10)
    opened(cache, 0, 1)
    follower = opened(cache, 0, is_follower=True)
    assert opened(cache, *range(6), is_follower=True) != 0
    assert len(cache) == 2
    assert cache.entries == 2 + 7
    assert opened(cache, 0, is_follower=True) == 0, "sessions of followers are not evicted for each other"
    grow(cache, follower, 1, 0)


def test_a_session_that_outgrows_the_memory_is_closed() -> None:
    cache = FetchSessionCache(max_entries=10)
    other, growing = opened(cache, 0, 1), opened(cache, 0)
    with pytest.raises(KafkaError, match="has grown to 8 partitions") as rejected:
        resolve(cache, growing, 1, [topic("t", *range(8))])
    assert rejected.value.code is ErrorCode.fetch_session_id_not_found
    assert error_of(cache, growing, 2) is ErrorCode.fetch_session_id_not_found
    assert cache.entries == 3
    grow(cache, other, 1, 0)


@pytest.mark.parametrize("max_entries", [0, 10])
def test_a_closed_session_is_freed_without_the_garbage_collector(max_entries: int) -> None:
    cache = FetchSessionCache(max_entries=max_entries)
    context = resolve(cache, 0, 0, [topic("t", 0, 1)])
    of_session = weakref.ref(next(iter(context.partitions)).topic)
    gc.disable()
    try:
        session_id = respond(context).session_id
        del context
        if session_id:
            assert of_session() is not None
            respond(resolve(cache, session_id, -1))
        assert of_session() is None
    finally:
        gc.enable()
