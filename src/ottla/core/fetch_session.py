"""Fetch sessions (KIP-227): a client names its partitions once, then only what changes; so does the broker.

A fetch without a session is answered whole. One that opens a session (epoch 0) is answered whole and
remembered. An incremental one (epoch 1, 2, ...) carries the differences, and its answer leaves out every
partition about which there is nothing new.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_OFFSET
from ottla.model.region import FileRegion
from ottla.protocol.fetch_codec import (
    FetchPartition,
    FetchPartitionResponse,
    FetchTopic,
    FetchTopicResponse,
    ForgottenTopic,
)

NO_SESSION_ID = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
SESSION_ID_MAX = EPOCH_MAX = 0x7FFFFFFF

# Topics and partitions of all sessions together. One takes about 500 bytes, so that they take 100 MB at most.
ENTRIES_MAX = 200_000


class SessionTopic:
    """A topic as the client names it: by name up to version 12 of Fetch, by id from 13."""

    __slots__ = ("__weakref__", "name", "partitions", "topic_id")

    def __init__(self, name: str | None, topic_id: UUID | None) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: dict[int, SessionPartition] = {}


class SessionPartition:
    """One partition to read: what the client asks of it, and what it was last told.

    `found` is the reader's: where it found the partition, so that it need not look it up with every fetch.
    """

    __slots__ = ("found", "high_watermark", "log_start_offset", "request", "topic")

    def __init__(self, topic: SessionTopic, request: FetchPartition) -> None:
        self.topic = topic
        self.request = request
        self.found: Any = None
        self.high_watermark = NO_OFFSET
        self.log_start_offset = NO_OFFSET

    def note(self, response: FetchPartitionResponse) -> bool:
        """Remembers what the client is told; whether there is anything in it that it does not know yet."""
        has_news = (
            response.high_watermark != self.high_watermark
            or response.log_start_offset != self.log_start_offset
            or response.error_code != 0
            or response.preferred_read_replica >= 0
            or response.diverging_epoch is not None
            or has_records(response)
        )
        if has_news:
            # After an error the client must hear of the partition again, even if nothing else has changed.
            self.high_watermark = response.high_watermark if response.error_code == 0 else NO_OFFSET
            self.log_start_offset = response.log_start_offset
        return has_news


PartitionResult = tuple[SessionPartition, FetchPartitionResponse]


class SessionResponse(NamedTuple):
    session_id: int
    topics: list[FetchTopicResponse]


class FetchContext(ABC):
    """One fetch request: what to read, in which order, and how to answer it."""

    @property
    @abstractmethod
    def partitions(self) -> Collection[SessionPartition]:
        """In the order in which they are to be read."""

    @abstractmethod
    def respond(self, results: Sequence[PartitionResult], now_ms: int) -> SessionResponse:
        """The response to send, from a result for each of `partitions`. To be called once."""


class SessionlessContext(FetchContext):
    def __init__(self, topics: Iterable[FetchTopic]) -> None:
        self._partitions: list[SessionPartition] = []
        for topic in topics:
            session_topic = SessionTopic(topic.name, topic.topic_id)
            self._partitions += [SessionPartition(session_topic, request) for request in topic.partitions]

    @property
    def partitions(self) -> Collection[SessionPartition]:
        return self._partitions

    def respond(self, results: Sequence[PartitionResult], now_ms: int) -> SessionResponse:
        return SessionResponse(NO_SESSION_ID, _by_topic(results))


class FetchSession:
    """What one client fetches. Partitions that returned records go to the end, so that none starves."""

    __slots__ = (
        "created_ms",
        "entries",
        "epoch",
        "evictable_by_all",
        "evictable_by_privileged",
        "eviction_key",
        "is_privileged",
        "last_used_ms",
        "partitions",
        "session_id",
        "topics",
        "uses_topic_ids",
    )

    def __init__(self, *, uses_topic_ids: bool, is_privileged: bool) -> None:
        self.session_id = NO_SESSION_ID
        self.epoch = INITIAL_EPOCH + 1
        self.uses_topic_ids = uses_topic_ids
        self.is_privileged = is_privileged
        self.topics: dict[str | UUID | None, SessionTopic] = {}
        # In reading order; a dict, because a partition goes to the end after each answer with records.
        self.partitions: dict[SessionPartition, None] = {}
        self.entries = 0  # as the cache has counted them
        self.created_ms = self.last_used_ms = 0
        self.eviction_key = (is_privileged, 0, NO_SESSION_ID)
        self.evictable_by_all = self.evictable_by_privileged = False

    def count_entries(self) -> int:
        return len(self.topics) + len(self.partitions)

    def update(self, topics: Iterable[FetchTopic], forgotten: Iterable[ForgottenTopic]) -> None:
        for topic in topics:
            key = topic.topic_id if self.uses_topic_ids else topic.name
            session_topic = self.topics.get(key)
            if session_topic is None:
                session_topic = self.topics[key] = SessionTopic(topic.name, topic.topic_id)
            for request in topic.partitions:
                partition = session_topic.partitions.get(request.index)
                if partition is None:
                    partition = SessionPartition(session_topic, request)
                    session_topic.partitions[request.index] = partition
                    self.partitions[partition] = None
                else:
                    partition.request = request
        for gone in forgotten:
            self._forget(gone)

    def _forget(self, gone: ForgottenTopic) -> None:
        key = gone.topic_id if self.uses_topic_ids else gone.name
        topic = self.topics.get(key)
        if topic is None:
            return
        for index in gone.partitions:
            partition = topic.partitions.pop(index, None)
            if partition is not None:
                del self.partitions[partition]
        if not topic.partitions:
            del self.topics[key]

    def dissolve(self) -> None:
        """Ends the session. Topics and partitions know each other: without this only a collector frees them.

        A request that is still at work reads the partitions as they are.
        """
        for topic in self.topics.values():
            topic.partitions.clear()
        self.topics.clear()

    def move_to_end(self, partition: SessionPartition) -> None:
        del self.partitions[partition]
        self.partitions[partition] = None


def prepare_whole_fetch(
    session_epoch: int, topics: Sequence[FetchTopic], *, uses_topic_ids: bool, is_follower: bool
) -> FetchSession | SessionlessContext | None:
    """What `FetchSessionCache.resolve` makes of a whole fetch; None for an incremental one. Safe in any thread."""
    if session_epoch == FINAL_EPOCH:
        return SessionlessContext(topics)
    if session_epoch != INITIAL_EPOCH:
        return None
    session = FetchSession(uses_topic_ids=uses_topic_ids, is_privileged=is_follower)
    session.update(topics, ())
    return session


class FullContext(FetchContext):
    """A whole fetch that opens a session, if the cache has room for it."""

    def __init__(self, cache: "FetchSessionCache", session: FetchSession, random_id: int) -> None:
        self._cache = cache
        self._session = session
        self._random_id = random_id

    @property
    def partitions(self) -> Collection[SessionPartition]:
        return self._session.partitions

    def respond(self, results: Sequence[PartitionResult], now_ms: int) -> SessionResponse:
        for partition, response in results:
            partition.note(response)
        session_id = self._cache.add(self._session, now_ms, self._random_id)
        if session_id == NO_SESSION_ID:
            self._session.dissolve()
        return SessionResponse(session_id, _by_topic(results))


class IncrementalContext(FetchContext):
    def __init__(self, session: FetchSession) -> None:
        self._session = session
        self._epoch = session.epoch

    @property
    def partitions(self) -> Collection[SessionPartition]:
        return self._session.partitions

    def respond(self, results: Sequence[PartitionResult], now_ms: int) -> SessionResponse:
        session = self._session
        if session.epoch != self._epoch:
            raise KafkaError(
                ErrorCode.invalid_fetch_session_epoch,
                f"fetch session {session.session_id} went on to epoch {session.epoch} before epoch "
                f"{self._epoch} was answered: the client sent a request twice",
            )
        news = []
        for result in results:
            partition, response = result
            if partition.note(response):
                news.append(result)
                if has_records(response):
                    session.move_to_end(partition)
        return SessionResponse(session.session_id, _by_topic(news))


class FetchSessionCache:
    """A bounded number of sessions. A new one may take the place of a less valuable one:

    of one not used for `min_eviction_ms`; else of a consumer's, if it is a follower's (privileged) itself; else
    of one with fewer partitions that has lived for `min_eviction_ms`.

    Their memory is bounded too, which Kafka leaves to its heap. Sessions that nobody uses make room, and a consumer's
    for a follower's; a small one not for a large one, or a single client could push out all the others.
    """

    def __init__(
        self, max_sessions: int = 1000, min_eviction_ms: int = 120_000, max_entries: int = ENTRIES_MAX
    ) -> None:
        self.max_sessions = max_sessions
        self.min_eviction_ms = min_eviction_ms
        self.max_entries = max_entries
        self.entries = 0
        self.evictions = 0
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()  # least recently used first
        # Least valuable first. Lists kept in order: they change only when a session's size or age class does.
        self._evictable_by_all: list[tuple[bool, int, int]] = []
        self._evictable_by_privileged: list[tuple[bool, int, int]] = []

    def __len__(self) -> int:
        return len(self._sessions)

    def resolve(
        self,
        *,
        session_id: int,
        session_epoch: int,
        topics: Sequence[FetchTopic],
        forgotten: Sequence[ForgottenTopic],
        uses_topic_ids: bool,
        is_follower: bool,
        now_ms: int,
        random_id: int,
        prepared: FetchSession | SessionlessContext | None = None,
    ) -> FetchContext:
        """What the request means. KafkaError where it speaks of a session that is not there as it thinks."""
        if session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            # A whole fetch closes the session that it names.
            if session_id != NO_SESSION_ID and session_id in self._sessions:
                self._remove(self._sessions[session_id])
            whole = prepared or prepare_whole_fetch(
                session_epoch, topics, uses_topic_ids=uses_topic_ids, is_follower=is_follower
            )
            assert whole is not None
            return FullContext(self, whole, random_id) if isinstance(whole, FetchSession) else whole
        session = self._find(session_id, session_epoch, uses_topic_ids)
        session.update(topics, forgotten)
        if not session.partitions:
            self._remove(session)
            return SessionlessContext(topics)
        self._touch(session, now_ms)
        if not self._make_room(session, 0, now_ms):
            self._remove(session)
            raise KafkaError(
                ErrorCode.fetch_session_id_not_found,
                f"fetch session {session_id} has grown to {len(session.partitions)} partitions, for which there is no "
                "room; fetch with epoch 0",
            )
        session.epoch = 1 if session.epoch == EPOCH_MAX else session.epoch + 1
        return IncrementalContext(session)

    def add(self, session: FetchSession, now_ms: int, random_id: int) -> int:
        """Takes the session in and answers its id; 0 where no other session may be evicted for it."""
        if not self._make_room(session, session.count_entries(), now_ms):
            return NO_SESSION_ID
        if len(self._sessions) >= self.max_sessions and not self._try_evict(session, now_ms):
            return NO_SESSION_ID
        session_id = max(random_id & SESSION_ID_MAX, 1)
        while session_id in self._sessions:
            session_id = session_id % SESSION_ID_MAX + 1
        session.session_id = session_id
        session.created_ms = now_ms
        self._sessions[session_id] = session
        self._touch(session, now_ms)
        return session_id

    def _find(self, session_id: int, session_epoch: int, uses_topic_ids: bool) -> FetchSession:
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(
                ErrorCode.fetch_session_id_not_found,
                f"there is no fetch session {session_id}: it was evicted or closed; fetch with epoch 0",
            )
        if session.epoch != session_epoch:
            raise KafkaError(
                ErrorCode.invalid_fetch_session_epoch,
                f"fetch session {session_id} expects epoch {session.epoch}, the request has {session_epoch}",
            )
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(
                ErrorCode.fetch_session_topic_id_error,
                f"fetch session {session_id} names topics by {'id' if session.uses_topic_ids else 'name'}, the "
                f"request by {'id' if uses_topic_ids else 'name'}; open a new session",
            )
        return session

    def _make_room(self, session: FetchSession, added: int, now_ms: int) -> bool:
        """Whether `added` more entries have room, once sessions are evicted that must not keep them from it."""
        if session.count_entries() > self.max_entries:
            return False
        while self.entries + added > self.max_entries:
            victim = next(iter(self._sessions.values()), None)
            if victim is None or now_ms - victim.last_used_ms <= self.min_eviction_ms:
                consumers = self._evictable_by_privileged if session.is_privileged else []
                if not consumers or consumers[0][0]:
                    return False
                victim = self._sessions[consumers[0][2]]
            self._remove(victim)
            self.evictions += 1
        return True

    def _touch(self, session: FetchSession, now_ms: int) -> None:
        entries = session.count_entries()
        self.entries += entries - session.entries
        session.entries = entries
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session.session_id)
        by_all = now_ms - session.created_ms > self.min_eviction_ms
        by_privileged = by_all or not session.is_privileged
        key = (session.is_privileged, len(session.partitions), session.session_id)
        if (
            key != session.eviction_key
            or by_all != session.evictable_by_all
            or by_privileged != session.evictable_by_privileged
        ):
            self._leave_eviction_order(session)
            session.eviction_key = key
            session.evictable_by_all, session.evictable_by_privileged = by_all, by_privileged
            if by_all:
                insort(self._evictable_by_all, key)
            if by_privileged:
                insort(self._evictable_by_privileged, key)

    def _try_evict(self, newcomer: FetchSession, now_ms: int) -> bool:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.last_used_ms > self.min_eviction_ms:
            victim = oldest
        else:
            candidates = self._evictable_by_privileged if newcomer.is_privileged else self._evictable_by_all
            value = (newcomer.is_privileged, len(newcomer.partitions), 0)
            if not candidates or value < candidates[0]:
                return False
            victim = self._sessions[candidates[0][2]]
        self._remove(victim)
        self.evictions += 1
        return True

    def _remove(self, session: FetchSession) -> None:
        del self._sessions[session.session_id]
        self.entries -= session.entries
        session.entries = 0
        self._leave_eviction_order(session)
        session.dissolve()

    def _leave_eviction_order(self, session: FetchSession) -> None:
        key = session.eviction_key
        if session.evictable_by_all:
            del self._evictable_by_all[bisect_left(self._evictable_by_all, key)]
        if session.evictable_by_privileged:
            del self._evictable_by_privileged[bisect_left(self._evictable_by_privileged, key)]


def has_records(response: FetchPartitionResponse) -> bool:
    records = response.records
    if records is None:
        return False
    return (records.length if isinstance(records, FileRegion) else len(records)) > 0


def _by_topic(results: Iterable[PartitionResult]) -> list[FetchTopicResponse]:
    """Neighbours of the same topic share an entry; the reading order stays as it is."""
    topics: list[FetchTopicResponse] = []
    responses: list[FetchPartitionResponse] = []
    current: SessionTopic | None = None
    for partition, response in results:
        if partition.topic is not current:
            current = partition.topic
            responses = []
            topics.append(FetchTopicResponse(current.name, current.topic_id, responses))
        responses.append(response)
    return topics
