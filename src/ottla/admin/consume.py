"""Reads the records of one topic without a group, from a position to the end or for ever."""

import time
from collections.abc import Collection, Iterator
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from ottla.admin.cluster import Cluster, ClusterError, UnreachableError
from ottla.admin.position import EARLIEST, LATEST, Position
from ottla.admin.topics import list_offsets

_BATCH_RECORDS = 1000
_POLL_S = 0.2
_STALL_TIMEOUT_S = 30.0


def read_batches(
    cluster: Cluster,
    topic: str,
    position: Position,
    *,
    partitions: Collection[int] = (),
    follow: bool = False,
    batch_records: int = _BATCH_RECORDS,
) -> Iterator[list[Any]]:
    """Yields messages of confluent-kafka. The lists are empty while there are none, so that the caller gets a turn.

    Without `follow` it ends at the log end offsets of its start. Raises ClusterError.
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
        last_read = time.monotonic()
        while unfinished:
            batch = consumer.consume(batch_records, _POLL_S)
            if batch:
                last_read = time.monotonic()
            elif not follow and time.monotonic() - last_read > _STALL_TIMEOUT_S:
                numbers = ", ".join(map(str, sorted(unfinished)))
                raise UnreachableError(
                    f"Topic {topic}: no response for partition {numbers} within {_STALL_TIMEOUT_S:.0f} s"
                )
            yield _select(cluster, batch, unfinished, None if follow else ends)
    finally:
        consumer.close()


def _bounds(
    cluster: Cluster, topic: str, position: Position, partitions: Collection[int]
) -> tuple[dict[int, int], dict[int, int]]:
    """The start offset and the end offset of each partition."""
    existing = cluster.partitions_of(topic)
    unknown = sorted(set(partitions) - set(existing))
    if unknown:
        raise ClusterError(
            f"Topic {topic} has no partition {unknown[0]}: it has {len(existing)}, numbered from 0"
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


def _select(
    cluster: Cluster, batch: list[Any], unfinished: set[int], ends: dict[int, int] | None
) -> list[Any]:
    """The messages before the ends. Removes from `unfinished` each partition that has reached its end."""
    selected = []
    for message in batch:
        error = message.error()
        number = message.partition()
        if error is None:
            if ends is None:
                selected.append(message)
            elif number in unfinished and message.offset() < ends[number]:
                selected.append(message)
                if message.offset() == ends[number] - 1:
                    unfinished.discard(number)
            else:
                unfinished.discard(number)
        elif error.code() == KafkaError._PARTITION_EOF:
            # The last offsets may have no record: transaction markers, or records that compaction removed.
            unfinished.discard(number)
        else:
            raise cluster.error(f"Topic {message.topic()}", error)
    return selected
