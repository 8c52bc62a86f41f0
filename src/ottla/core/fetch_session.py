"""Fetch sessions (KIP-227): a client sends its partitions once, then only the changes; so does the broker.

A full fetch (epoch -1 or 0) gets a full response; epoch 0 also opens a session. An incremental fetch (epoch 1, 2, ...)
carries only the differences, and its response contains only partitions with news.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

from ottla.core.fetch_ready_set import PartitionResult, ReadySet, SessionPartition, SessionTopic, has_records
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.fetch_codec import (
    FetchPartitionResponse,
    FetchTopic,
    FetchTopicResponse,
    ForgottenTopic,
)

NO_SESSION_ID = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_SESSION_ID_MAX = _EPOCH_MAX = 0x7FFFFFFF

# The sum of topics and partitions over all sessions. Each takes about 600 bytes, so this limits them to 90 MB.
_ENTRIES_MAX = 150_000


class SessionResponse(NamedTuple):
    session_id: int
    topics: list[FetchTopicResponse]


class FetchContext(ABC):
    """A fetch request: which partitions to read, in which order, and how to respond.

    If there is a `ready_set`, reads watch the partitions, and a fetch that waits looks at the ready ones only. An
    incremental fetch has that of its session. Others have one only if `watch` was called.
    """

    is_incremental = False
    ready_set: ReadySet | None = None

    @property
    @abstractmethod
    def partitions(self) -> Collection[SessionPartition]:
        """The partitions to read for a response, in reading order."""

    @property
    def count(self) -> int:
        """The number of `partitions`."""
        return len(self.partitions)

    @property
    def is_empty(self) -> bool:
        """Whether the client fetches no partition at all."""
        return not self.partitions

    @property
    def is_over(self) -> bool:
        """Whether it is pointless to wait any longer."""
        return False

    def watch(self) -> ReadySet:
        """Makes reads watch the partitions, until `respond` or `abandon`."""
        self.ready_set = ReadySet()
        return self.ready_set

    def abandon(self) -> None:
        """The request will not get a response."""
        if self.ready_set is not None:
            self.ready_set.close()

    def wait(self, results: Iterable[PartitionResult]) -> None:
        """The results are not enough for a response: partitions that have nothing to say become idle."""
        assert self.ready_set is not None
        for partition, _ in results:
            self.ready_set.settle(partition)

    @abstractmethod
    def respond(self, results: Sequence[PartitionResult], now_ms: int) -> SessionResponse:
        """The response to send, given a result for each of `partitions`. Must be called once."""


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
        if self.ready_set is not None:
            self.ready_set.close()
        return SessionResponse(NO_SESSION_ID, _by_topic(results))


class FetchSession(ReadySet):
    """The partitions that a client fetches. Those that returned records are read last, so that none starves."""

    __slots__ = (
        "created_ms",
        "entries",
        "epoch",
        "evictable_by_all",
        "evictable_by_privileged",
        "eviction_key",
        "is_privileged",
        "partitions",
        "session_id",
        "topics",
        "uses_topic_ids",
    )

    def __init__(self, *, uses_topic_ids: bool, is_privileged: bool) -> None:
        super().__init__()
        self.session_id = NO_SESSION_ID
        self.epoch = INITIAL_EPOCH + 1
        self.uses_topic_ids = uses_topic_ids
        self.is_privileged = is_privileged
        self.topics: dict[str | UUID | None, SessionTopic] = {}
        self.partitions: dict[SessionPartition, None] = {}  # an ordered set, in the order of the client
        self.entries = 0  # as counted by the cache
        self.created_ms = 0
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
                    self.add(partition)
                else:
                    partition.request = request
                    if partition not in self.ready:
                        self.leave_idle(partition)
        for forgotten_topic in forgotten:
            self._forget(forgotten_topic)

    def _forget(self, forgotten: ForgottenTopic) -> None:
        key = forgotten.topic_id if self.uses_topic_ids else forgotten.name
        topic = self.topics.get(key)
        if topic is None:
            return
        for index in forgotten.partitions:
            partition = topic.partitions.pop(index, None)
            if partition is not None:
                del self.partitions[partition]
                self.remove(partition)
        if not topic.partitions:
            del self.topics[key]

    def close(self) -> None:
        """Ends the session, and breaks all reference cycles of partitions, so that they are freed at once.

        `partitions` stays, for a request that is still reading.
        """
        for topic in self.topics.values():
            topic.partitions.clear()
        self.topics.clear()
        super().close()
        for partition in self.partitions:
            partition.ready_set = None


def prepare_full_fetch(
    session_epoch: int, topics: Sequence[FetchTopic], *, uses_topic_ids: bool, is_follower: bool
) -> FetchSession | SessionlessContext | None:
    """Builds what `FetchSessionCache.resolve` needs for a full fetch; None for an incremental one. Thread-safe."""
    if session_epoch == FINAL_EPOCH:
        return SessionlessContext(topics)
    if session_epoch != INITIAL_EPOCH:
        return None
    session = FetchSession(uses_topic_ids=uses_topic_ids, is_privileged=is_follower)
    session.update(topics, ())
    return session


class FullContext(FetchContext):
    """A full fetch that opens a session, if the cache has room for it.

    All partitions of the new session are ready, as nobody has watched them while they were read, unless `watch` was
    called.
    """

    def __init__(self, cache: "FetchSessionCache", session: FetchSession, random_id: int) -> None:
        self._cache = cache
        self._session = session
        self._random_id = random_id

    @property
    def partitions(self) -> Collection[SessionPartition]:
        return self._session.partitions

    def watch(self) -> ReadySet:
        self.ready_set = self._session
        return self._session

    def abandon(self) -> None:
        if self._session.session_id == NO_SESSION_ID:
            self._session.close()

    def respond(self, results: Sequence[PartitionResult], now_ms: int) -> SessionResponse:
        for partition, response in results:
            partition.update_sent(response)
            self._session.settle(partition)
        session_id = NO_SESSION_ID
        if not self._session.is_closed:
            session_id = self._cache.add(self._session, now_ms, self._random_id)
        if session_id == NO_SESSION_ID:
            self._session.close()
        return SessionResponse(session_id, _by_topic(results))


class IncrementalContext(FetchContext):
    """A fetch of the ready partitions of a session."""

    is_incremental = True

    def __init__(self, session: FetchSession) -> None:
        self.ready_set = self._session = session
        self._epoch = session.epoch

    @property
    def partitions(self) -> Collection[SessionPartition]:
        return self._session.ready_partitions()

    @property
    def count(self) -> int:
        return len(self._session.ready)

    @property
    def is_empty(self) -> bool:
        return not self._session.partitions

    @property
    def is_over(self) -> bool:
        """A closed session watches nothing, and a later request of the same session has taken this one's place."""
        return self._session.is_closed or self._session.epoch != self._epoch

    def abandon(self) -> None:
        """The session stays in the cache."""

    def wait(self, results: Iterable[PartitionResult]) -> None:
        for partition, response in results:
            if not partition.has_news(response):
                self._session.settle(partition)

    def respond(self, results: Sequence[PartitionResult], now_ms: int) -> SessionResponse:
        session = self._session
        if session.epoch != self._epoch:
            raise KafkaError(
                ErrorCode.invalid_fetch_session_epoch,
                f"fetch session {session.session_id} moved to epoch {session.epoch} before the response to epoch "
                f"{self._epoch}: the client sent a request twice",
            )
        news = []
        for result in results:
            partition, response = result
            if partition.is_settled:
                session.settle(partition)
            if partition.update_sent(response):
                news.append(result)
                if has_records(response):
                    session.place_last(partition)
        return SessionResponse(session.session_id, _by_topic(news))


