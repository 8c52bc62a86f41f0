"""Topics that are deleted and created again under the same name, while the broker's process and power fail.

Nothing of a topic may show in the next one of its name, or take a record from it: no offset in a checkpoint, no file.
Records are deleted, logs are compacted, their cleanup.policy changes, and they move between data directories.
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
from ottla.sim.single_broker import first_of
from ottla.sim.topic_history import TopicHistory, Written
from ottla.sim.workload import RETRIABLE, RETRY_PAUSE_S, records_of, until_it_works

POLICIES = {"events": "delete", "table": "compact", "mixed": "compact,delete"}
LIVES = 5  # of each name
STEPS_PER_LIFE = 25
KEYS = 5
RECORDS_PER_BATCH_MAX = 6
PAUSE_S_MAX = 0.6
TIME_LIMIT_S = 3600.0
TIMEOUT = datetime.timedelta(seconds=5)
# What a deleted topic leaves in a checkpoint must stay there long enough to meet a crash.
CONFIG = {
    "log.flush.start.offset.checkpoint.interval.ms": "10000",
    "log.cleaner.backoff.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
}
TOPIC_CONFIG = {"segment.ms": "1500", "min.cleanable.dirty.ratio": "0.01", "index.interval.bytes": "600"}
_SET = 0


async def topics(world: World) -> None:
    """Raises Violation where the broker broke a promise."""
    flushes = world.seed % 2 == 1
    paths = ["/data"] if world.seed % 3 else ["/one", "/two"]
    world.trace.note(f"seed {world.seed}, flush.messages {'1' if flushes else 'default'}, in {paths}")
    node = BrokerNode(world, CONFIG | {"log.dirs": ",".join(paths)})
    await node.start()
    users = [TopicUser(world, name, flushes=flushes, paths=paths) for name in POLICIES]
    chaos = Chaos(world, node, [user.name for user in users], flushes=flushes)
    try:
        async with asyncio.timeout(TIME_LIMIT_S), asyncio.TaskGroup() as around:
            breaking = around.create_task(chaos.run())
            async with asyncio.TaskGroup() as using:
                for user in users:
                    using.create_task(user.run())
            chaos.is_over = True
            await breaking
    except TimeoutError:
        raise Violation(f"not done after {TIME_LIMIT_S:.0f} s of virtual time: no progress") from None
    except BaseExceptionGroup as group:
        raise first_of(group) from None
    await node.stop()


class TopicUser:
    """Creates a topic, uses it, checks it, deletes it, and begins again with the same name."""

    def __init__(self, world: World, name: str, *, flushes: bool, paths: list[str]) -> None:
        self.name = name
        self._world = world
        self._random: Random = world.derive()
        self._client = SimClient(world.network.host(name), (HOST, PORT), name, timeout_s=5.0)
        self._configs = TOPIC_CONFIG | ({"flush.messages": "1"} if flushes else {})
        self._paths = paths
        self._number = 0
        self._topic_id: UUID
        self._history: TopicHistory

    async def run(self) -> None:
        for life in range(LIVES):
            policy = POLICIES[self.name]
            self._history = TopicHistory(f"{self.name}-{life}")
            self._history.was_compacted = "compact" in policy
            configs = self._configs | {"cleanup.policy": policy}
            self._topic_id = await until_it_works(self._client, self.name, 1, configs)
            self._world.acknowledged.set()
            for _ in range(self._random.randrange(STEPS_PER_LIFE)):
                await self._step()
                await asyncio.sleep(self._random.random() * PAUSE_S_MAX)
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
        for index in range(self._random.randint(1, RECORDS_PER_BATCH_MAX)):
            self._number += 1
            value = f"{self._history.life}/{self._number}".encode()
            key = b"k%d" % self._random.randrange(KEYS)
            records.append(Record(index, self._world.clock.now_ms(), key, value))
        answer = await self._client.produce(self._topic_id, 0, build_batch(records))
        self._expect_retriable("Produce", answer.error_code)
        if answer.error_code != ErrorCode.none:
            return
        for index, record in enumerate(records):
            written = Written(record.key or b"", record.value or b"")
            self._history.acknowledged[answer.base_offset + index] = written
        self._world.acknowledged.set()

    async def _delete_records(self) -> None:
        start, end = self._history.asked_start, self._history.next_offset
        offset = self._random.randint(start, max(start, end))
        self._history.asked_start = offset
        partition = DeleteRecordsPartition(partition_index=0, offset=offset)
        response = await self._client.request(
            DeleteRecordsRequest(
                topics=(DeleteRecordsTopic(name=self.name, partitions=(partition,)),), timeout=TIMEOUT
            )
        )
        error = response.topics[0].partitions[0].error_code
        if error == ErrorCode.policy_violation:  # the topic is compacted
            self._history.asked_start = start
        else:
            self._expect_retriable("DeleteRecords", error)

    async def _change_policy(self) -> None:
        policy = self._random.choice(sorted(POLICIES.values()))
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
                response = await self._client.request(DeleteTopicsRequest(topics=(topic,), timeout=TIMEOUT))
                error = response.responses[0].error_code
                if error in (ErrorCode.none, ErrorCode.unknown_topic_id):
                    break
                self._expect_retriable("DeleteTopics", error)
            except OSError:
                pass
            await asyncio.sleep(RETRY_PAUSE_S)
        self._world.acknowledged.set()

    async def _check(self) -> None:
        """Reads all from the offset before which records were deleted, and compares it with what was acknowledged."""
        history, log = self._history, dict[int, Written]()
        offset, high_watermark = history.asked_start, -1
        while high_watermark < 0 or offset < high_watermark:
            try:
                answer = await self._client.fetch(self._topic_id, 0, offset, max_wait_ms=0)
            except OSError:
                await asyncio.sleep(RETRY_PAUSE_S)
                continue
            if answer.error_code != ErrorCode.none:
                self._expect_retriable(f"Fetch of {history.life} at {offset}", answer.error_code)
                await asyncio.sleep(RETRY_PAUSE_S)
                continue
            high_watermark = answer.high_watermark
            history.check_bounds(answer.log_start_offset, high_watermark)
            found = [record for record in records_of(answer) if record.offset >= offset]
            log |= {record.offset: Written(record.key or b"", record.value or b"") for record in found}
            # Compaction may have removed the records before the high watermark.
            offset = found[-1].offset + 1 if found else high_watermark
        history.check_log(log)

    def _expect_retriable(self, request: str, error: ErrorCode) -> None:
        if error != ErrorCode.none and error not in RETRIABLE:
            raise Violation(f"{request} was answered with {error.name}")
