"""A produce request with acks=all that waits until every in-sync replica has its records."""

from collections.abc import Callable
from typing import Any

from ottla.broker.delayed_response import DelayedResponse
from ottla.broker.hosted_partition import Appended, HostedPartition
from ottla.broker.promise import Promise
from ottla.model.errors import ErrorCode, KafkaError


class DelayedProduce(DelayedResponse):
    """Waits for the leaderships under which the records were appended: if one ends, its records may be lost.

    `finish` completes `response`. It gets the errors of the partitions that failed.
    """

    def __init__(
        self,
        response: Promise[Any],
        waiting: list[Appended],
        finish: Callable[[dict[HostedPartition, KafkaError]], None],
    ) -> None:
        super().__init__(response)
        self._waiting = waiting
        self._finish = finish
        self._failed: dict[HostedPartition, KafkaError] = {}

    def try_complete(self, now_ms: int) -> bool:
        still_waiting = []
        for appended in self._waiting:
            try:
                lost = appended.error
                if lost is not None:
                    raise lost
                if not appended.leader.is_acknowledged(appended.end_offset):
                    still_waiting.append(appended)
            except KafkaError as error:
                self._failed[appended.hosted] = error
        self._waiting = still_waiting
        if still_waiting:
            return False
        self._finish(self._failed)
        return True

    def on_expire(self, now_ms: int) -> None:
        for hosted, _, end_offset in self._waiting:
            self._failed[hosted] = KafkaError(
                ErrorCode.request_timed_out,
                f"{hosted.topic_partition} was not replicated to offset {end_offset} in time",
            )
        self._finish(self._failed)