class FetchSessionCache:
    """A bounded number of sessions. If the cache is full, a new session evicts the first that exists of:

    - a session that was not used for `min_eviction_ms`,
    - a consumer's session, if the new one is a follower's (privileged),
    - a session with fewer partitions that is older than `min_eviction_ms`.

    The memory of the sessions is bounded too (Kafka has no such limit). To make room, unused sessions are evicted, and
    consumers' sessions for a follower's. A small session is not evicted for a large one, or a single client could
    evict all others.
    """

    def __init__(
        self,
        max_sessions: int = 1000,
        min_eviction_ms: int = 120_000,
        max_entries: int = _ENTRIES_MAX,
        on_ready: Callable[[ReadySet], object] | None = None,
    ) -> None:
        """`on_ready` is called when a partition of a session becomes ready, and when a session ends."""
        self._on_ready = on_ready
        self.max_sessions = max_sessions
        self.min_eviction_ms = min_eviction_ms
        self.max_entries = max_entries
        self.entries = 0
        self.evictions = 0
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()  # least recently used first
        # Sorted lists, least valuable first. They change only when a session's size or evictability does.
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
        """The context of a request. Raises KafkaError if its session id or epoch does not match a session."""
        if session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            # A full fetch closes the session whose id it carries.
            if session_id != NO_SESSION_ID and session_id in self._sessions:
                self._remove(self._sessions[session_id])
            full = prepared or prepare_full_fetch(
                session_epoch, topics, uses_topic_ids=uses_topic_ids, is_follower=is_follower
            )
            assert full is not None
            return FullContext(self, full, random_id) if isinstance(full, FetchSession) else full
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
                f"fetch session {session_id} has grown to {len(session.partitions)} partitions, which exceeds the "
                "memory for fetch sessions; fetch with epoch 0",
            )
        session.epoch = 1 if session.epoch == _EPOCH_MAX else session.epoch + 1
        return IncrementalContext(session)

    def add(self, session: FetchSession, now_ms: int, random_id: int) -> int:
        """Adds the session and returns its id; 0 if there is no room and no session may be evicted for it."""
        if not self._make_room(session, session.count_entries(), now_ms):
            return NO_SESSION_ID
        if len(self._sessions) >= self.max_sessions and not self._try_evict(session, now_ms):
            return NO_SESSION_ID
        session_id = max(random_id & _SESSION_ID_MAX, 1)
        while session_id in self._sessions:
            session_id = session_id % _SESSION_ID_MAX + 1
        session.session_id = session_id
        session.created_ms = now_ms
        session.on_ready = self._on_ready
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
        """Evicts sessions until `added` more entries fit; False if they do not."""
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
            self._remove_from_eviction_lists(session)
            session.eviction_key = key
            session.evictable_by_all, session.evictable_by_privileged = by_all, by_privileged
            if by_all:
                insort(self._evictable_by_all, key)
            if by_privileged:
                insort(self._evictable_by_privileged, key)

    def _try_evict(self, new: FetchSession, now_ms: int) -> bool:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.last_used_ms > self.min_eviction_ms:
            victim = oldest
        else:
            candidates = self._evictable_by_privileged if new.is_privileged else self._evictable_by_all
            value = (new.is_privileged, len(new.partitions), 0)
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
        self._remove_from_eviction_lists(session)
        session.close()

    def _remove_from_eviction_lists(self, session: FetchSession) -> None:
        key = session.eviction_key
        if session.evictable_by_all:
            del self._evictable_by_all[bisect_left(self._evictable_by_all, key)]
        if session.evictable_by_privileged:
            del self._evictable_by_privileged[bisect_left(self._evictable_by_privileged, key)]


def _by_topic(results: Iterable[PartitionResult]) -> list[FetchTopicResponse]:
    """Groups consecutive partitions of a topic; keeps the reading order."""
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
