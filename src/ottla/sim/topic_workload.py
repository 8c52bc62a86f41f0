"""Topics that are deleted and created again under the same name, while the broker's process and power fail.

No file and no checkpoint entry of a deleted topic may affect the next topic with its name. Records are deleted, logs
are compacted, their cleanup.policy changes, and they move between data directories.
"""

import asyncio
import datetime
from random import Random
from uuid import UUID

from kio.schema.alter_replica_log_dirs.v2.request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kio.schema.delete_records.v2.request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

from ottla.model.config import ResourceType
from ottla.model.errors import ErrorCode
from ottla.records.records import Record, build_batch
from ottla.sim.client import SimClient
from ottla.sim.env import World
from ottla.sim.history import Violation
from ottla.sim.node import HOST, PORT, BrokerNode, Chaos
from ottla.sim.partition_clients import RETRIABLE, RETRY_PAUSE_S, create_topic_with_retries, records_of
from ottla.sim.topic_history import TopicHistory, Written
from ottla.sim.workload import run_within_time_limit

_POLICIES = {"events": "delete", "table": "compact", "mixed": "compact,delete"}
_TOPICS_PER_NAME = 5
_STEPS_PER_TOPIC_MAX = 25
_KEYS = 5
_RECORDS_PER_BATCH_MAX = 6
_PAUSE_S_MAX = 0.6
_TIMEOUT = datetime.timedelta(seconds=5)
# Checkpoint entries of a deleted topic must stay long enough for a crash to happen.
_CONFIG = {
    "log.flush.start.offset.checkpoint.interval.ms": "10000",
    "log.cleaner.backoff.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
}
_TOPIC_CONFIG = {"segment.ms": "1500", "min.cleanable.dirty.ratio": "0.01", "index.interval.bytes": "600"}
_SET = 0


async def run_topic_workload(world: World) -> None:
    """Raises Violation if the broker breaks a guarantee."""
    await run_within_time_limit(_run(world))


async def _run(world: World) -> None:
    flushes = world.seed % 2 == 1
    paths = ["/data"] if world.seed % 3 else ["/one", "/two"]
    world.trace.note(f"seed {world.seed}, flush.messages {'1' if flushes else 'default'}, in {paths}")
    node = BrokerNode(world, _CONFIG | {"log.dirs": ",".join(paths)})
    await node.start()
    users = [_TopicUser(world, name, flushes=flushes, paths=paths) for name in _POLICIES]
    chaos = Chaos(world, node, [user.name for user in users], flushes=flushes)
    async with asyncio.TaskGroup() as around:
        breaking = around.create_task(chaos.run())
        async with asyncio.TaskGroup() as using:
            for user in users:
                using.create_task(user.run())
        chaos.is_over = True
        await breaking
    await node.stop()


