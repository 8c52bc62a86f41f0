"""Rebuilds a coordinator's shard from the log of its partition."""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.broker.hosted_partition import HostedPartition
from ottla.core.coordination import CoordinatorMachine
from ottla.env import Env
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_PRODUCER_ID
from ottla.records.markers import read_marker
from ottla.records.records import Batch, read_batches

if TYPE_CHECKING:
    from ottla.broker.coordinators.shard_runtime import RecordCodec

logger = logging.getLogger("ottla.coordinator")

# Replaying more at a time would delay the requests of other shards.
_READ_BYTES_MAX = 1 << 20


async def load_shard(
    env: Env,
    hosted: HostedPartition,
    shard: CoordinatorMachine[Any, Any],
    codec: "RecordCodec[Any, Any]",
    read_bytes: int,
    is_wanted: Callable[[], bool],
) -> None:
    """Replays the whole log into `shard`, `read_bytes` at a time. Other shards serve requests in between.

    Nothing is appended to the log meanwhile, unless this broker loses the partition: `is_wanted` is False then, and
    the rest is not read. Raises KafkaError and OSError.
    """
    offset, end_offset = hosted.log.log_start_offset, hosted.log.log_end_offset
    records = 0
    read_bytes = min(read_bytes, _READ_BYTES_MAX)
    while offset < end_offset:
        log = (
            hosted.log
        )  # another one than in the last turn, if the replica was moved to another directory since
        found = log.read(offset, read_bytes, end_offset=end_offset, at_least_one=True)
        try:
            data = await env.threads.run(found.region.read)
        except OSError:
            if hosted.log is log:
                raise
            continue
        if not is_wanted():
            return
        batches = read_batches(data)
        if not batches:
            break  # compaction has removed everything from here to the end
        for batch in batches:
            records += replay_batch(batch, shard, codec, hosted)
            offset = max(offset, batch.header.last_offset + 1)
        await asyncio.sleep(0)
        if not is_wanted():
            return
    logger.info("%s is loaded: %d records", hosted.topic_partition, records)


def replay_batch(
    batch: Batch,
    shard: CoordinatorMachine[Any, Any],
    codec: "RecordCodec[Any, Any]",
    hosted: HostedPartition,
) -> int:
    """Returns the number of records."""
    header = batch.header
    if header.is_control:
        for record in batch.records:
            marker = read_marker(record)
            if marker is not None:
                shard.replay_marker(header.producer_id, marker.commit)
        return 0
    producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
    for record in batch.records:
        if record.key is None:
            raise KafkaError(
                ErrorCode.corrupt_message,
                f"the record at offset {record.offset} of {hosted.topic_partition} has no key",
            )
        decoded = codec.decode_record(record.key, record.value)
        if decoded is not None:
            shard.replay(*decoded, producer_id)
    return len(batch.records)
