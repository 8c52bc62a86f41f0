"""`AsyncKafka` and `AsyncKafkaCluster`: the same brokers for tests on asyncio.

Their helpers wait in a thread, so the event loop goes on.
"""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from ottla.model.ids import TopicPartition
from ottla.testing.cluster import KafkaCluster
from ottla.testing.helpers import Record
from ottla.testing.kafka import Kafka

_KafkaT = TypeVar("_KafkaT", Kafka, KafkaCluster)
_T = TypeVar("_T")


class _AsyncHelpers(Generic[_KafkaT]):
    sync: _KafkaT

    async def _run(self, function: Callable[..., _T], *arguments: Any, **options: Any) -> _T:
        return await asyncio.to_thread(function, *arguments, **options)

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
        await self._run(self.sync.start)

    async def close(self) -> None:
        await self._run(self.sync.close)

    async def create_topic(self, name: str | None = None, **options: Any) -> str:
        return await self._run(self.sync.create_topic, name, **options)

    async def delete_topic(self, name: str) -> None:
        await self._run(self.sync.delete_topic, name)

    async def produce(self, topic: str, *values: Any, **options: Any) -> None:
        await self._run(self.sync.produce, topic, *values, **options)

    async def records(self, topic: str, **options: Any) -> list[Record]:
        return await self._run(self.sync.records, topic, **options)

    async def wait_for(self, topic: str, count: int, **options: Any) -> list[Record]:
        return await self._run(self.sync.wait_for, topic, count, **options)

    async def committed(self, group: str) -> dict[TopicPartition, int]:
        return await self._run(self.sync.committed, group)

    async def lag(self, group: str) -> int:
        return await self._run(self.sync.lag, group)

    async def wait_until_stable(self, group: str, **options: Any) -> None:
        await self._run(self.sync.wait_until_stable, group, **options)

    async def wait_until_committed(
        self, group: str, offsets: Mapping[tuple[str, int], int], **options: Any
    ) -> None:
        await self._run(self.sync.wait_until_committed, group, offsets, **options)

    async def advance(self, **duration: float) -> None:
        await self._run(self.sync.advance, **duration)

    async def compact(self, topic: str) -> None:
        await self._run(self.sync.compact, topic)

    async def apply_retention(self, topic: str) -> None:
        await self._run(self.sync.apply_retention, topic)


class AsyncKafka(_AsyncHelpers[Kafka]):
    """`async with AsyncKafka() as kafka`. Methods have the parameters of the methods of `Kafka`.

    `kafka.sync` is the `Kafka` itself: methods that do not wait for clients, such as those for faults, are there.
    """

    def __init__(self, config: Mapping[str, object] | None = None) -> None:
        self.sync = Kafka(config)

    async def stop(self) -> None:
        await self._run(self.sync.stop)

    async def restart(self) -> None:
        await self._run(self.sync.restart)


class AsyncKafkaCluster(_AsyncHelpers[KafkaCluster]):
    """`async with AsyncKafkaCluster(3) as kafka`. Methods have the parameters of the methods of `KafkaCluster`.

    `kafka.sync` is the `KafkaCluster` itself; `await kafka.run(kafka.sync.node(1).fail, "Produce", ...)` waits for the
    others of its methods. One thread runs all of them: the nodes end with the thread that has started them.
    """

    def __init__(self, nodes: int = 3, config: Mapping[str, object] | None = None) -> None:
        self.sync = KafkaCluster(nodes, config)
        self._thread: ThreadPoolExecutor | None = None

    async def _run(self, function: Callable[..., _T], *arguments: Any, **options: Any) -> _T:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="ottla-cluster")
        call = partial(function, *arguments, **options)
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    async def run(self, method: Callable[..., _T], *arguments: Any, **options: Any) -> _T:
        """Runs any method of `kafka.sync` or of a node."""
        return await self._run(method, *arguments, **options)

    async def close(self) -> None:
        await super().close()
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None

    async def stop(self, node: int) -> None:
        await self._run(self.sync.stop, node)

    async def kill(self, node: int) -> None:
        await self._run(self.sync.kill, node)

    async def pause(self, node: int) -> None:
        await self._run(self.sync.pause, node)

    async def resume(self, node: int) -> None:
        await self._run(self.sync.resume, node)

    async def restart(self, node: int) -> None:
        await self._run(self.sync.restart, node)

    async def isolate(self, *nodes: int, clients: bool = True) -> None:
        await self._run(self.sync.isolate, *nodes, clients=clients)

    async def heal(self) -> None:
        await self._run(self.sync.heal)

    async def move_leader(self, topic: str, partition: int, node: int, **options: Any) -> None:
        await self._run(self.sync.move_leader, topic, partition, node, **options)

    async def move_coordinator(self, group: str, node: int, **options: Any) -> None:
        await self._run(self.sync.move_coordinator, group, node, **options)