class _TopicUser:
    """Creates a topic, uses it, checks it and deletes it, several times with the same name."""

    def __init__(self, world: World, name: str, *, flushes: bool, paths: list[str]) -> None:
        self.name = name
        self._world = world
        self._random: Random = world.derive()
        self._client = SimClient(world.network.host(name), (HOST, PORT), name, timeout_s=5.0)
        self._configs = _TOPIC_CONFIG | ({"flush.messages": "1"} if flushes else {})
        self._paths = paths
        self._number = 0
        self._topic_id: UUID
        self._history: TopicHistory

    async def run(self) -> None:
        for incarnation in range(_TOPICS_PER_NAME):
            policy = _POLICIES[self.name]
            self._history = TopicHistory(f"{self.name}-{incarnation}")
            self._history.was_compacted = "compact" in policy
            configs = self._configs | {"cleanup.policy": policy}
            self._topic_id = await create_topic_with_retries(self._client, self.name, 1, configs)
            self._world.acknowledged.set()
            for _ in range(self._random.randrange(_STEPS_PER_TOPIC_MAX)):
                await self._step()
                await asyncio.sleep(self._random.random() * _PAUSE_S_MAX)
            await self._check()
            await self._delete_topic()

    async def _step(self) -> None:
        (step,) = self._random.choices(
            (self._produce, self._delete_records, self._change_policy, self._move, self._check),
            weights=(20, 4, 2, 1, 2),
        )
        try:
            await step()
        except OSError:
            await asyncio.sleep(RETRY_PAUSE_S)

    async def _produce(self) -> None:
        records = []
        for index in range(self._random.randint(1, _RECORDS_PER_BATCH_MAX)):
            self._number += 1
            value = f"{self._history.incarnation}/{self._number}".encode()
            key = b"k%d" % self._random.randrange(_KEYS)
            records.append(Record(index, self._world.clock.now_ms(), key, value))
        response = await self._client.produce(self._topic_id, 0, build_batch(records))
        self._expect_retriable("Produce", response.error_code)
        if response.error_code != ErrorCode.none:
            return
        for index, record in enumerate(records):
            written = Written(record.key or b"", record.value or b"")
            self._history.acknowledged[response.base_offset + index] = written
        self._world.acknowledged.set()

    async def _delete_records(self) -> None:
        start, end = self._history.requested_start, self._history.next_offset
        offset = self._random.randint(start, max(start, end))
        self._history.requested_start = offset
        partition = DeleteRecordsPartition(partition_index=0, offset=offset)
        response = await self._client.request(
            DeleteRecordsRequest(
                topics=(DeleteRecordsTopic(name=self.name, partitions=(partition,)),), timeout=_TIMEOUT
            )
        )
        error = response.topics[0].partitions[0].error_code
        if error == ErrorCode.policy_violation:  # the topic is compacted
            self._history.requested_start = start
        else:
            self._expect_retriable("DeleteRecords", error)

    async def _change_policy(self) -> None:
        policy = self._random.choice(sorted(_POLICIES.values()))
        self._history.was_compacted |= "compact" in policy
        config = AlterableConfig(name="cleanup.policy", config_operation=_SET, value=policy)
        resource = AlterConfigsResource(
            resource_type=ResourceType.TOPIC, resource_name=self.name, configs=(config,)
        )
        response = await self._client.request(
            IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
        )
        self._expect_retriable("IncrementalAlterConfigs", response.responses[0].error_code)

    async def _move(self) -> None:
        topic = AlterReplicaLogDirTopic(name=self.name, partitions=(0,))
        move = AlterReplicaLogDir(path=self._random.choice(self._paths), topics=(topic,))
        response = await self._client.request(AlterReplicaLogDirsRequest(dirs=(move,)))
        self._expect_retriable("AlterReplicaLogDirs", response.results[0].partitions[0].error_code)

    async def _delete_topic(self) -> None:
        topic = DeleteTopicState(name=None, topic_id=self._topic_id)
        while True:
            try:
                response = await self._client.request(DeleteTopicsRequest(topics=(topic,), timeout=_TIMEOUT))
                error = response.responses[0].error_code
                if error in (ErrorCode.none, ErrorCode.unknown_topic_id):
                    break
                self._expect_retriable("DeleteTopics", error)
            except OSError:
                pass
            await asyncio.sleep(RETRY_PAUSE_S)
        self._world.acknowledged.set()

    async def _check(self) -> None:
        """Reads the partition from the requested start on and compares it with the acknowledged records."""
        history, log = self._history, dict[int, Written]()
        offset, high_watermark = history.requested_start, -1
        while high_watermark < 0 or offset < high_watermark:
            try:
                response = await self._client.fetch(self._topic_id, 0, offset, max_wait_ms=0)
            except OSError:
                await asyncio.sleep(RETRY_PAUSE_S)
                continue
            if response.error_code != ErrorCode.none:
                self._expect_retriable(f"Fetch of {history.incarnation} at {offset}", response.error_code)
                await asyncio.sleep(RETRY_PAUSE_S)
                continue
            high_watermark = response.high_watermark
            history.check_bounds(response.log_start_offset, high_watermark)
            found = [record for record in records_of(response) if record.offset >= offset]
            log |= {record.offset: Written(record.key or b"", record.value or b"") for record in found}
            # Compaction may have removed the records before the high watermark.
            offset = found[-1].offset + 1 if found else high_watermark
        history.check_log(log)

    def _expect_retriable(self, request: str, error: ErrorCode) -> None:
        if error != ErrorCode.none and error not in RETRIABLE:
            raise Violation(f"{request} got {error.name}")
