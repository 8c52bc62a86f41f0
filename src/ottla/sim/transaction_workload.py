"""Transactional producers on one real broker, while it and they fail: their own transactions, and exactly-once copies.

Copies read the input, write it to an output, and commit their offset in the same transaction: in the end each output
is the input. One is made by programs with a partition each, the other by the members of a group. When all is mended,
nothing stays open.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from ottla.sim.client import SimClient
from ottla.sim.committed_reader import CommittedReader
from ottla.sim.coordinator_audit import check_shards_against_their_logs, validate_shards
from ottla.sim.env import World
from ottla.sim.group_client import GroupClient, Topic
from ottla.sim.group_workload import FLUSHED, GROUP_CONFIG
from ottla.sim.history import History, Value, Violation
from ottla.sim.node import HOST, PORT, BrokerNode, Chaos
from ottla.sim.single_broker import TOPIC_CONFIG, first_of
from ottla.sim.transaction_client import list_transactions
from ottla.sim.transaction_history import Place
from ottla.sim.transaction_programs import COPIES, HOSTS, SHARING, Programs, Site, copy, sharing, write
from ottla.sim.workload import RETRY_PAUSE_S, IdempotentProducer, Reader, until_it_works

PARTITIONS = 2
WRITERS = 2  # transactional ids of programs that only write
BATCHES_PER_PARTITION = 80
TIME_LIMIT_S = 3600.0
# A transaction that was left open times out; then all who waited for it get on.
CALM_AFTER_S_MAX = 60.0
AUDIT_INTERVAL_S = 0.5
CONFIG = GROUP_CONFIG | {
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.min.isr": "1",
}
OUTPUTS = {COPIES: "output", SHARING: "shared"}  # by the group that fills them


class Scene:
    """The broker, the programs and the topics of a run."""

    def __init__(self, world: World, node: BrokerNode, client: SimClient, topics: dict[str, Topic]) -> None:
        self.world = world
        self._node = node
        self._client = client
        self._topics = topics
        self.site = Site(world, topics)
        self._source = History()
        self._readers = [
            CommittedReader(witness(world), self.site.history, topics[name], index)
            for name in (*OUTPUTS.values(), "ledger")
            for index in range(PARTITIONS)
        ]
        self._sharing = sharing(self.site)
        self._writers = [
            Programs(self.site, partial(write, self.site, f"writer-{index}")) for index in range(WRITERS)
        ]
        self._copies = [
            Programs(self.site, partial(copy, self.site, f"copy-{index}", index))
            for index in range(PARTITIONS)
        ]

    async def play(self, chaos: Chaos) -> None:
        """Until all is written and copied, and nothing is open."""
        async with asyncio.TaskGroup() as tasks:
            breaking = tasks.create_task(chaos.run())
            around = [tasks.create_task(reader.follow()) for reader in self._readers]
            around.append(tasks.create_task(self._audit()))
            around += [tasks.create_task(programs.supervise(tasks)) for programs in self._writers]
            around.append(tasks.create_task(self._sharing.churn(tasks)))
            copying = [tasks.create_task(programs.supervise(tasks)) for programs in self._copies]
            await self._fill_input()
            chaos.is_over = True
            await breaking
            for task in around:
                task.cancel()
            for programs in self._writers:
                programs.stop()
            for programs in self._copies:
                programs.is_calm = True
            self._sharing.start_member(tasks)
            await self._calm_down()
            await self._sharing.leave()
            for task in copying:
                task.cancel()
            for programs in self._copies:
                programs.stop()

    async def _fill_input(self) -> None:
        async with asyncio.TaskGroup() as writing:
            for index in range(PARTITIONS):
                producer = IdempotentProducer(
                    self.site.client(),
                    self.world.derive(),
                    self.world.clock.now_ms,
                    self._source,
                    f"source-{index}",
                    self._topics["input"].topic_id,
                    index,
                )
                writing.create_task(producer.run(BATCHES_PER_PARTITION))

    async def _audit(self) -> None:
        while True:
            if self._node.broker is not None:
                validate_shards(self._node.broker)
            await asyncio.sleep(AUDIT_INTERVAL_S)

    # -- in the end

    async def _calm_down(self) -> None:
        ends = [len(values) for values in await self._input()]
        await self._comes_true("the copies are complete", partial(self._are_copied, ends))
        await self._comes_true("no transaction is open", self._is_nothing_open)

    async def _comes_true(self, what: str, condition: Callable[[], Awaitable[bool]]) -> None:
        give_up_s = asyncio.get_running_loop().time() + CALM_AFTER_S_MAX
        while not await condition():
            if asyncio.get_running_loop().time() > give_up_s:
                raise Violation(f"{CALM_AFTER_S_MAX:.0f} s without a fault, and it is not so that {what}")
            await asyncio.sleep(RETRY_PAUSE_S)

    async def _are_copied(self, ends: list[int]) -> bool:
        for group_id in OUTPUTS:
            group = GroupClient(self._client, group_id, self._topics["input"])
            _, found = await group.committed(list(range(PARTITIONS)))
            if [committed.offset for committed in found] != ends:
                return False
        return True

    async def _is_nothing_open(self) -> bool:
        if await list_transactions(self._client, "Ongoing", "PrepareCommit", "PrepareAbort") != []:
            return False
        return all(await asyncio.gather(*(reader.is_stable() for reader in self._readers)))

    async def _input(self) -> list[list[Value]]:
        topic_id = self._topics["input"].topic_id
        readers = [Reader(self._client, self._source, topic_id, index) for index in range(PARTITIONS)]
        return [[value for _, value in await reader.read_all()] for reader in readers]

    async def check(self) -> None:
        """What is there is what was committed, and the output is the input."""
        await self._comes_true("no transaction is open", self._is_nothing_open)
        logs = {reader.place: await reader.read_all() for reader in self._readers}
        history = self.site.history
        history.check_logs(logs)
        for source in await self._input():
            for topic in OUTPUTS.values():
                for index in range(PARTITIONS):
                    self._check_copy(source, index, logs[Place(topic, index)])
        assert self._node.broker is not None
        check_shards_against_their_logs(self._node.broker)

    def _check_copy(self, source: list[Value], index: int, log: list[tuple[int, Value]]) -> None:
        expected = [value for value in source if value.number % PARTITIONS == index]
        copied = [self.site.history.source(value) for _, value in log]
        found = [value for value in copied if value.producer == source[0].producer]
        if found != expected:
            raise Violation(f"partition {index} of an output is no copy: {found} and not {expected}")


def witness(world: World) -> SimClient:
    """A client that the network never cuts off."""
    return SimClient(world.network.host("witness"), (HOST, PORT), "witness")


async def transactions(world: World) -> None:
    """Raises Violation where the broker broke a promise."""
    try:
        async with asyncio.timeout(TIME_LIMIT_S):
            await _run(world)
    except TimeoutError:
        raise Violation(f"not done after {TIME_LIMIT_S:.0f} s of virtual time: no progress") from None
    except BaseExceptionGroup as error:
        raise first_of(error) from None


async def _run(world: World) -> None:
    flushes = world.seed % 2 == 1
    world.trace.note(f"seed {world.seed}, flushed {flushes}")
    node = BrokerNode(world, CONFIG | (FLUSHED if flushes else {}))
    await node.start()
    client = witness(world)
    topics = {
        name: Topic(name, await until_it_works(client, name, PARTITIONS, TOPIC_CONFIG), PARTITIONS)
        for name in ("input", "ledger", *OUTPUTS.values())
    }
    scene = Scene(world, node, client, topics)
    await scene.play(Chaos(world, node, HOSTS, flushes=flushes))
    for restart in (node.stop, node.lose_power if flushes else node.kill):
        await scene.check()
        await restart()
        await node.start()
    await scene.check()
    await node.stop()
