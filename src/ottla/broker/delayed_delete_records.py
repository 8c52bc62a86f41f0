"""A DeleteRecords request that waits until every live replica has moved the start of its log (KIP-107)."""

from collections.abc import Callable, Sequence
from typing import Any

from ottla.broker.delayed_response import DelayedResponse
from ottla.broker.hosted_partition import HostedPartition
from ottla.broker.promise import Promise
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_OFFSET


class PartitionDeletion:
    """The result for one partition. While `is_pending`, replicas still have to delete."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.low_watermark = NO_OFFSET
        self.error_code = ErrorCode.none
        self.is_pending = False

    def fail(self, error: KafkaError) -> None:
        self.low_watermark, self.error_code, self.is_pending = NO_OFFSET, error.code, False

    def start(self, hosted: HostedPartition, offset: int, is_alive: Callable[[int], bool]) -> None:
        """Deletes to `offset`. Brokers that are not `is_alive` do so when they are back, and are not waited for.

        Raises KafkaError.
        """
        self.hosted = hosted
        self._offset = hosted.delete_records(offset)
        self._leader = hosted.leader
        self._is_alive = is_alive
        self.check()

    def check(self) -> None:
        """Waits for a leadership: under another one, the log may start elsewhere."""
        lost = self.hosted.leadership_error(self._leader)
        if lost is not None:
            self.fail(lost)
            return
        self.low_watermark = self._leader.low_watermark_among(self._is_alive)
        self.is_pending = self.low_watermark < self._offset


class DelayedDeleteRecords(DelayedResponse):
    """`finish` completes `response`."""

    def __init__(
        self, response: Promise[Any], waiting: Sequence[PartitionDeletion], finish: Callable[[], None]
    ) -> None:
        super().__init__(response)
        self._waiting = waiting
        self._finish = finish

    def try_complete(self, now_ms: int) -> bool:
        for deletion in self._waiting:
            if deletion.is_pending:
                deletion.check()
        if any(deletion.is_pending for deletion in self._waiting):
            return False
        self._finish()
        return True

    def on_expire(self, now_ms: int) -> None:
        if self.try_complete(now_ms):
            return
        for deletion in self._waiting:
            if deletion.is_pending:
                deletion.fail(
                    KafkaError(
                        ErrorCode.request_timed_out,
                        f"not all replicas of {deletion.hosted.topic_partition} have deleted the records in time",
                    )
                )
        self._finish()
