"""Fetches that wait for more records."""

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from ottla.broker.delayed_response import DelayedResponse
from ottla.broker.fetch_reader import FetchRead, FetchReader
from ottla.broker.promise import Promise
from ottla.protocol.fetch_codec import FetchRequest


class DelayedFetch(DelayedResponse):
    """A full fetch that waits for `min_bytes`. It checks offsets first, and reads only if there may be enough.

    `finish` completes `response`.
    """

    def __init__(
        self,
        response: Promise[Any],
        reader: FetchReader,
        request: FetchRequest,
        finish: Callable[[FetchRead], None],
    ) -> None:
        super().__init__(response)
        self._reader = reader
        self._min_bytes = request.min_bytes
        self._isolation_level = request.isolation_level
        self._is_follower = request.replica_id >= 0
        self._finish = finish
        self._positions = reader.positions()
        # Under another role the next read answers with an error, or reads another log.
        self._roles = [hosted.role for hosted, _ in self._positions]

    @property
    def keys(self) -> Sequence[tuple[str, int] | UUID]:
        return [hosted.topic_partition for hosted, _ in self._positions]

    def try_complete(self, now_ms: int) -> bool:
        if not self._may_be_ready():
            return False
        read = self._reader.read()
        if read.size < self._min_bytes and not read.is_urgent:
            return False
        self._finish(read)
        return True

    def on_expire(self, now_ms: int) -> None:
        self._finish(self._reader.read())

    def _may_be_ready(self) -> bool:
        isolation_level, is_follower = self._isolation_level, self._is_follower
        for (hosted, offset), role in zip(self._positions, self._roles, strict=True):
            if (
                role.fetch_limit(isolation_level, is_follower=is_follower) > offset
                or offset < hosted.log.offsets.start
                or hosted.role is not role
                or hosted.is_closed
                or hosted.failure is not None
            ):
                return True
        return False


class DelayedSessionFetch(DelayedResponse):
    """A fetch that waits until its ready set has enough. It watches the set, not the partitions.

    `try_again` reads the ready partitions, and returns whether it has responded or does so later.
    """

    def __init__(
        self, response: Promise[Any], try_again: Callable[[], bool], respond: Callable[[], None]
    ) -> None:
        super().__init__(response)
        self._try_again = try_again
        self._respond = respond

    def try_complete(self, now_ms: int) -> bool:
        return self._try_again()

    def on_expire(self, now_ms: int) -> None:
        self._respond()
