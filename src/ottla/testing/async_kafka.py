"""`AsyncKafka`: the same broker for tests on asyncio. Its helpers wait in threads, so the event loop goes on."""

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from ottla.model.ids import TopicPartition
from ottla.testing.helpers import Record
from ottla.testing.kafka import Kafka


class AsyncKafka:
    """`async with AsyncKafka() as kafka`. Methods have the parameters of the methods of `Kafka`.

    `kafka.sync` is the `Kafka` itself: methods that do not wait for clients, such as those for faults, are there.
    """

    def __init__(self, config: Mapping[str, object] | None = None) -> None:
        self.sync = Kafka(config)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def bootstrap(self) -> str:
        return self.sync.bootstrap

    async def start(self) -> None:
        await asyncio.to_thread(self.sync.start)

    async def stop(self) -> None:
        await asyncio.to_thread(self.sync.stop)

    async def restart(self) -> None:
        await asyncio.to_thread(self.sync.restart)

    async def close(self) -> None:
        await asyncio.to_thread(self.sync.close)

    async def create_topic(self, name: str | None = None, **options: Any) -> str:
        return await asyncio.to_thread(self.sync.create_topic, name, **options)

    async def delete_topic(self, name: str) -> None:
        await asyncio.to_thread(self.sync.delete_topic, name)

    async def produce(self, topic: str, *values: Any, **options: Any) -> None:
        await asyncio.to_thread(self.sync.produce, topic, *values, **options)

    async def records(self, topic: str, **options: Any) -> list[Record]:
        return await asyncio.to_thread(self.sync.records, topic, **options)

    async def wait_for(self, topic: str, count: int, **options: Any) -> list[Record]:
        return await asyncio.to_thread(self.sync.wait_for, topic, count, **options)

    async def committed(self, group: str) -> dict[TopicPartition, int]:
        return await asyncio.to_thread(self.sync.committed, group)

    async def lag(self, group: str) -> int:
        return await asyncio.to_thread(self.sync.lag, group)

    async def wait_until_stable(self, group: str, **options: Any) -> None:
        await asyncio.to_thread(self.sync.wait_until_stable, group, **options)

    async def wait_until_committed(
        self, group: str, offsets: Mapping[tuple[str, int], int], **options: Any
    ) -> None:
        await asyncio.to_thread(self.sync.wait_until_committed, group, offsets, **options)

    async def advance(self, **duration: float) -> None:
        await asyncio.to_thread(self.sync.advance, **duration)

    async def compact(self, topic: str) -> None:
        await asyncio.to_thread(self.sync.compact, topic)

    async def apply_retention(self, topic: str) -> None:
        await asyncio.to_thread(self.sync.apply_retention, topic)
