"""Groups of either protocol, and of both, on one real broker, while the broker and its clients fail.

Members join, leave and die. In half of the runs everything is flushed before it is acknowledged, and the power may
fail. After the last fault every group converges: each partition has an owner, and all records are processed and
committed.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from ottla.model.errors import ErrorCode
from ottla.sim.classic_members import ClassicMember, CooperativeMember
from ottla.sim.client import SimClient
from ottla.sim.consumer_member import ConsumerMember
from ottla.sim.coordinator_audit import check_shards_against_logs, validate_shards
from ottla.sim.env import World
from ottla.sim.group_client import GroupClient, Topic
from ottla.sim.group_history import GroupHistory
from ottla.sim.group_members import OFFSET_FETCH_RETRIABLE, GroupMember, SimGroup
from ottla.sim.group_work import CommitWork
from ottla.sim.history import History, Violation
from ottla.sim.node import HOST, PORT, BrokerNode, Chaos
from ottla.sim.partition_clients import RETRY_PAUSE_S, IdempotentProducer, Reader, create_topic_with_retries
from ottla.sim.workload import TOPIC_CONFIG, run_within_time_limit

_TOPIC = "journal"
_PARTITIONS = 4
_BATCHES_PER_PARTITION = 90
_HOSTS = [f"consumer-{index}" for index in range(3)]
# The coordinator removes a dead member after the session timeout; then follow one or two rebalances.
_CONVERGED_AFTER_S_MAX = 90.0
_AUDIT_INTERVAL_S = 0.5
# Short, so that the auditor reads the offsets after a crash before a new commit hides a lost one.
_AUDIT_RETRY_S = 0.05
_AUDITOR_TIMEOUT_S = 1.0
GROUP_CONFIG = {
    "offsets.topic.num.partitions": "2",
    "log.roll.ms": "4000",
    "log.cleaner.backoff.ms": "2000",
    "log.cleaner.min.cleanable.ratio": "0.1",
    "group.initial.rebalance.delay.ms": "500",
    "group.consumer.min.session.timeout.ms": "8000",
    "group.consumer.session.timeout.ms": "8000",
    "group.consumer.min.heartbeat.interval.ms": "2000",
    "group.consumer.heartbeat.interval.ms": "2000",
}
FLUSHED = {"log.flush.interval.messages": "1"}
_KINDS: dict[str, tuple[type[GroupMember], ...]] = {
    "classic": (ClassicMember,),
    "consumer": (ConsumerMember,),
    "both": (ClassicMember, ConsumerMember),
    "cooperative": (CooperativeMember,),
    "cooperative and consumer": (CooperativeMember, ConsumerMember),
}


class _Auditor:
    """Reads the committed offsets of a group without being a member, and validates the coordinator's state."""

    def __init__(self, world: World, node: BrokerNode, group: SimGroup, topic: Topic) -> None:
        self._node = node
        self.group = group
        client = SimClient(world.network.host("auditor"), (HOST, PORT), "auditor", _AUDITOR_TIMEOUT_S)
        self.client = GroupClient(client, group.history.group_id, topic)
        self._partitions = list(range(topic.partitions))
        self._now_s = asyncio.get_running_loop().time

    async def watch(self) -> None:
        while True:
            committed = await self.committed()
            await asyncio.sleep(_AUDIT_RETRY_S if committed is None else _AUDIT_INTERVAL_S)

    async def committed(self) -> list[int] | None:
        """Returns None if the coordinator could not answer."""
        if self._node.broker is not None:
            validate_shards(self._node.broker)
        start_s = self._now_s()
        error, found = await self.client.committed(self._partitions)
        if error != ErrorCode.none:
            if error not in OFFSET_FETCH_RETRIABLE:
                raise Violation(f"OffsetFetch got {error.name}")
            return None
        for committed in found:
            history = self.group.history[committed.partition]
            history.read(committed.offset, committed.metadata, start_s, self._now_s())
        return [committed.offset for committed in found]

    async def has_converged(self, ends: list[int]) -> bool:
        members = len(self.group.members)
        return (
            self.group.history.is_owned(self._now_s())
            and await self.client.describe() == ("Stable", members)
            and await self.committed() == ends
        )

    async def is_empty(self) -> bool:
        return await self.client.describe() == ("Empty", 0)


