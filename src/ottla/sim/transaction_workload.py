"""Transactional producers on one real broker, while they and the broker fail: writers, and exactly-once copiers.

A copier reads the input, writes it to an output, and commits its offset in the same transaction: at the end each output
equals the input. Copiers with a fixed partition each write one output, members of a group the other. After the last
fault, no transaction stays open.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from ottla.model.ids import TopicPartition
from ottla.sim.client import SimClient
from ottla.sim.committed_reader import CommittedReader
from ottla.sim.coordinator_audit import check_shards_against_logs, validate_shards
from ottla.sim.env import World
from ottla.sim.group_client import GroupClient, Topic
from ottla.sim.group_workload import FLUSHED, GROUP_CONFIG
from ottla.sim.history import History, Value, Violation
from ottla.sim.node import HOST, PORT, BrokerNode, Chaos
from ottla.sim.partition_clients import RETRY_PAUSE_S, IdempotentProducer, Reader, create_topic_with_retries
from ottla.sim.transaction_client import list_transactions
from ottla.sim.transaction_programs import (
    COPIERS,
    COPYING_GROUP,
    HOSTS,
    ProgramContext,
    ProgramSupervisor,
    copying_group,
    run_copier,
    run_writer,
)
from ottla.sim.workload import TOPIC_CONFIG, run_within_time_limit

_PARTITIONS = 2
_WRITERS = 2  # transactional ids of programs that only write
_BATCHES_PER_PARTITION = 80
# A transaction that was left open times out; then those that waited for it continue.
_CONVERGED_AFTER_S_MAX = 60.0
_AUDIT_INTERVAL_S = 0.5
_CONFIG = GROUP_CONFIG | {
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.min.isr": "1",
}
_OUTPUTS = {COPIERS: "output", COPYING_GROUP: "shared"}  # by the group that writes them


class _TransactionRun:
    """The broker, the programs and the topics of a run."""

    def __init__(self, world: World, node: BrokerNode, client: SimClient, topics: dict[str, Topic]) -> None:
        self.world = world
        self._node = node
        self._client = client
        self._topics = topics
        self.context = ProgramContext(world, topics)
        self._source = History()
        self._readers = [
            CommittedReader(_undisturbed_client(world), self.context.history, topics[name], index)
            for name in (*_OUTPUTS.values(), "ledger")
            for index in range(_PARTITIONS)
        ]
        self._group = copying_group(self.context)
        self._writers = [
            ProgramSupervisor(self.context, partial(run_writer, self.context, f"writer-{index}"))
            for index in range(_WRITERS)
        ]
        self._copiers = [
            ProgramSupervisor(self.context, partial(run_copier, self.context, f"copy-{index}", index))
            for index in range(_PARTITIONS)
        ]

    async def run(self, chaos: Chaos) -> None:
        """Returns when everything is written and copied, and no transaction is open."""
        async with asyncio.TaskGroup() as tasks:
            breaking = tasks.create_task(chaos.run())
            around = [tasks.create_task(reader.follow()) for reader in self._readers]
            around.append(tasks.create_task(self._audit()))
            around += [tasks.create_task(writer.supervise(tasks)) for writer in self._writers]
            around.append(tasks.create_task(self._group.churn(tasks)))
            copying = [tasks.create_task(copier.supervise(tasks)) for copier in self._copiers]
            await self._produce_input()
            chaos.is_over = True
            await breaking
            for task in around:
                task.cancel()
            for writer in self._writers:
                writer.stop()
            for copier in self._copiers:
                copier.is_calm = True
            self._group.start_member(tasks)
            await self._converge()
            await self._group.leave()
            for task in copying:
                task.cancel()
            for copier in self._copiers:
                copier.stop()

    async def _produce_input(self) -> None:
        async with asyncio.TaskGroup() as producing:
            for index in range(_PARTITIONS):
                producer = IdempotentProducer(
                    self.context.client(),
                    self.world.derive(),
                    self.world.clock.now_ms,
                    self._source,
                    f"source-{index}",
                    self._topics["input"].topic_id,
                    index,
                )
                producing.create_task(producer.run(_BATCHES_PER_PARTITION))

    async def _audit(self) -> None:
        while True:
            if self._node.broker is not None:
                validate_shards(self._node.broker)
            await asyncio.sleep(_AUDIT_INTERVAL_S)

    # After the last fault

    async def _converge(self) -> None:
        ends = [len(values) for values in await self._read_input()]
        await self._wait_until("the copies are complete", partial(self._are_copied, ends))
        await self._wait_until("no transaction is open", self._has_no_open_transaction)

    async def _wait_until(self, what: str, condition: Callable[[], Awaitable[bool]]) -> None:
        give_up_s = asyncio.get_running_loop().time() + _CONVERGED_AFTER_S_MAX
        while not await condition():
            if asyncio.get_running_loop().time() > give_up_s:
                raise Violation(
                    f"{_CONVERGED_AFTER_S_MAX:.0f} s after the last fault it is not true that {what}"
                )
            await asyncio.sleep(RETRY_PAUSE_S)

    async def _are_copied(self, ends: list[int]) -> bool:
        for group_id in _OUTPUTS:
            group = GroupClient(self._client, group_id, self._topics["input"])
            _, found = await group.committed(list(range(_PARTITIONS)))
            if [committed.offset for committed in found] != ends:
                return False
        return True

    async def _has_no_open_transaction(self) -> bool:
        if await list_transactions(self._client, "Ongoing", "PrepareCommit", "PrepareAbort") != []:
            return False
        return all(await asyncio.gather(*(reader.is_stable() for reader in self._readers)))

    async def _read_input(self) -> list[list[Value]]:
        topic_id = self._topics["input"].topic_id
        readers = [Reader(self._client, self._source, topic_id, index) for index in range(_PARTITIONS)]
        return [[value for _, value in await reader.read_all()] for reader in readers]

    async def check(self) -> None:
        """Only committed records are visible, and each output equals the input."""
        await self._wait_until("no transaction is open", self._has_no_open_transaction)
        logs = {reader.topic_partition: await reader.read_all() for reader in self._readers}
        self.context.history.check_logs(logs)
        for source in await self._read_input():
            for topic in _OUTPUTS.values():
                for index in range(_PARTITIONS):
                    self._check_copy(source, index, logs[TopicPartition(topic, index)])
        assert self._node.broker is not None
        check_shards_against_logs(self._node.broker)

    def _check_copy(self, source: list[Value], index: int, log: list[tuple[int, Value]]) -> None:
        expected = [value for value in source if value.number % _PARTITIONS == index]
        copied = [self.context.history.source(value) for _, value in log]
        found = [value for value in copied if value.producer == source[0].producer]
        if found != expected:
            raise Violation(
                f"partition {index} of an output is not a copy: it has {found}, expected {expected}"
            )


def _undisturbed_client(world: World) -> SimClient:
    """A client whose network is never partitioned."""
    return SimClient(world.network.host("observer"), (HOST, PORT), "observer")


async def run_transaction_workload(world: World) -> None:
    """Raises Violation if the broker breaks a guarantee."""
    await run_within_time_limit(_run(world))


async def _run(world: World) -> None:
    flushes = world.seed % 2 == 1
    world.trace.note(f"seed {world.seed}, flushed {flushes}")
    node = BrokerNode(world, _CONFIG | (FLUSHED if flushes else {}))
    await node.start()
    client = _undisturbed_client(world)
    topics = {
        name: Topic(
            name, await create_topic_with_retries(client, name, _PARTITIONS, TOPIC_CONFIG), _PARTITIONS
        )
        for name in ("input", "ledger", *_OUTPUTS.values())
    }
    run = _TransactionRun(world, node, client, topics)
    await run.run(Chaos(world, node, HOSTS, flushes=flushes))
    for stop in (node.stop, node.lose_power if flushes else node.kill):
        await run.check()
        await stop()
        await node.start()
    await run.check()
    await node.stop()
