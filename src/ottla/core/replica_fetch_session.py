"""The follower's side of a fetch session (KIP-227): it names its partitions once, and then only those that changed.

`ottla.core.fetch_session` is the side of the broker that is fetched from.
"""

from itertools import groupby
from operator import itemgetter
from typing import NamedTuple
from uuid import UUID

from ottla.core.fetch_session import INITIAL_EPOCH, NO_SESSION_ID
from ottla.model.errors import ErrorCode
from ottla.protocol.fetch_codec import FetchPartition, FetchTopic, ForgottenTopic

_EPOCH_MAX = 0x7FFFFFFF

ReplicaKey = tuple[UUID, int]  # topic id, partition


class SessionFetch(NamedTuple):
    """The part of a fetch request that depends on the session."""

    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]


class ReplicaFetchSession:
    """One request is in flight at a time: `next_fetch`, then `on_response` or `on_failure`."""

    def __init__(self) -> None:
        self._session_id = NO_SESSION_ID
        self._epoch = INITIAL_EPOCH
        self._partitions: dict[ReplicaKey, FetchPartition] = {}
        # What the other side does not know yet. Dicts serve as sets that keep their order.
        self._changed: dict[ReplicaKey, None] = {}
        self._removed: dict[ReplicaKey, None] = {}

    def __len__(self) -> int:
        return len(self._partitions)

    def __contains__(self, key: ReplicaKey) -> bool:
        return key in self._partitions

    def put(self, topic_id: UUID, partition: FetchPartition) -> None:
        """Adds a partition, or changes how it is fetched.

        One that got records goes behind the others: without a session the leader reads in the order of the request, and
        the first partitions could fill every response.
        """
        key = (topic_id, partition.index)
        if self._partitions.get(key) != partition:
            self._partitions.pop(key, None)
            self._partitions[key] = partition
            self._changed[key] = None
            self._removed.pop(key, None)

    def remove(self, topic_id: UUID, index: int) -> None:
        key = (topic_id, index)
        if self._partitions.pop(key, None) is not None:
            self._changed.pop(key, None)
            # Also before the first response: the request on its way may have named it. A full fetch clears this.
            self._removed[key] = None

    def next_fetch(self) -> SessionFetch:
        if self._epoch == INITIAL_EPOCH:
            self._changed, self._removed = {}, {}
            return SessionFetch(self._session_id, self._epoch, self._topics(self._partitions), [])
        changed, self._changed = self._changed, {}
        removed, self._removed = self._removed, {}
        forgotten: dict[UUID, list[int]] = {}
        for topic_id, index in removed:
            forgotten.setdefault(topic_id, []).append(index)
        return SessionFetch(
            self._session_id,
            self._epoch,
            self._topics(changed),
            [ForgottenTopic(None, topic_id, indexes) for topic_id, indexes in forgotten.items()],
        )

    def _topics(self, keys: "dict[ReplicaKey, None] | dict[ReplicaKey, FetchPartition]") -> list[FetchTopic]:
        """A topic that is in several places of the order is named several times."""
        topics: list[FetchTopic] = []
        for topic_id, neighbours in groupby(keys, key=itemgetter(0)):
            topics.append(FetchTopic(None, topic_id, [self._partitions[key] for key in neighbours]))
        return topics

    def on_response(self, session_id: int, error: ErrorCode) -> bool:
        """Returns whether the response has results. After an error of the session the next fetch is a full one."""
        if error is not ErrorCode.none:
            if error is ErrorCode.fetch_session_id_not_found:
                self._session_id = NO_SESSION_ID
            self._epoch = INITIAL_EPOCH
            return False
        self._session_id = session_id
        if session_id == NO_SESSION_ID:  # the broker has no room for a session
            self._epoch = INITIAL_EPOCH
        else:
            self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1
        return True

    def on_failure(self) -> None:
        """The request may have been received or not: a full fetch with the old session id replaces the session."""
        self._epoch = INITIAL_EPOCH
