"""What this broker has done for each topic, in plain integers: they are added to for every request.

They belong to the topic and not to its partitions: a counter that is exposed must not fall when a partition moves to
another broker.
"""

from dataclasses import dataclass, fields


@dataclass(slots=True)
class TopicCounters:
    """Names as in Kafka's BrokerTopicMetrics. ISR changes are those within a leader epoch of this broker."""

    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    replication_bytes_in: int = 0
    replication_bytes_out: int = 0
    produce_requests: int = 0
    failed_produce_requests: int = 0
    fetch_requests: int = 0
    isr_shrinks: int = 0
    isr_expands: int = 0

    def add(self, other: "TopicCounters") -> None:
        for name in _NAMES:
            setattr(self, name, getattr(self, name) + getattr(other, name))


_NAMES = tuple(field.name for field in fields(TopicCounters))


class CountersByTopic:
    """`deleted` is the sum of topics that were deleted, so that the sum of all never falls."""

    def __init__(self) -> None:
        self.deleted = TopicCounters()
        self.cold_reads = 0  # of bytes that were not in the page cache, in all topics
        self._by_name: dict[str, TopicCounters] = {}

    def items(self) -> list[tuple[str, TopicCounters]]:
        """The topics that are not deleted."""
        return list(self._by_name.items())

    def of(self, topic: str) -> TopicCounters:
        counters = self._by_name.get(topic)
        if counters is None:
            counters = self._by_name[topic] = TopicCounters()
        return counters

    def remove(self, topic: str) -> None:
        """The topic was deleted."""
        counters = self._by_name.pop(topic, None)
        if counters is not None:
            self.deleted.add(counters)
