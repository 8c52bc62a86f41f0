"""Batch headers for tests, with harmless defaults."""

from ottla.records.header import CONTROL_MASK, TRANSACTIONAL_MASK, BatchHeader


def batch(
    *,
    offset: int = 0,
    count: int = 1,
    size: int = 100,
    producer_id: int = -1,
    epoch: int = 0,
    sequence: int = -1,
    timestamp: int = 0,
    transactional: bool = False,
    control: bool = False,
    attributes: int = 0,
) -> BatchHeader:
    return BatchHeader(
        base_offset=offset,
        batch_length=size - 12,
        partition_leader_epoch=-1,
        magic=2,
        crc=4711,
        attributes=attributes | transactional * TRANSACTIONAL_MASK | control * CONTROL_MASK,
        last_offset_delta=count - 1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=epoch if producer_id >= 0 else -1,
        base_sequence=sequence,
        records_count=count,
    )


def marker(*, offset: int, producer_id: int, epoch: int = 0, timestamp: int = 0) -> BatchHeader:
    return batch(
        offset=offset,
        producer_id=producer_id,
        epoch=epoch,
        timestamp=timestamp,
        transactional=True,
        control=True,
    )
