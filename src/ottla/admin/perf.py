"""Measures produce throughput, consume throughput and end-to-end latency, with one client."""

import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from ottla.admin.cluster import Cluster, ClusterError, UnreachableError
from ottla.admin.consume import read_batches
from ottla.admin.position import EARLIEST

_PERCENTILES = (50.0, 95.0, 99.0, 99.9)
_SAMPLES_MAX = 100_000
_ROUND_TRIP_TIMEOUT_S = 10.0
_Progress = Callable[[int], None]


class Throughput(NamedTuple):
    records: int
    bytes: int
    seconds: float
    latency_ms: dict[str, float]

    @property
    def records_per_second(self) -> float:
        return self.records / self.seconds if self.seconds else 0.0

    @property
    def mb_per_second(self) -> float:
        return self.bytes / 1e6 / self.seconds if self.seconds else 0.0


def percentiles_ms(seconds: Sequence[float]) -> dict[str, float]:
    """p50, p95, p99, p99.9 and max, in milliseconds; empty for no samples."""
    if not seconds:
        return {}
    ordered = sorted(seconds)
    result = {
        f"p{percent:g}": ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] * 1000
        for percent in _PERCENTILES
    }
    return result | {"max": ordered[-1] * 1000}


def measure_produce(
    cluster: Cluster,
    topic: str,
    *,
    records: int,
    size: int,
    acks: str,
    compression: str,
    rate: float | None,
    progress: _Progress,
) -> Throughput:
    """Sends `records` of `size` random bytes. The latency is the time from `produce` to the acknowledgement."""
    latencies: list[float] = []
    errors: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, message: Any) -> None:
        if error is not None:
            errors.append(error)
        else:
            latencies.append(message.latency())

    producer = Producer(
        cluster.client_config(
            acks=acks,
            compression_type=compression,
            linger_ms=5,
            batch_size=1_000_000,
            queue_buffering_max_kbytes=64 * 1024,
            message_timeout_ms=30_000,
        )
    )
    payload = Random(0).randbytes(size)
    every = max(1, records // _SAMPLES_MAX)
    began = time.perf_counter()
    for number in range(records):
        callback = on_delivery if number % every == 0 or number == records - 1 else None
        _produce(cluster, producer, topic, payload, callback)
        if errors:
            raise cluster.error(f"Topic {topic}", errors[0])
        if rate is not None:
            ahead = number / rate - (time.perf_counter() - began)
            if ahead > 0:
                producer.poll(ahead)
        if number % 1000 == 0:
            producer.poll(0)
            progress(number)
    if producer.flush(60) or errors:
        raise (
            cluster.error(f"Topic {topic}", errors[0])
            if errors
            else ClusterError(f"Topic {topic}: not every record was acknowledged within 60 s")
        )
    seconds = time.perf_counter() - began
    progress(records)
    return Throughput(records, records * size, seconds, percentiles_ms(latencies))


def _produce(cluster: Cluster, producer: Any, topic: str, payload: bytes, callback: Any) -> None:
    while True:
        try:
            producer.produce(topic, payload, on_delivery=callback)
            return
        except BufferError:
            producer.poll(0.01)
        except KafkaException as error:
            raise cluster.error(f"Topic {topic}", error.args[0]) from None


def measure_consume(cluster: Cluster, topic: str, *, records: int | None, progress: _Progress) -> Throughput:
    """Reads from the earliest record to the end, or `records` of them."""
    count = size = 0
    began = time.perf_counter()
    for batch in read_batches(cluster, topic, EARLIEST, batch_records=10_000):
        count += len(batch)
        size += sum(map(len, batch))
        progress(count)
        if records is not None and count >= records:
            break
    return Throughput(count, size, time.perf_counter() - began, {})


def measure_latency(
    cluster: Cluster, topic: str, *, records: int, size: int, acks: str, progress: _Progress
) -> Throughput:
    """Sends one record at a time and waits until a consumer gets it: the latency from producer to consumer."""
    partition = cluster.partitions_of(topic)[0]
    producer = Producer(cluster.client_config(acks=acks, linger_ms=0, message_timeout_ms=30_000))
    consumer = Consumer(cluster.client_config(group_id="ottla-perf", enable_auto_commit=False))
    latencies: list[float] = []
    try:
        _, end = consumer.get_watermark_offsets(
            TopicPartition(topic, partition), timeout=_ROUND_TRIP_TIMEOUT_S
        )
        consumer.assign([TopicPartition(topic, partition, end)])
        payload = Random(0).randbytes(size)
        # The first round trip opens connections and is not counted.
        _round_trip(cluster, producer, consumer, topic, partition, payload)
        began = time.perf_counter()
        for number in range(records):
            latencies.append(_round_trip(cluster, producer, consumer, topic, partition, payload))
            progress(number + 1)
        seconds = time.perf_counter() - began
    except KafkaException as error:
        raise cluster.error(f"Topic {topic}", error.args[0]) from None
    finally:
        consumer.close()
    return Throughput(records, records * size, seconds, percentiles_ms(latencies))


def _round_trip(
    cluster: Cluster, producer: Any, consumer: Any, topic: str, partition: int, payload: bytes
) -> float:
    began = time.perf_counter()
    producer.produce(topic, payload, partition=partition)
    producer.poll(0)
    while True:
        message = consumer.poll(_ROUND_TRIP_TIMEOUT_S)
        if message is None:
            raise UnreachableError(
                f"Topic {topic}: a record did not arrive within {_ROUND_TRIP_TIMEOUT_S:.0f} s"
            )
        if message.error() is not None:
            raise cluster.error(f"Topic {topic}", message.error())
        return time.perf_counter() - began
