"""A transactional producer for tests: every request that a client sends, in the versions of both protocols."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from kio.schema.fetch.v17.request import FetchPartition, FetchRequest, FetchTopic
from tests.unit.broker.broker_bench import Bench, on_broker
from tests.unit.broker.group_bench import message

from ottla.broker.promise import Promise, completed
from ottla.core.coordination import Command
from ottla.model.errors import ErrorCode
from ottla.protocol.api_keys import APIS, ApiKey
from ottla.records.records import read_batches
from ottla.sim.client import SimClient

MINUTE = timedelta(minutes=1)


def on_small_broker(
    *, directories: Sequence[str] = ("/data",), started: bool = True, **config: str
) -> Callable[[Callable[[Bench], Awaitable[None]]], Callable[[], None]]:
    """`on_broker` with internal topics of two partitions, which are created and loaded faster than fifty."""
    small = {"transaction_state_log_num_partitions": "2", "offsets_topic_num_partitions": "2"}
    return on_broker(directories=directories, started=started, **(small | config))


class LocalRuntimes:
    """All transactional ids are coordinated here."""

    def for_key(self, key: str) -> object:
        return self


class FakeTransactions:
    """Completes each command with the response of the test, and records the commands."""

    def __init__(self, answer: Any) -> None:
        self._answer: Callable[[Any], Any] = answer if callable(answer) else lambda command: answer
        self.commands: list[Any] = []
        self.runtimes = LocalRuntimes()

    def submit(self, transactional_id: str, command: Command[Any]) -> Promise[Any]:
        self.commands.append(command)
        return completed(self._answer(command))

    def submit_with_producer_id(self, command: Command[Any]) -> Promise[Any]:
        return self.submit("", command)

    def list_transactions(self, command: Command[Any]) -> Promise[Any]:
        return self.submit("", command)

    async def find_coordinator(self, key: str) -> Any:
        return self._answer(key)

    def reconfigure(self) -> None:
        """Has no effect."""

    def image_changed(self, changes: Any, image: Any) -> None:
        """Has no effect."""


def with_transactions(bench: Bench, answer: Any) -> FakeTransactions:
    """Replaces the coordinator. `answer` is the response to all commands, or a function that computes it."""
    fake: Any = FakeTransactions(answer)
    bench.services.transactions._service = fake
    return fake


class TransactionalProducer:
    """Uses transaction version 2 (KIP-890), or the older protocol, in which the client adds partitions first."""

    def __init__(
        self,
        bench: Bench,
        transactional_id: str = "tx",
        *,
        version_2: bool = True,
        client: SimClient | None = None,
    ) -> None:
        self.bench = bench
        self._client = client
        self.transactional_id = transactional_id
        self.version_2 = version_2
        self.producer_id = -1
        self.epoch = -1
        self._sequences: dict[tuple[str, int], int] = {}

    async def ask(self, key: ApiKey, version: int | None = None, /, **values: Any) -> Any:
        """With this producer's id and epoch, unless `values` have others; in the newest version of its protocol."""
        newest = {
            ApiKey.PRODUCE: 11,
            ApiKey.ADD_PARTITIONS_TO_TXN: 3,
            ApiKey.END_TXN: 4,
            ApiKey.TXN_OFFSET_COMMIT: 4,
        }
        if version is None:
            latest = APIS[key].latest_enabled(unstable=False)
            version = latest if self.version_2 else newest.get(key, latest)
        defaults = {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }
        return await (self._client or self.bench.client).request(message(key, version, **(defaults | values)))

    async def find(self, key_type: int, key: str) -> None:
        response = await self.ask(ApiKey.FIND_COORDINATOR, 4, key_type=key_type, coordinator_keys=(key,))
        assert response.coordinators[0].error_code is ErrorCode.none

    async def init(self, transaction_timeout: timedelta = MINUTE, **values: Any) -> ErrorCode:
        """As a new producer does."""
        await self.find(1, self.transactional_id)
        defaults = {"transaction_timeout": transaction_timeout, "producer_id": -1, "producer_epoch": -1}
        response = await self.ask(ApiKey.INIT_PRODUCER_ID, **(defaults | values))
        if response.error_code is ErrorCode.none:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
            self._sequences.clear()
        code: ErrorCode = response.error_code
        return code

    async def add(self, topic: str, *partitions: int) -> ErrorCode:
        """AddPartitionsToTxn; the code of the first partition."""
        response = await self.ask(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            3,
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[{"name": topic, "partitions": partitions or (0,)}],
        )
        code: ErrorCode = (
            response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        )
        return code

    async def produce(
        self, topic: str, *values: bytes, partition: int = 0, version: int | None = None, **options: Any
    ) -> Any:
        """Sends one batch. Returns the response for its partition. Sequence numbers advance if it is accepted."""
        at = (topic, partition)
        defaults = {
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "base_sequence": self._sequences.get(at, 0),
            "transactional": True,
        }
        records = self.bench.batch(*values, **(defaults | options))
        if version is None:
            version = 12 if self.version_2 else 11
        response = await self.ask(
            ApiKey.PRODUCE,
            version,
            acks=-1,
            timeout=timedelta(seconds=5),
            topic_data=[{"name": topic, "partition_data": [{"index": partition, "records": records}]}],
        )
        (answer,) = response.responses[0].partition_responses
        if answer.error_code is ErrorCode.none:
            self._sequences[at] = self._sequences.get(at, 0) + len(values)
        return answer

    async def send(self, topic: str, *values: bytes, partition: int = 0) -> None:
        """As a client of its protocol does: adds the partition first if that is needed."""
        if not self.version_2:
            assert await self.add(topic, partition) is ErrorCode.none
        answer = await self.produce(topic, *values, partition=partition)
        assert answer.error_code is ErrorCode.none, answer

    async def end(self, commit: bool) -> ErrorCode:
        response = await self.ask(ApiKey.END_TXN, committed=commit)
        if response.error_code is ErrorCode.none and self.version_2:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
            self._sequences.clear()
        code: ErrorCode = response.error_code
        return code

    async def commit(self) -> None:
        assert await self.end(commit=True) is ErrorCode.none

    async def abort(self) -> None:
        assert await self.end(commit=False) is ErrorCode.none

    async def add_offsets(self, group_id: str) -> ErrorCode:
        code: ErrorCode = (await self.ask(ApiKey.ADD_OFFSETS_TO_TXN, group_id=group_id)).error_code
        return code

    async def commit_offset(
        self, group_id: str, topic: str, offset: int, version: int | None = None, **values: Any
    ) -> ErrorCode:
        partition = {
            "partition_index": 0,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        topics = [{"name": topic, "partitions": [partition]}]
        response = await self.ask(
            ApiKey.TXN_OFFSET_COMMIT, version, group_id=group_id, topics=topics, **values
        )
        code: ErrorCode = response.topics[0].partitions[0].error_code
        return code

    async def send_offset(self, group_id: str, topic: str, offset: int) -> None:
        """As a client of its protocol does."""
        await self.find(0, group_id)
        if not self.version_2:
            assert await self.add_offsets(group_id) is ErrorCode.none
        assert await self.commit_offset(group_id, topic, offset) is ErrorCode.none


async def read_committed(
    bench: Bench, topic_id: UUID, offset: int = 0, partition: int = 0
) -> list[bytes | None]:
    """The records of one fetch that a read-committed consumer sees."""
    reader = CommittedReader(bench, topic_id, partition, offset)
    await reader.poll()
    return reader.values


class CommittedReader:
    """A read-committed consumer of one partition: it uses the list of aborted transactions, and markers."""

    def __init__(
        self,
        bench: Bench,
        topic_id: UUID,
        partition: int = 0,
        position: int = 0,
        client: SimClient | None = None,
    ) -> None:
        self.values: list[bytes | None] = []
        self.position = position
        self.last_stable_offset = 0
        self._bench = bench
        self._client = client
        self._topic_id = topic_id
        self._partition = partition

    async def poll(self, **options: Any) -> None:
        client = self._client or self._bench.client
        answer = await fetch_committed(
            self._bench, self._topic_id, self.position, self._partition, client=client, **options
        )
        self.last_stable_offset = answer.last_stable_offset
        aborted = [(each.first_offset, each.producer_id) for each in answer.aborted_transactions]
        aborted.sort()  # they come in the order of their markers
        skipping: set[int] = set()
        start = self.position
        for batch in read_batches(answer.records or b""):
            header = batch.header
            while aborted and aborted[0][0] <= header.last_offset:
                skipping.add(aborted.pop(0)[1])
            if header.is_control:
                skipping.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in skipping):
                self.values += [record.value for record in batch.records if record.offset >= start]
            self.position = header.last_offset + 1