async def run_group_workload(world: World) -> None:
    """Raises Violation if the broker breaks a guarantee."""
    await run_within_time_limit(_run(world))


async def _run(world: World) -> None:
    flushes = world.seed % 2 == 1
    world.trace.note(f"seed {world.seed}, flushed {flushes}")
    node = BrokerNode(world, GROUP_CONFIG | (FLUSHED if flushes else {}))
    await node.start()
    client = SimClient(world.network.host("producer"), (HOST, PORT), "producer")
    topic = Topic(
        _TOPIC, await create_topic_with_retries(client, _TOPIC, _PARTITIONS, TOPIC_CONFIG), _PARTITIONS
    )
    history = History()
    producers = [
        IdempotentProducer(client, world.derive(), world.clock.now_ms, history, "p", topic.topic_id, index)
        for index in range(_PARTITIONS)
    ]
    auditors = [_Auditor(world, node, _group(world, kind, topic), topic) for kind in _KINDS]
    async with asyncio.TaskGroup() as tasks:
        await _produce_all(Chaos(world, node, _HOSTS, flushes=flushes), producers, auditors, tasks)
        readers = [Reader(client, history, topic.topic_id, index) for index in range(_PARTITIONS)]
        ends = [len(await reader.read_all()) for reader in readers]
        await _converge(node, auditors, ends)
        for stop in (node.stop, node.lose_power if flushes else node.kill):
            await stop()
            await node.start()
            await _converge(node, auditors, ends)
        for auditor in auditors:
            await auditor.group.leave()
            if not await _becomes_true(auditor.is_empty):
                raise Violation(f"group {auditor.group.history.group_id} is not empty after all members left")
    await node.stop()


def _group(world: World, kind: str, topic: Topic) -> SimGroup:
    history = GroupHistory(kind, topic.partitions)
    random = world.derive()

    def new_member(instance_id: str | None) -> GroupMember:
        return random.choice(_KINDS[kind])(
            world,
            history,
            topic,
            random.choice(_HOSTS),
            CommitWork(history, random),
            instance_id,
            fences_generations=_KINDS[kind] == (ClassicMember,),
        )

    return SimGroup(history, random, new_member)


async def _produce_all(
    chaos: Chaos, producers: list[IdempotentProducer], auditors: list[_Auditor], tasks: asyncio.TaskGroup
) -> None:
    breaking = tasks.create_task(chaos.run())
    around = [tasks.create_task(auditor.watch()) for auditor in auditors]
    around += [tasks.create_task(auditor.group.churn(tasks)) for auditor in auditors]
    async with asyncio.TaskGroup() as producing:
        for producer in producers:
            producing.create_task(producer.run(_BATCHES_PER_PARTITION))
    chaos.is_over = True
    await breaking
    for task in around:
        task.cancel()
    for auditor in auditors:
        auditor.group.start_member(tasks)


async def _converge(node: BrokerNode, auditors: list[_Auditor], ends: list[int]) -> None:
    for auditor in auditors:
        group = auditor.group
        if not await _becomes_true(partial(auditor.has_converged, ends)):
            raise Violation(
                f"group {group.history.group_id} is {await auditor.client.describe()} with committed offsets "
                f"{await auditor.committed()} of {ends} and {len(group.members)} members after "
                f"{_CONVERGED_AFTER_S_MAX:.0f} s without a fault"
            )
        for partition, end_offset in enumerate(ends):
            group.history.check_processed(partition, end_offset)
    assert node.broker is not None
    check_shards_against_logs(node.broker)


async def _becomes_true(condition: Callable[[], Awaitable[bool]]) -> bool:
    """Waits for the condition; returns False if it is not true soon enough after the last fault."""
    give_up_s = asyncio.get_running_loop().time() + _CONVERGED_AFTER_S_MAX
    while not await condition():
        if asyncio.get_running_loop().time() > give_up_s:
            return False
        await asyncio.sleep(RETRY_PAUSE_S)
    return True
