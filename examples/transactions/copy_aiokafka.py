"""Exactly once with aiokafka: read records, change them and write them, all in one transaction.

aiokafka does not send the group metadata with offsets, and does not wait for offsets of an open transaction (KIP-447).
So the group does not assign partitions here: each instance gets one as an argument, and derives its transactional id
from it. The next instance with this id fences the one before, and starts where that one ended.
"""

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, ProducerFenced

bootstrap, source, target, group, number = sys.argv[1:]
partition = TopicPartition(source, int(number))
RECORDS_A_TRANSACTION = 1000


def transform(value: bytes | None) -> bytes:
    return (value or b"").upper()


async def rewind(consumer: AIOKafkaConsumer) -> None:
    """Seeks to the end of the last committed transaction."""
    committed = await consumer.committed(partition)
    if committed is None:
        await consumer.seek_to_beginning(partition)
    else:
        consumer.seek(partition, committed)


async def copy_one(consumer: AIOKafkaConsumer, producer: AIOKafkaProducer) -> int:
    """One transaction: the records that are written, and the offset of the last one that was read."""
    batches = await consumer.getmany(timeout_ms=200, max_records=RECORDS_A_TRANSACTION)
    messages = batches.get(partition, [])
    if messages:
        async with producer.transaction():
            for message in messages:
                await producer.send(target, transform(message.value), message.key)
            await producer.send_offsets_to_transaction({partition: messages[-1].offset + 1}, group)
    return len(messages)


async def main() -> None:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        enable_auto_commit=False,  # the transaction commits the offsets
        isolation_level="read_committed",
    )
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"{group}-{source}-{number}")
    # The producer first: it ends a transaction that another instance left open, before the offset is read.
    await producer.start()
    await consumer.start()
    consumer.assign([partition])
    try:
        await rewind(consumer)
        while True:
            try:
                if count := await copy_one(consumer, producer):
                    print("committed", count, flush=True)
            except ProducerFenced:
                raise  # another instance has taken over
            except KafkaError:
                await rewind(consumer)
    finally:
        await consumer.stop()
        await producer.stop()


try:
    asyncio.run(main())
except KeyboardInterrupt:
    pass
