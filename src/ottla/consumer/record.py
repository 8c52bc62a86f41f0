"""The record that a handler gets: plain values that can be pickled for another process."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

from ottla.model.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class Record:
    """One record as it is in the log. `timestamp_ms` is None if the record has none."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None

    @classmethod
    def from_message(cls, message: Any) -> "Record":
        """`message` is a `confluent_kafka.Message` without an error: only then are its fields never None."""
        kind, timestamp_ms = message.timestamp()
        return cls(
            message.topic(),
            message.partition(),
            message.offset(),
            message.key(),
            message.value(),
            tuple(message.headers() or ()),
            None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
        )

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"


# A record is handled when the handler returns; the value that it returns is ignored.
Handler: TypeAlias = Callable[[Record], object]
