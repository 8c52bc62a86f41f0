"""A produce request with acks=all that waits until every in-sync replica has its records."""

from collections.abc import Callable
from typing import Any

from ottla.broker.delayed_response import DelayedResponse
from ottla.broker.hosted_partition import HostedPartition
from ottla.broker.promise import Promise
from ottla.model.errors import ErrorCode, KafkaError


class DelayedProduce(DelayedResponse):
    """`finish` completes `response`. It gets the errors of the partitions that failed."""

    def __init__(
        self,
        response: Promise[Any],
        waiting: list[tuple[HostedPartition, int]],
        finish: Callable[[dict[HostedPartition, KafkaError]], None],
    ) -> None:
        super().__init__(response)
        self._waiting = waiting
        self._finish = finish
        self._failed: dict[HostedPartition, KafkaError] = {}

    def try_complete(self, now_ms: int) -> bool:
        still_waiting = []
        for partition, required_offset in self._waiting:
            try:
                if partition.failure is not None:
                    raise partition.failure
                if partition.is_closed:
                    raise KafkaError(
                        ErrorCode.unknown_topic_or_partition, f"{partition.topic_partition} was deleted"
                    )
                if not partition.leader.is_acknowledged(required_offset):
                    still_waiting.append((partition, required_offset))
            except KafkaError as error:
                self._failed[partition] = error
        self._waiting = still_waiting
        if still_waiting:
            return False
        self._finish(self._failed)
        return True

    def on_expire(self, now_ms: int) -> None:
        for partition, required_offset in self._waiting:
            self._failed[partition] = KafkaError(
                ErrorCode.request_timed_out,
                f"{partition.topic_partition} was not replicated to offset {required_offset} in time",
            )
        self._finish(self._failed)
