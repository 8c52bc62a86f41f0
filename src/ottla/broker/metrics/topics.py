"""Traffic of this broker by topic, with the names of Kafka's BrokerTopicMetrics.

As in Kafka, a sample without a topic is the sum of all topics, deleted ones included.
"""

from collections.abc import Sequence
from dataclasses import replace

from ottla.broker.topic_counters import CountersByTopic, TopicCounters
from ottla.metrics import Collection, Collector, Family, Kind, line

_PREFIX = "kafka_server_brokertopicmetrics_"


def _counter(name: str, meaning: str, *labels: str) -> Family:
    return Family(f"{_PREFIX}{name}_total", Kind.COUNTER, meaning, labels)


# By the names of TopicCounters.
_BY_TOPIC = {
    "messages_in": _counter(
        "messagesin", "Records that were appended by leaders, also of coordinators and markers.", "topic"
    ),
    "bytes_in": _counter("bytesin", "Bytes of batches that were appended by leaders.", "topic"),
    "bytes_out": _counter("bytesout", "Bytes of batches that were sent to consumers.", "topic"),
    "produce_requests": _counter(
        "totalproducerequests",
        "Produce requests, counted for each partition that this broker leads.",
        "topic",
    ),
    "failed_produce_requests": _counter(
        "failedproducerequests", "Produce requests that were rejected, counted for each partition.", "topic"
    ),
    "fetch_requests": _counter(
        "totalfetchrequests", "Reads of partitions for fetch requests of consumers and followers.", "topic"
    ),
}
_OF_BROKER = {
    "replication_bytes_in": _counter("replicationbytesin", "Bytes that this broker copied from leaders."),
    "replication_bytes_out": _counter("replicationbytesout", "Bytes of batches that were sent to followers."),
    "isr_shrinks": Family(
        "kafka_server_replicamanager_isrshrinks_total",
        Kind.COUNTER,
        "How often the ISR of a partition became smaller while this broker led it.",
    ),
    "isr_expands": Family(
        "kafka_server_replicamanager_isrexpands_total",
        Kind.COUNTER,
        "How often the ISR of a partition became larger while this broker led it.",
    ),
}
FAMILIES = (*_BY_TOPIC.values(), *_OF_BROKER.values())
_NOTHING = ("",) * len(_OF_BROKER)


class TopicsCollector(Collector):
    families = FAMILIES

    def __init__(self, counters: CountersByTopic) -> None:
        self._counters = counters

    async def start(self) -> "_Traffic":
        return _Traffic(self._counters)


class _Traffic(Collection[tuple[str, TopicCounters]]):
    def __init__(self, counters: CountersByTopic) -> None:
        # Taken together, so that a topic that is deleted meanwhile counts once.
        self.items = counters.items()
        self._total = replace(counters.deleted)

    def collect(self, item: tuple[str, TopicCounters]) -> Sequence[str]:
        topic, counters = item
        self._total.add(counters)
        labels_text = f'{{topic="{topic}"}}'
        return (
            *(
                line(family.name, labels_text, getattr(counters, name)) if getattr(counters, name) else ""
                for name, family in _BY_TOPIC.items()
            ),
            *_NOTHING,
        )

    def finish(self) -> Sequence[str]:
        return [
            line(family.name, "", getattr(self._total, name))
            for name, family in (_BY_TOPIC | _OF_BROKER).items()
        ]