async def fetch_committed(
    bench: Bench, topic_id: UUID, offset: int = 0, partition: int = 0, **options: Any
) -> Any:
    """The result of the partition in a read-committed fetch."""
    wanted = FetchPartition(
        partition=partition,
        fetch_offset=offset,
        partition_max_bytes=options.pop("partition_max_bytes", 1 << 20),
    )
    request = FetchRequest(
        max_wait=options.pop("max_wait", timedelta()),
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=1,
        topics=(FetchTopic(topic_id=topic_id, partitions=(wanted,)),),
        forgotten_topics_data=(),
    )
    client = options.pop("client", bench.client)
    assert not options
    response = await client.request(request)
    (answer,) = response.responses[0].partitions
    assert answer.error_code is ErrorCode.none
    return answer


async def committed_offset(
    bench: Bench, group_id: str, topic: str, *, require_stable: bool = False
) -> int | ErrorCode:
    """-1 if there is none; an error code if it is not stable yet."""
    request = message(
        ApiKey.OFFSET_FETCH,
        9,
        groups=[
            {"group_id": group_id, "member_id": None, "member_epoch": -1,
             "topics": [{"name": topic, "partition_indexes": (0,)}]}
        ],
        require_stable=require_stable,
    )  # fmt: skip
    (group,) = (await bench.ask(request)).groups
    (partition,) = group.topics[0].partitions
    if partition.error_code is not ErrorCode.none:
        code: ErrorCode = partition.error_code
        return code
    offset: int = partition.committed_offset
    return offset
