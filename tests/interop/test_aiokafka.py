"""aiokafka, the asyncio client: produce, consume and administer."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError
from tests.interop.brokers import RunningBroker
from tests.interop.librdkafka import create_topic

pytestmark = pytest.mark.contract

TIMEOUT_S = 30


def run(work: Coroutine[object, object, None]) -> None:
    asyncio.run(asyncio.wait_for(work, TIMEOUT_S))


@asynccontextmanager
async def producer_to(broker: RunningBroker, **config: object) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, **config)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


@asynccontextmanager
async def consumer_of(
    broker: RunningBroker, topic: str, partitions: int = 1, **config: object
) -> AsyncIterator[AIOKafkaConsumer]:
    """A consumer with assigned partitions, which reads from their beginning."""
    consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, enable_auto_commit=False, **config)
    await consumer.start()
    try:
        assigned = [TopicPartition(topic, p) for p in range(partitions)]
        consumer.assign(assigned)
        await consumer.seek_to_beginning(*assigned)
        yield consumer
    finally:
        await consumer.stop()


@asynccontextmanager
async def admin_to(broker: RunningBroker) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def take(consumer: AIOKafkaConsumer, count: int) -> list[ConsumerRecord]:
    return [await consumer.getone() for _ in range(count)]


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_aiokafka_reads_what_it_wrote_in_every_codec(
    broker: RunningBroker, topic_name: str, codec: str | None
) -> None:
    create_topic(broker.bootstrap, topic_name)
    values = [f"value {n} {'x' * 100}".encode() for n in range(300)]

    async def check() -> None:
        async with producer_to(broker, compression_type=codec, linger_ms=20) as producer:
            sent = [await producer.send(topic_name, value, partition=0) for value in values]
            assert [(await future).offset for future in sent] == list(range(300))
        async with consumer_of(broker, topic_name, check_crcs=True) as consumer:
            assert [record.value for record in await take(consumer, 300)] == values

    run(check())


def test_aiokafka_keeps_keys_headers_timestamps_and_nulls(broker: RunningBroker, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name)
    headers = [("trace", b"\x00\xff"), ("empty", b"")]

    async def check() -> None:
        async with producer_to(broker) as producer:
            await producer.send_and_wait(
                topic_name, b"v", b"k", partition=0, timestamp_ms=1_700_000_000_123, headers=headers
            )
            await producer.send_and_wait(topic_name, None, b"tombstone", partition=0)
        async with consumer_of(broker, topic_name) as consumer:
            first, second = await take(consumer, 2)
        assert (first.key, first.value, list(first.headers)) == (b"k", b"v", headers)
        assert first.timestamp == 1_700_000_000_123
        assert (second.key, second.value) == (b"tombstone", None)

    run(check())


def test_aiokafkas_idempotent_producer_is_served(broker: RunningBroker, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name)

    async def check() -> None:
        async with producer_to(broker, enable_idempotence=True) as producer:
            sent = [await producer.send(topic_name, str(n).encode(), partition=0) for n in range(500)]
            assert [(await future).offset for future in sent] == list(range(500))

    run(check())


def test_aiokafka_waits_for_a_record_over_several_partitions(broker: RunningBroker, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=4)

    async def check() -> None:
        async with (
            consumer_of(broker, topic_name, 4, fetch_max_wait_ms=5_000) as consumer,
            producer_to(broker) as producer,
        ):
            for n in range(12):
                await producer.send_and_wait(topic_name, str(n).encode(), partition=n % 4)
                record = await consumer.getone()
                assert (record.partition, record.value) == (n % 4, str(n).encode())

    run(check())


def test_aiokafka_seeks_to_a_time_and_to_both_ends(broker: RunningBroker, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name)
    partition = TopicPartition(topic_name, 0)

    async def check() -> None:
        async with producer_to(broker, linger_ms=20) as producer:
            sent = [
                await producer.send(topic_name, str(n).encode(), partition=0, timestamp_ms=1_000 + 10 * n)
                for n in range(100)
            ]
            await asyncio.gather(*sent)
        async with consumer_of(broker, topic_name) as consumer:
            found = (await consumer.offsets_for_times({partition: 1_495}))[partition]
            assert (found.offset, found.timestamp) == (50, 1_500)
            assert await consumer.beginning_offsets([partition]) == {partition: 0}
            assert await consumer.end_offsets([partition]) == {partition: 100}
            consumer.seek(partition, found.offset)
            assert (await consumer.getone()).value == b"50"

    run(check())


def test_aiokafka_gets_the_error_of_a_record_too_large(broker: RunningBroker, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, config={"max.message.bytes": "1000"})

    async def check() -> None:
        async with producer_to(broker) as producer:
            with pytest.raises(KafkaError, match=r"(?i)large"):
                await producer.send_and_wait(topic_name, b"x" * 5_000)

    run(check())


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    while not await condition():  # noqa: ASYNC110 - the condition is the broker's, over the wire
        await asyncio.sleep(0.02)


def test_aiokafka_administers_topics_and_configs(broker: RunningBroker, topic_name: str) -> None:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic_name, {"retention.ms": "60000"})

    async def check() -> None:
        async with admin_to(broker) as admin:

            async def is_listed() -> bool:
                return topic_name in await admin.list_topics()

            async def is_gone() -> bool:
                return not await is_listed()

            async def has_three_partitions() -> bool:
                return len((await admin.describe_topics([topic_name]))[0]["partitions"]) == 3

            async def is_altered() -> bool:
                return "60000" in str(await admin.describe_configs([resource]))

            await admin.create_topics([NewTopic(topic_name, num_partitions=2, replication_factor=1)])
            await until(is_listed)
            await admin.create_partitions({topic_name: NewPartitions(total_count=3)})
            await until(has_three_partitions)
            await admin.alter_configs([resource])
            await until(is_altered)
            assert len((await admin.describe_cluster())["brokers"]) == 1
            await admin.delete_topics([topic_name])
            await until(is_gone)

    run(check())
