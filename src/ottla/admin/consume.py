"""Reads records of one topic, from a position to the end or for ever, without a group."""

import time
from collections.abc import Collection, Iterator
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from ottla.admin.cluster import Cluster, ClusterError, UnreachableError
from ottla.admin.position import EARLIEST, LATEST, Position
from ottla.admin.topics import list_offsets

BATCH_RECORDS = 1000
POLL_S = 0.2
STALLED_S = 30.0


def read_batches(
    cluster: Cluster,
    topic: str,
    position: Position,
    *,
    partitions: Collection[int] = (),
    follow: bool = False,
    batch_records: int = BATCH_RECORDS,
) -> Iterator[list[Any]]:
    """Messages of confluent-kafka as they come; empty lists while there are none, so that a caller can act.

    Without `follow` it ends where the partitions ended when it began. Raises ClusterError.
    """
    starts, ends = _bounds(cluster, topic, position, partitions)
    unfinished = {number for number, start in starts.items() if follow or start < ends[number]}
    if not unfinished:
        return
    consumer = Consumer(
        cluster.client_config(
            group_id="ottla-consume",
            enable_auto_commit=False,
            enable_partition_eof=not follow,
            auto_offset_reset="earliest",
            fetch_message_max_bytes=8 << 20,
        )
    )
    try:
        consumer.assign([TopicPartition(topic, number, starts[number]) for number in sorted(unfinished)])
        heard = time.monotonic()
        while unfinished:
            batch = consumer.consume(batch_records, POLL_S)
            if batch:
                heard = time.monotonic()
            elif not follow and time.monotonic() - heard > STALLED_S:
                numbers = ", ".join(map(str, sorted(unfinished)))
                raise UnreachableError(
                    f"Topic {topic}: no answer for partition {numbers} within {STALLED_S:.0f} s"
                )
            yield _keep(cluster, batch, unfinished, None if follow else ends)
    finally:
        consumer.close()


def _bounds(
    cluster: Cluster, topic: str, position: Position, partitions: Collection[int]
) -> tuple[dict[int, int], dict[int, int]]:
    """The offset to begin with and the offset after the last, of each partition."""
    existing = cluster.partitions_of(topic)
    strange = sorted(set(partitions) - set(existing))
    if strange:
        raise ClusterError(
            f"Topic {topic} has no partition {strange[0]}: it has {len(existing)}, numbered from 0"
        )
    chosen = sorted(partitions) or existing
    earliest = list_offsets(cluster, topic, chosen, EARLIEST)
    latest = list_offsets(cluster, topic, chosen, LATEST)
    if position.kind == "time":
        found = list_offsets(cluster, topic, chosen, position)
        starts = {number: offset if offset >= 0 else latest[number] for number, offset in found.items()}
    elif position.kind == "offset":
        starts = {n: min(max(position.value, earliest[n]), latest[n]) for n in chosen}
    else:
        starts = earliest if position.kind == "earliest" else latest
    return starts, latest


def _keep(cluster: Cluster, batch: list[Any], unfinished: set[int], ends: dict[int, int] | None) -> list[Any]:
    """The messages that were asked for. Strikes off `unfinished` each partition that has reached its end."""
    kept = []
    for message in batch:
        error = message.error()
        number = message.partition()
        if error is None:
            if ends is None:
                kept.append(message)
            elif number in unfinished and message.offset() < ends[number]:
                kept.append(message)
                if message.offset() == ends[number] - 1:
                    unfinished.discard(number)
            else:
                unfinished.discard(number)
        elif error.code() == KafkaError._PARTITION_EOF:
            # The last offsets may hold no record: markers of transactions, or what compaction removed.
            unfinished.discard(number)
        else:
            raise cluster.error(f"Topic {message.topic()}", error)
    return kept
