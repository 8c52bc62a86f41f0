"""Producers, transactions, consumers, commits of offsets and short topics on a cluster under all faults.

The clients record histories, which are checked as Jepsen's Kafka workload does: lost writes, duplicates of idempotent
sends, aborted reads, records that change after a consumer saw them, skipped polls, non-monotonic sends. `ClusterAudit`
checks the nodes all the time. After the last fault the cluster must make progress within a bounded time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from random import Random

from ottla.model.ids import TopicPartition
from ottla.sim.client import SimClient
from ottla.sim.cluster import Cluster
from ottla.sim.cluster_audit import ClusterAudit
from ottla.sim.cluster_client import ClusterClient, new_client
from ottla.sim.cluster_group import GROUP_CONFIG, ClusterGroup
from ottla.sim.cluster_history import PlainHistory, ReplicatedHistory
from ottla.sim.cluster_nemesis import ClusterNemesis
from ottla.sim.cluster_programs import Committer, PlainProducer, TopicUser
from ottla.sim.committed_reader import CommittedReader
from ottla.sim.env import World
from ottla.sim.group_client import Topic
from ottla.sim.history import History, Value, Violation
from ottla.sim.partition_clients import RETRY_PAUSE_S, IdempotentProducer, Reader, create_topic_with_retries
from ottla.sim.transaction_client import list_transactions
from ottla.sim.transaction_programs import HOSTS, ProgramContext, ProgramSupervisor, run_writer
from ottla.sim.workload import TOPIC_CONFIG, run_within_time_limit

_BROKERS = (3, 3, 3, 4)
_CONTROLLERS = (0, 0, 0, 3)
_ONE_DIRECTORY = {"log.dirs": "/data"}
_TWO_DIRECTORIES = {"log.dirs": "/data/one,/data/two", "metadata.log.dir": "/data/metadata"}
STRANDS_MAX = 3
_FAULTS_S = (40.0, 110.0)
CLIENTS = [f"client-{index}" for index in range(3)]
_CLIENT_TIMEOUT_S = 6.0
# A session ends, a new leader is elected, replicas catch up, transactions that were left open time out.
_PROGRESS_S = 90.0
_BATCHES_MAX = 60
_TIME_LIMIT_S = 900.0
# min.insync.replicas is 2 in the whole cluster. A partition with one replica is flushed, as the power may fail.
_TOPICS = {
    "journal": (2, 3, TOPIC_CONFIG),
    "plain": (1, 3, {}),
    "ledger": (2, 3, {"segment.ms": "8000"}),
    "solo": (1, 1, {"flush.messages": "1", "min.insync.replicas": "1"}),
}


async def run_cluster_workload(world: World) -> None:
    """Raises Violation if the cluster breaks a guarantee."""
    await run_within_time_limit(_run(world), _TIME_LIMIT_S)


def random_cluster(world: World, random: Random, config: Mapping[str, str]) -> tuple[Cluster, bool]:
    """A cluster that is not started yet, and whether the clocks of its nodes change."""
    brokers, controllers = random.choice(_BROKERS), random.choice(_CONTROLLERS)
    changes_clocks = random.random() < 0.5
    directories = random.choice((_ONE_DIRECTORY, _TWO_DIRECTORIES))
    world.trace.note(
        f"seed {world.seed}: {brokers} brokers, {controllers} separate controllers, log.dirs={directories['log.dirs']}"
    )
    cluster = Cluster(world, brokers, controllers, {**config, **directories})
    world.bootstrap = cluster.bootstrap
    return cluster, changes_clocks


async def _run(world: World) -> None:
    random = world.derive()
    cluster, changes_clocks = random_cluster(world, random, GROUP_CONFIG)
    audit = ClusterAudit(cluster)
    try:
        await cluster.start()
        run = await ClusterRun.create(cluster, audit, has_right_clocks=not changes_clocks)
        nemesis = ClusterNemesis(cluster, world.derive(), [*CLIENTS, *HOSTS], changes_clocks=changes_clocks)
        duration_s = random.uniform(*_FAULTS_S)
        await run.run(lambda until_s: nemesis.run(random.randint(1, STRANDS_MAX), until_s), duration_s)
        await run.check()
        await cluster.stop()
    finally:
        audit.close()
        await cluster.kill()
    world.operations += run.operations + audit.comparisons


class ClusterRun:
    """The clients and histories of a run. All names of topics, groups and transactional ids end with `suffix`."""

    def __init__(
        self,
        cluster: Cluster,
        audit: ClusterAudit,
        topics: dict[str, Topic],
        *,
        has_right_clocks: bool,
        suffix: str = "",
        progress_s: float = _PROGRESS_S,
    ) -> None:
        self._progress_s = progress_s
        self._rack_clients: list[ClusterClient] = []
        self.cluster = cluster
        self.world = world = cluster.world
        self._audit = audit
        self._topics = topics
        self._is_over = False
        self._observer = self._client("observer")
        self._context = ProgramContext(world, topics)
        self._context.history.has_one_leader = False
        self._context.history.has_right_clocks = has_right_clocks
        kinds = {"plain": PlainHistory, "journal": ReplicatedHistory, "solo": ReplicatedHistory}
        self._histories = {name: History(kind) for name, kind in kinds.items()}
        self._readers = {
            (name, index): Reader(self._reading_client(index), history, topics[name].topic_id, index)
            for name, history in self._histories.items()
            for index in range(topics[name].partitions)
        }
        ledger = topics["ledger"]
        self._committed_readers = [
            CommittedReader(self._observer, self._context.history, ledger, index)
            for index in range(ledger.partitions)
        ]
        self._writers = [
            ProgramSupervisor(self._context, partial(run_writer, self._context, f"writer-{index}{suffix}"))
            for index in range(2)
        ]
        self._committers = [
            Committer(
                self._client(CLIENTS[index], resets=True),
                world.derive(),
                f"commits-{index}{suffix}",
                topics["plain"],
            )
            for index in range(2)
        ]
        self._group = ClusterGroup(
            world, self._client("observer"), f"members{suffix}", topics["journal"], CLIENTS
        )
        self._topic_user = TopicUser(world, self._client(CLIENTS[0]), 3, f"short{suffix}")

    @classmethod
    async def create(
        cls,
        cluster: Cluster,
        audit: ClusterAudit,
        *,
        has_right_clocks: bool,
        suffix: str = "",
        progress_s: float = _PROGRESS_S,
    ) -> "ClusterRun":
        client = new_client(cluster.world, "observer", "observer", _CLIENT_TIMEOUT_S)
        topics = {}
        for kind, (partitions, replicas, configs) in _TOPICS.items():
            name = f"{kind}{suffix}"
            topic_id = await create_topic_with_retries(client, name, partitions, configs, replicas)
            topics[kind] = Topic(name, topic_id, partitions)
        return cls(
            cluster,
            audit,
            topics,
            has_right_clocks=has_right_clocks,
            suffix=suffix,
            progress_s=progress_s,
        )

    @property
    def operations(self) -> int:
        partitions = [each for history in self._histories.values() for each in history.partitions.values()]
        return (
            sum(len(each.attempted) + len(each.seen) for each in partitions)
            + self._context.history.operations
        )

    @property
    def topic_names(self) -> list[str]:
        """All topics that the run has created; it has deleted some of them."""
        return [*(topic.name for topic in self._topics.values()), *self._topic_user.topics]

    def _client(self, host: str, *, resets: bool = False) -> SimClient:
        return new_client(self.world, host, host, _CLIENT_TIMEOUT_S, resets_on_timeout=resets)

    def _reading_client(self, index: int) -> SimClient:
        """It may read from followers, but not after the faults, when a reader needs all that the leader has."""
        client = self._client(CLIENTS[index])
        assert isinstance(client, ClusterClient)
        client.rack = f"rack-{index}"
        self._rack_clients.append(client)
        return client

    async def run(self, break_cluster: Callable[[float], Awaitable[None]], duration_s: float) -> None:
        until_s = asyncio.get_running_loop().time() + duration_s
        async with asyncio.TaskGroup() as tasks:
            auditing = tasks.create_task(self._audit.run())
            following = [tasks.create_task(reader.follow()) for reader in self._readers.values()]
            following += [tasks.create_task(reader.follow()) for reader in self._committed_readers]
            supervising = [tasks.create_task(writer.supervise(tasks)) for writer in self._writers]
            self._group.start(tasks)
            programs = [tasks.create_task(program) for program in self._programs()]
            await break_cluster(until_s)
            self._is_over = True
            self._repair()
            await self._within_bound("all nodes are in the cluster", self._are_all_up)
            for task in supervising:
                task.cancel()
            for writer in self._writers:
                writer.stop()
            await self._within_bound("all clients are done", partial(_are_done, programs))
            await self._within_bound("all replicas are in sync", self._are_in_sync)
            await self._within_bound("no transaction is open", self._has_no_open_transaction)
            await self._settle_group(tasks)
            for task in (*following, auditing):
                task.cancel()

    async def _settle_group(self, tasks: asyncio.TaskGroup) -> None:
        readers = [reader for (name, _), reader in self._readers.items() if name == "journal"]
        ends = [len(await reader.read_all()) for reader in readers]
        self._group.settle(tasks)
        await self._within_bound(
            "the group has committed everything", partial(self._group.has_converged, ends)
        )
        await self._group.leave(ends)

    def _programs(self) -> list[Coroutine[None, None, None]]:
        world, random = self.world, self.world.derive()
        programs: list[Coroutine[None, None, None]] = []
        for name in ("journal", "solo"):
            topic, history = self._topics[name], self._histories[name]
            for index in range(topic.partitions):
                producer = IdempotentProducer(
                    self._client(random.choice(CLIENTS)), world.derive(), world.clock.now_ms, history,
                    f"{topic.name}-{index}", topic.topic_id, index,
                )  # fmt: skip
                programs.append(producer.run(random.randint(20, _BATCHES_MAX)))
        for number in range(2):
            plain = PlainProducer(
                world, self._client(random.choice(CLIENTS)), self._histories["plain"][0], f"plain-{number}",
                self._topics["plain"], 0,
            )  # fmt: skip
            programs.append(plain.run(self._has_ended))
        programs += [committer.run(self._has_ended) for committer in self._committers]
        programs.append(self._topic_user.run(self._has_ended))
        return programs

    def _has_ended(self) -> bool:
        return self._is_over

    # After the last fault

    def _repair(self) -> None:
        self.world.network.heal()
        for client in self._rack_clients:
            client.rack = ""
        for node in self.cluster.nodes.values():
            self.world.clock_of(node.host).correct()
            if not node.is_up:
                node.start()

    async def _within_bound(self, what: str, condition: Callable[[], Awaitable[bool]]) -> None:
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + self._progress_s
        while not await condition():
            if loop.time() > give_up_s:
                raise Violation(
                    f"progress: {self._progress_s:.0f} s after the last fault it is not true that {what}\n"
                    f"{self.cluster.describe()}"
                )
            await asyncio.sleep(RETRY_PAUSE_S)

    async def _are_all_up(self) -> bool:
        return all(node.running is not None for node in self.cluster.nodes.values())

    async def _are_in_sync(self) -> bool:
        image = self.cluster.image()
        return all(
            partition.has_leader and set(partition.isr) == set(partition.replicas)
            for topic in image.topics.values()
            for partition in topic.partitions.values()
        )

    async def _has_no_open_transaction(self) -> bool:
        assert isinstance(self._observer, ClusterClient)
        for address in self.cluster.bootstrap:
            client = self._observer.client_of(address)
            if await list_transactions(client, "Ongoing", "PrepareCommit", "PrepareAbort") != []:
                return False
        return all(await asyncio.gather(*(reader.is_stable() for reader in self._committed_readers)))

    async def check(self) -> None:
        try:
            async with asyncio.timeout(self._progress_s):
                await self._check()
        except TimeoutError:
            raise Violation(f"progress: the logs could not be read\n{self.cluster.describe()}") from None

    async def _check(self) -> None:
        for (name, index), reader in self._readers.items():
            self._histories[name][index].check_log(await reader.read_all())
        logs: dict[TopicPartition, list[tuple[int, Value]]] = {
            reader.topic_partition: await reader.read_all() for reader in self._committed_readers
        }
        self._context.history.check_logs(logs)
        for committer in self._committers:
            await committer.check()
        await self._within_bound("all replicas are equal", self._are_equal)
        self._audit.check_converged()
        self._check_short_topics()

    async def _are_equal(self) -> bool:
        return self._audit.has_converged()

    def _check_short_topics(self) -> None:
        deleted = [name for name in self._topic_user.topics if name not in self.cluster.image().topics]
        for node, hosted in self.cluster.replicas():
            if hosted.topic_partition.topic in deleted:
                raise Violation(f"{hosted.topic_partition} is deleted, but is still on {node.host}")


async def _are_done(tasks: "list[asyncio.Task[None]]") -> bool:
    return all(task.done() for task in tasks)
