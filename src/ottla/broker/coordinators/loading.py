"""Rebuilds a coordinator's machine from the log of its partition."""

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from ottla.broker.hosted_partition import HostedPartition
from ottla.core.coordination import CoordinatorMachine
from ottla.env import Env
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_PRODUCER_ID
from ottla.records.markers import read_marker
from ottla.records.records import Batch, read_batches

if TYPE_CHECKING:
    from ottla.broker.coordinators.shard import RecordCodec

logger = logging.getLogger("ottla.coordinator")

# More at a time would hold up the requests of other shards.
_READ_BYTES_MAX = 1 << 20


async def load(
    env: Env,
    hosted: HostedPartition,
    machine: CoordinatorMachine[Any, Any],
    codec: "RecordCodec[Any, Any]",
    read_bytes: int,
) -> None:
    """Replays the whole log into `machine`, `read_bytes` at a time: requests of other shards go on between them.

    Nobody writes to the log meanwhile. Raises KafkaError and OSError.
    """
    log = hosted.log
    offset, end_offset = log.log_start_offset, log.log_end_offset
    records = 0
    read_bytes = min(read_bytes, _READ_BYTES_MAX)
    while offset < end_offset and not hosted.is_closed:
        found = log.read(offset, read_bytes, end_offset=end_offset, at_least_one=True)
        data = await env.threads.run(found.region.read)
        batches = read_batches(data)
        if not batches:
            break  # compaction has left nothing from here to the end
        for batch in batches:
            records += replay_batch(batch, machine, codec, hosted)
            offset = max(offset, batch.header.last_offset + 1)
        await asyncio.sleep(0)
    logger.info("%s is loaded: %d records", hosted.topic_partition, records)


def replay_batch(
    batch: Batch,
    machine: CoordinatorMachine[Any, Any],
    codec: "RecordCodec[Any, Any]",
    hosted: HostedPartition,
) -> int:
    header = batch.header
    if header.is_control:
        for record in batch.records:
            marker = read_marker(record)
            if marker is not None:
                machine.replay_marker(header.producer_id, marker.commit)
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
            machine.replay(*decoded, producer_id)
    return len(batch.records)
