"""Clients of a simulated cluster: producers without idempotence, committers of offsets, and users of short topics."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from random import Random

from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState

from ottla.model.errors import ErrorCode
from ottla.records.records import Record, build_batch
from ottla.sim.client import SimClient
from ottla.sim.env import World
from ottla.sim.group_client import GroupClient, Identity, Topic
from ottla.sim.history import PartitionHistory, Value, Violation
from ottla.sim.partition_clients import RETRIABLE, RETRY_PAUSE_S, create_topic_with_retries

_PAUSE_S_MAX = 2.0
_TOPIC_PAUSE_S_MAX = 30.0
_DELETE_TIMEOUT = timedelta(seconds=5)
_COMMIT_RETRIABLE = RETRIABLE | {ErrorCode.not_coordinator}


class PlainProducer:
    """Sends one record after the other without a producer id, and retries each until it is acknowledged."""

    def __init__(
        self,
        world: World,
        client: SimClient,
        history: PartitionHistory,
        name: str,
        topic: Topic,
        partition: int,
    ) -> None:
        self._client = client
        self._history = history
        self._name = name
        self._topic = topic
        self._partition = partition
        self._random = world.derive()
        self._now_ms = world.clock.now_ms
        self._acknowledged = world.acknowledged

    async def run(self, is_over: Callable[[], bool]) -> None:
        number = 0
        while not is_over():
            await self._send(Value(self._name, number))
            number += 1
            await asyncio.sleep(self._random.random() * _PAUSE_S_MAX)

    async def _send(self, value: Value) -> None:
        self._history.attempted.add(value)
        batch = build_batch([Record(0, self._now_ms(), value.encode(), bytes(self._random.randrange(200)))])
        while True:
            try:
                response = await self._client.produce(self._topic.topic_id, self._partition, batch)
            except OSError:
                await asyncio.sleep(RETRY_PAUSE_S)
                continue
            if response.error_code == ErrorCode.none:
                self._history.acknowledge(value, response.base_offset)
                self._acknowledged.set()
                return
            if response.error_code not in RETRIABLE:
                raise Violation(f"{self._name} got {response.error_code.name} for {value}")
            await asyncio.sleep(RETRY_PAUSE_S)


class Committer:
    """The only client of its group, which has no members: it commits larger and larger offsets."""

    def __init__(self, client: SimClient, random: Random, group_id: str, topic: Topic) -> None:
        self._client = GroupClient(client, group_id, topic)
        self._random = random
        self._group_id = group_id
        self._offset = 0
        self._acknowledged = -1

    async def run(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            await self.commit_next()
            await asyncio.sleep(self._random.random() * _PAUSE_S_MAX)

    async def commit_next(self) -> None:
        """A commit without a response may still take effect later, so it is retried until there is one."""
        self._offset += 1
        offset = self._offset
        while True:
            error = await self._client.commit(Identity(), 0, offset, str(offset))
            if error == ErrorCode.none:
                self._acknowledged = offset
                return
            if error not in _COMMIT_RETRIABLE:
                raise Violation(f"a commit of group {self._group_id} got {error.name}")
            await asyncio.sleep(RETRY_PAUSE_S)

    async def check(self) -> None:
        """The committed offset must be the last acknowledged one. Call it without faults."""
        while True:
            error, found = await self._client.committed([0])
            if error == ErrorCode.none and found[0].error_code == ErrorCode.none:
                break
            await asyncio.sleep(RETRY_PAUSE_S)
        if found[0].offset != self._acknowledged:
            raise Violation(
                f"lost write: group {self._group_id} committed offset {self._acknowledged}, but the coordinator has "
                f"{found[0].offset}"
            )


class TopicUser:
    """Creates a topic, writes to it, deletes it, and so on."""

    def __init__(self, world: World, client: SimClient, replication_factor: int, prefix: str) -> None:
        self._client = client
        self._random = world.derive()
        self._now_ms = world.clock.now_ms
        self._replication_factor = replication_factor
        self._prefix = prefix
        self.topics: list[str] = []

    async def run(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            name = f"{self._prefix}-{len(self.topics)}"
            self.topics.append(name)
            topic_id = await create_topic_with_retries(self._client, name, 2, {}, self._replication_factor)
            batch = build_batch([Record(0, self._now_ms(), b"key", bytes(100))])
            for partition in range(2):
                try:
                    await self._client.produce(topic_id, partition, batch)
                except OSError:
                    pass
            await asyncio.sleep(self._random.random() * _TOPIC_PAUSE_S_MAX)
            await delete_topic_with_retries(self._client, name)
            await asyncio.sleep(self._random.random() * _TOPIC_PAUSE_S_MAX)


async def delete_topic_with_retries(client: SimClient, name: str) -> None:
    request = DeleteTopicsRequest(
        topics=(DeleteTopicState(name=name, topic_id=None),),
        timeout=_DELETE_TIMEOUT,
    )
    while True:
        response = await client.try_request(request)
        error = ErrorCode.request_timed_out if response is None else response.responses[0].error_code
        if error in (ErrorCode.none, ErrorCode.unknown_topic_or_partition):
            return
        if error not in RETRIABLE:
            raise Violation(f"DeleteTopics of {name} got {error.name}")
        await asyncio.sleep(RETRY_PAUSE_S)
