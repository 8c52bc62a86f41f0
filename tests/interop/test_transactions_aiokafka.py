"""aiokafka's transactions: an asyncio client that uses the protocol before KIP-890, in its oldest versions."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import IllegalStateError, KafkaError, ProducerFenced
from tests.interop.brokers import RunningBroker
from tests.interop.group_clients import committed
from tests.interop.librdkafka import create_topic, produce_values, wait_until
from tests.interop.transaction_clients import (
    all_values,
    committed_values,
    last_stable_offset,
    numbers,
    wait_until_complete,
)

pytestmark = pytest.mark.contract

TIMEOUT_S = 60


@pytest.fixture
def bootstrap(transaction_broker: RunningBroker) -> str:
    return transaction_broker.bootstrap


def run(work: Coroutine[object, object, None]) -> None:
    asyncio.run(asyncio.wait_for(work, TIMEOUT_S))


@asynccontextmanager
async def producer_with(
    bootstrap: str, transactional_id: str, **config: object
) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id, **config)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


@asynccontextmanager
async def reader_of(bootstrap: str, topic: str, **config: object) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, enable_auto_commit=False, isolation_level="read_committed", **config
    )
    await consumer.start()
    try:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        yield consumer
    finally:
        await consumer.stop()


async def send(producer: AIOKafkaProducer, topic: str, values: list[str], partition: int = 0) -> None:
    for value in values:
        await producer.send_and_wait(topic, value.encode(), partition=partition)


def test_commits_and_aborts_are_atomic_for_aiokafka_and_for_other_readers(
    bootstrap: str, topic_name: str, transactional_id: str
) -> None:
    create_topic(bootstrap, topic_name, partitions=2)

    async def work() -> None:
        async with producer_with(bootstrap, transactional_id) as producer:
            async with producer.transaction():
                await send(producer, topic_name, ["a", "b"], 0)
                await send(producer, topic_name, ["c"], 1)
                assert committed_values(bootstrap, topic_name, 0) == []
            await producer.begin_transaction()
            await send(producer, topic_name, ["aborted"], 0)
            await producer.abort_transaction()
            with contextlib.suppress(ZeroDivisionError):
                async with producer.transaction():
                    await send(producer, topic_name, ["aborted, too"], 0)
                    raise ZeroDivisionError
            async with producer.transaction():
                await send(producer, topic_name, ["d"], 0)
        wait_until_complete(bootstrap, transactional_id)
        assert committed_values(bootstrap, topic_name, 0) == ["a", "b", "d"]
        assert committed_values(bootstrap, topic_name, 1) == ["c"]
        assert all_values(bootstrap, topic_name, 0) == ["a", "b", "aborted", "aborted, too", "d"]
        async with reader_of(bootstrap, topic_name) as reader:
            assert [(await reader.getone()).value for _ in range(3)] == [b"a", b"b", b"d"]

    run(work())


def test_a_reader_waits_at_an_open_transaction(
    bootstrap: str, topic_name: str, transactional_id: str
) -> None:
    create_topic(bootstrap, topic_name)

    async def work() -> None:
        async with producer_with(bootstrap, transactional_id) as producer:
            await producer.begin_transaction()
            await send(producer, topic_name, ["open"])
            produce_values(bootstrap, topic_name, [b"behind"])
            async with reader_of(bootstrap, topic_name, fetch_max_wait_ms=50) as reader:
                assert await reader.getmany(timeout_ms=300) == {}
                assert last_stable_offset(bootstrap, topic_name) == 0
                await producer.commit_transaction()
                assert [(await reader.getone()).value for _ in range(2)] == [b"open", b"behind"]

    run(work())


def test_a_second_producer_with_the_same_id_fences_the_first(
    bootstrap: str, topic_name: str, transactional_id: str
) -> None:
    create_topic(bootstrap, topic_name)

    async def work() -> None:
        async with producer_with(bootstrap, transactional_id) as first:
            await first.begin_transaction()
            await send(first, topic_name, ["lost"])
            async with producer_with(bootstrap, transactional_id) as second:
                with pytest.raises(ProducerFenced):
                    await first.commit_transaction()
                async with second.transaction():
                    await send(second, topic_name, ["kept"])

    run(work())
    wait_until_complete(bootstrap, transactional_id)
    assert committed_values(bootstrap, topic_name) == ["kept"]


def test_a_transaction_that_is_open_for_too_long_is_aborted_and_its_producer_gets_an_error(
    bootstrap: str, topic_name: str, transactional_id: str
) -> None:
    create_topic(bootstrap, topic_name)

    async def work() -> None:
        async with producer_with(bootstrap, transactional_id, transaction_timeout_ms=1000) as producer:
            await producer.begin_transaction()
            await send(producer, topic_name, ["late"])
            wait_until(lambda: last_stable_offset(bootstrap, topic_name) == 2, "it is aborted")
            with pytest.raises((KafkaError, IllegalStateError)):
                await producer.commit_transaction()

    run(work())
    assert committed_values(bootstrap, topic_name) == []


def test_offsets_move_with_the_records(
    bootstrap: str, topic_name: str, group_id: str, transactional_id: str
) -> None:
    output = f"{topic_name}-out"
    for name in (topic_name, output):
        create_topic(bootstrap, name)
    produce_values(bootstrap, topic_name, [value.encode() for value in numbers(0, 40)])

    async def work() -> None:
        consumer = AIOKafkaConsumer(
            topic_name,
            bootstrap_servers=bootstrap,
            group_id=group_id,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        await consumer.start()
        try:
            async with producer_with(bootstrap, transactional_id) as producer:
                done, is_first_try = 0, True
                while done < 40:
                    for partition, messages in (
                        await consumer.getmany(timeout_ms=1000, max_records=10)
                    ).items():
                        await producer.begin_transaction()
                        await send(producer, output, [message.value.decode() for message in messages])
                        offsets = {partition: messages[-1].offset + 1}
                        await producer.send_offsets_to_transaction(offsets, group_id)
                        if is_first_try:
                            await producer.abort_transaction()
                            consumer.seek(partition, messages[0].offset)
                        else:
                            await producer.commit_transaction()
                            done += len(messages)
                        is_first_try = not is_first_try
        finally:
            await consumer.stop()

    run(work())
    wait_until_complete(bootstrap, transactional_id)
    assert committed_values(bootstrap, output) == numbers(0, 40)
    assert len(all_values(bootstrap, output)) == 80
    assert committed(bootstrap, group_id, topic_name) == 40
