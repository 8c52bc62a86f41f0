"""A real broker on a virtual-time loop with a simulated disk, and a client that speaks any version of any API."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from struct import pack, unpack
from typing import Any
from uuid import UUID

from kio.index import load_request_schema
from kio.schema.create_topics.v7.request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kio.schema.fetch.v17.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.produce.v12.request import PartitionProduceData, ProduceRequest, TopicProduceData

from ottla.broker.node import Broker
from ottla.broker.services import BrokerServices
from ottla.env import Env
from ottla.env.network import Stream
from ottla.model.config import BrokerConfig, ResourceType
from ottla.model.errors import ErrorCode
from ottla.protocol.messages import converter
from ottla.records.records import Record, build_batch, read_batches
from ottla.sim.client import SimClient
from ottla.sim.disk import SimDisk
from ottla.sim.env import SimProcess, World, simulate

HOST, PORT = "broker", 9092
CONFIG = {
    "node.id": "1",
    "listeners": f"PLAINTEXT://{HOST}:{PORT}",
    "log.index.size.max.bytes": "65536",
}
NO_WAIT = timedelta()


class Bench:
    """One broker and one client. The disk is kept when a test stops and starts the broker."""

    broker: Broker

    def __init__(self, world: World, config: dict[str, str], directories: tuple[str, ...]) -> None:
        self.world = world
        self.config = CONFIG | {"log.dirs": ",".join(directories)} | config
        self.disk: SimDisk = world.new_disk(*directories)
        self.client = self.new_client("client")
        self._process: SimProcess
        self._serving: asyncio.Task[None]
        self._stop = asyncio.Event()

    def new_client(self, name: str) -> SimClient:
        return SimClient(self.world.network.host(name), (HOST, PORT), name)

    @property
    def services(self) -> BrokerServices:
        return self.broker.services

    # -- the broker

    async def start(self, **config: str) -> None:
        """Keywords are configs of this run, with `_` for the dots."""
        self._process = self.world.process(HOST, self.disk)
        self._stop = asyncio.Event()
        ready = asyncio.get_running_loop().create_future()
        settings = self.config | {name.replace("_", "."): value for name, value in config.items()}

        async def serve(env: Env) -> None:
            async with await Broker.start(BrokerConfig(settings), env) as broker:
                self.broker = broker
                ready.set_result(None)
                with self.disk.watched_loop():
                    await self._stop.wait()

        self._serving = asyncio.create_task(self._process.run(serve))
        await asyncio.wait([self._serving, ready], return_when=asyncio.FIRST_COMPLETED)
        if self._serving.done():
            await self._bury()
            self._serving.result()

    async def stop(self) -> None:
        self._stop.set()
        await self._serving
        await self._bury()

    async def kill(self) -> None:
        """kill -9: the page cache survives."""
        await self._bury()
        await asyncio.gather(self._serving, return_exceptions=True)

    async def lose_power(self) -> None:
        await self._process.lose_power()
        await asyncio.gather(self._serving, return_exceptions=True)
        self.disk = self.disk.reopen()
        self.client = self.new_client("client")  # the old one was not notified, and would wait

    async def _bury(self) -> None:
        await self._process.kill()
        self.disk = self.disk.reopen()

    # -- requests

    async def ask(self, message: Any, version: int | None = None) -> Any:
        """Sends `message`, lowered to `version` if one is given. The response has that version."""
        if version is not None and version != message.__version__:
            newest: Any = type(message)
            lowered: Any = load_request_schema(message.__api_key__, version)
            message = converter(newest, lowered)(message)
        return await self.client.request(message)

    async def create(self, topic: str, partitions: int = 1, **configs: str) -> UUID:
        """Keywords are topic configs, with `_` for the dots."""
        request = CreateTopicsRequest(
            topics=(
                CreatableTopic(
                    name=topic,
                    num_partitions=partitions,
                    replication_factor=1,
                    assignments=(),
                    configs=tuple(
                        CreatableTopicConfig(name=name.replace("_", "."), value=value)
                        for name, value in configs.items()
                    ),
                ),
            )
        )
        (result,) = (await self.ask(request)).topics
        assert result.error_code is ErrorCode.none, result.error_message
        topic_id: UUID = result.topic_id
        return topic_id

    async def configure(self, resource_type: ResourceType, name: str, **configs: str | None) -> ErrorCode:
        """Sets configs (keywords with `_` for the dots); None deletes one."""
        request = IncrementalAlterConfigsRequest(
            resources=(
                AlterConfigsResource(
                    resource_type=resource_type,
                    resource_name=name,
                    configs=tuple(
                        AlterableConfig(
                            name=key.replace("_", "."),
                            config_operation=0 if value is not None else 1,
                            value=value,
                        )
                        for key, value in configs.items()
                    ),
                ),
            ),
            validate_only=False,
        )
        (result,) = (await self.ask(request)).responses
        code: ErrorCode = result.error_code
        return code

    def batch(self, *values: bytes, timestamp: int | None = None, **options: Any) -> bytes:
        now_ms = self.world.clock.now_ms() if timestamp is None else timestamp
        return build_batch([Record(i, now_ms, b"key", value) for i, value in enumerate(values)], **options)

    async def produce(
        self, topic: str, *values: bytes, partition: int = 0, records: bytes | None = None, acks: int = -1
    ) -> Any:
        """The response for the partition."""
        data = self.batch(*values) if records is None else records
        response = await self.ask(produce_request(topic, data, partition=partition, acks=acks))
        return response.responses[0].partition_responses[0]

    async def read(self, topic_id: UUID, offset: int = 0, partition: int = 0) -> list[bytes | None]:
        """The values from `offset` on that one fetch returns."""
        response = await self.ask(fetch_request(topic_id, fetched(offset, partition)))
        (answer,) = response.responses[0].partitions
        assert answer.error_code is ErrorCode.none
        return values_in(answer.records)


class Raw:
    """A client that sends raw bytes."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.data = b""
        self.is_closed = False
        self._space = bytearray(4096)

    @classmethod
    async def connect(cls, bench: Bench, name: str = "raw") -> "Raw":
        stream: Any = await bench.world.network.host(name).connect(HOST, PORT, cls)
        raw: Raw = stream._receiver
        return raw

    def buffer(self) -> memoryview:
        return memoryview(self._space)

    def received(self, count: int) -> None:
        self.data += self._space[:count]

    def drained(self) -> None: ...

    def closed(self, error: OSError | None) -> None:
        self.is_closed = True

    def send(self, api_key: int, version: int, body: bytes = b"", correlation_id: int = 7) -> None:
        request = pack(">hhih", api_key, version, correlation_id, -1) + body
        self.stream.send([pack(">i", len(request)) + request])

    async def response(self) -> bytes:
        """The next response, with its correlation id, without its length."""
        await until(lambda: len(self.data) >= 4 and len(self.data) >= 4 + unpack(">i", self.data[:4])[0])
        end = 4 + unpack(">i", self.data[:4])[0]
        response, self.data = self.data[4:end], self.data[end:]
        return response


