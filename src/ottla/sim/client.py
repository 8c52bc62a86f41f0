"""A small Kafka client for simulation: kio's messages over an `ottla.env.network.Network`, in virtual time.

It shares no code with the broker but the builder and the headers of batches: kio encodes the requests and decodes the
responses. Every network failure (connection refused, reset, no response in time) is an OSError.
"""

import asyncio
import datetime
from io import BytesIO
from itertools import count
from struct import Struct
from typing import Any
from uuid import UUID

from kio.index import load_response_schema
from kio.schema.create_topics.v7.request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v17.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.fetch.v17.response import PartitionData
from kio.schema.init_producer_id.v5.request import InitProducerIdRequest
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v12.response import MetadataResponse
from kio.schema.produce.v13.request import PartitionProduceData, ProduceRequest, TopicProduceData
from kio.schema.produce.v13.response import PartitionProduceResponse
from kio.serial import entity_reader, entity_writer

from ottla.env.network import Network, Stream
from ottla.records.header import HEADER_SIZE, read_header
from ottla.sim.history import Violation
from ottla.sim.network import SimStream

_INT32 = Struct(">i")
_MAX_BYTES = 1 << 20
_RECONNECT_BACKOFF_S = 0.05  # as in Kafka's clients


class _Connection:
    """Splits the stream into responses and completes the futures that wait for them."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.is_open = True
        self.waiting: dict[int, asyncio.Future[bytes]] = {}
        self._space = bytearray(4096)
        self._data = bytearray()

    def buffer(self) -> memoryview:
        return memoryview(self._space)

    def received(self, count: int) -> None:
        self._data += self._space[:count]
        while len(self._data) >= 4:
            end = 4 + _INT32.unpack_from(self._data)[0]
            if len(self._data) < end:
                return
            frame = bytes(self._data[4:end])
            del self._data[:end]
            future = self.waiting.pop(_INT32.unpack_from(frame)[0])
            if not future.done():
                future.set_result(frame)

    def drained(self) -> None:
        """Not needed: the client sends little."""

    def closed(self, error: OSError | None) -> None:
        self.is_open = False
        for future in self.waiting.values():
            if not future.done():
                future.set_exception(error or ConnectionResetError("the broker closed the connection"))
        self.waiting.clear()


class SimClient:
    """`resets_on_timeout`: a request that timed out cannot arrive later, because the connection is reset.

    After a failed connect it waits before the next one, longer each time, up to `reconnect_backoff_s_max`.
    """

    def __init__(
        self,
        network: Network,
        address: tuple[str, int],
        client_id: str,
        timeout_s: float = 10.0,
        *,
        resets_on_timeout: bool = False,
        reconnect_backoff_s_max: float = 0.0,
    ) -> None:
        self._network = network
        self._address = address
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._resets_on_timeout = resets_on_timeout
        self._reconnect_backoff_s_max = reconnect_backoff_s_max
        self._reconnect_backoff_s = 0.0
        self._correlation_ids = count(1)
        self._connection: _Connection | None = None
        self._connecting = asyncio.Lock()

    async def request(self, message: Any, timeout_s: float | None = None) -> Any:
        """Sends a request and returns its response, both kio messages. Several requests may be in flight."""
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        connection = await self._connected()
        correlation_id = next(self._correlation_ids)
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        connection.waiting[correlation_id] = future
        connection.stream.send([self._frame(message, correlation_id)])
        try:
            async with asyncio.timeout(timeout_s):
                frame = await future
        except TimeoutError:
            connection.is_open = False
            if self._resets_on_timeout and isinstance(connection.stream, SimStream):
                connection.stream.reset("the client gave up")
            connection.stream.close()
            raise TimeoutError(f"no response to {type(message).__name__} in {timeout_s} s") from None
        schema = load_response_schema(message.__api_key__, message.__version__)
        _, position = entity_reader(schema.__header_schema__)(frame, 0)
        response, size = entity_reader(schema)(frame, position)
        if position + size != len(frame):
            raise AssertionError(f"{len(frame) - position - size} bytes follow a {schema.__name__}")
        return response

    async def try_request(self, message: Any, timeout_s: float | None = None) -> Any:
        """Returns None instead of raising OSError: whether the broker has processed the request is not known."""
        try:
            return await self.request(message, timeout_s)
        except OSError:
            return None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.stream.close()

    async def create_topic(
        self, name: str, partitions: int, configs: dict[str, str], replication_factor: int = 1
    ) -> ErrorCode:
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            assignments=(),
            configs=tuple(CreatableTopicConfig(name=key, value=value) for key, value in configs.items()),
        )
        response = await self.request(CreateTopicsRequest(topics=(topic,)))
        error: ErrorCode = response.topics[0].error_code
        return error

    async def metadata(self, *topics: str) -> MetadataResponse:
        wanted = tuple(MetadataRequestTopic(topic_id=None, name=name) for name in topics)
        response: MetadataResponse = await self.request(
            MetadataRequest(
                topics=wanted, allow_auto_topic_creation=False, include_topic_authorized_operations=False
            )
        )
        return response

    async def init_producer_id(self) -> tuple[ErrorCode, int, int]:
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout=datetime.timedelta(minutes=1)
        )
        response = await self.request(request)
        return response.error_code, response.producer_id, response.producer_epoch

    async def produce(
        self, topic_id: UUID, partition: int, batch: bytes, acks: int = -1
    ) -> PartitionProduceResponse:
        data = PartitionProduceData(index=partition, records=batch)
        request = ProduceRequest(
            acks=acks,
            timeout=datetime.timedelta(seconds=self._timeout_s),
            topic_data=(TopicProduceData(topic_id=topic_id, partition_data=(data,)),),
        )
        response = await self.request(request)
        partition_response: PartitionProduceResponse = response.responses[0].partition_responses[0]
        return partition_response

    async def fetch(
        self, topic_id: UUID, partition: int, offset: int, max_wait_ms: int = 1500, isolation_level: int = 0
    ) -> PartitionData:
        wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=_MAX_BYTES)
        request = FetchRequest(
            max_wait=datetime.timedelta(milliseconds=max_wait_ms),
            min_bytes=1,
            max_bytes=_MAX_BYTES,
            isolation_level=isolation_level,
            topics=(FetchTopic(topic_id=topic_id, partitions=(wanted,)),),
            forgotten_topics_data=(),
        )
        response = await self.request(request)
        data: PartitionData = response.responses[0].partitions[0]
        check_order(data.records or b"", offset)
        return data

    def see_leader_epoch(self, topic_id: UUID, partition: int, leader_epoch: int) -> None:
        """The partition has had a leader of this epoch (KIP-320). A client of one broker has no other to avoid."""

    async def _connected(self) -> _Connection:
        async with self._connecting:
            if self._connection is None or not self._connection.is_open:
                self._connection = None
                await self._connect()
            assert self._connection is not None
            return self._connection

    async def _connect(self) -> None:
        if self._reconnect_backoff_s:
            await asyncio.sleep(self._reconnect_backoff_s)
        try:
            await self._network.connect(*self._address, self._new_connection)
        except OSError:
            longer_s = max(2 * self._reconnect_backoff_s, _RECONNECT_BACKOFF_S)
            self._reconnect_backoff_s = min(longer_s, self._reconnect_backoff_s_max)
            raise
        self._reconnect_backoff_s = 0.0

    def _new_connection(self, stream: Stream) -> _Connection:
        self._connection = _Connection(stream)
        return self._connection

    def _frame(self, message: Any, correlation_id: int) -> bytes:
        buffer = BytesIO()
        schema = message.__header_schema__
        header = schema(
            request_api_key=message.__api_key__,
            request_api_version=message.__version__,
            correlation_id=correlation_id,
            client_id=self._client_id,
        )
        entity_writer(schema)(buffer, header)
        entity_writer(type(message))(buffer, message)
        frame = buffer.getvalue()
        return _INT32.pack(len(frame)) + frame


def error_of(response: Any) -> ErrorCode:
    """The error code of a response, or REQUEST_TIMED_OUT if there is no response."""
    code: ErrorCode = ErrorCode.request_timed_out if response is None else response.error_code
    return code


def check_order(records: bytes, offset: int) -> None:
    """Raises Violation if a fetch from `offset` got a batch that the consumer has passed. The first batch may begin
    before the offset, because a batch is sent as a whole; the last one may be cut off.
    """
    position, next_offset = 0, offset
    while len(records) - position >= HEADER_SIZE:
        header = read_header(records, position)
        if header.last_offset < next_offset or (position and header.base_offset < next_offset):
            raise Violation(
                f"non-monotonic poll: a fetch from offset {offset} got a batch with offsets {header.base_offset} to "
                f"{header.last_offset} where {next_offset} is next"
            )
        next_offset = header.next_offset
        position += header.size