def produce_request(
    topic: str, records: bytes | None, *, partition: int = 0, acks: int = -1
) -> ProduceRequest:
    return ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout=timedelta(seconds=5),
        topic_data=(
            TopicProduceData(
                name=topic, partition_data=(PartitionProduceData(index=partition, records=records),)
            ),
        ),
    )


def fetched(offset: int = 0, partition: int = 0, max_bytes: int = 1 << 20, **options: Any) -> FetchPartition:
    return FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes, **options)


def fetch_request(topic_id: UUID | None, *partitions: FetchPartition, **options: Any) -> FetchRequest:
    """Does not wait, unless `max_wait` is set."""
    defaults: dict[str, Any] = {
        "max_wait": NO_WAIT,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "topics": (FetchTopic(topic_id=topic_id, partitions=partitions),),
        "forgotten_topics_data": (),
    }
    return FetchRequest(**(defaults | options))


def values_in(records: bytes | None) -> list[bytes | None]:
    return [record.value for batch in read_batches(records or b"") for record in batch.records]


async def until(condition: Callable[[], bool], every_s: float = 0.001) -> None:
    """Polls `condition`, mostly in virtual time; the time limit of the test ends it."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(every_s)


def on_broker(
    *, directories: Sequence[str] = ("/data",), started: bool = True, **config: str
) -> Callable[[Callable[[Bench], Awaitable[None]]], Callable[[], None]]:
    """Runs a test in a simulated world with a broker; keywords are its configs, with `_` for the dots."""

    def decorate(test: Callable[[Bench], Awaitable[None]]) -> Callable[[], None]:
        async def main(world: World) -> None:
            settings = {name.replace("_", "."): value for name, value in config.items()}
            bench = Bench(world, settings, tuple(directories))
            async with asyncio.timeout(3600):
                if started:
                    await bench.start()
                await test(bench)
                if started:
                    await bench.stop()

        def run() -> None:
            simulate(main, 1)

        run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
        return run

    return decorate
