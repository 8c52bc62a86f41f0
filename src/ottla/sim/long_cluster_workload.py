"""A cluster over many virtual hours: calm stretches, and between them rounds of load under faults.

A round is a run of the cluster workload, with its own topics, groups and transactional ids; they are checked at its end
and dropped. What lasts is in `AgingState`: retention, and the expiry of offsets, transactional ids and producer ids. In
a calm stretch a node fails now and then. At its end the leaders must be balanced again.

Each virtual hour has a round, and a calm stretch of 38 minutes or more before it. That is about 15 faults, 6 of them in
the round, and 12,000 operations that are checked. All timers of the nodes run in both: heartbeats, fetches, elections,
flushes, retention, expiry, compaction, snapshots of the metadata.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random

from ottla.sim.aging_state import AgingState
from ottla.sim.cluster import Cluster
from ottla.sim.cluster_audit import ClusterAudit
from ottla.sim.cluster_client import new_client
from ottla.sim.cluster_group import GROUP_CONFIG
from ottla.sim.cluster_nemesis import ClusterNemesis
from ottla.sim.cluster_programs import delete_topic_with_retries
from ottla.sim.cluster_workload import CLIENTS, STRANDS_MAX, ClusterRun, random_cluster
from ottla.sim.env import World
from ottla.sim.history import Violation
from ottla.sim.transaction_programs import HOSTS
from ottla.sim.workload import run_within_time_limit

_HOUR_S = 3600.0
# With the pause before the last fault and `_BALANCED_WITHIN_S`, a round begins less than an hour after the last one.
_CALM_S = (30 * 60.0, 38 * 60.0)
_CALM_FAULT_PAUSE_S_MAX = 10 * 60.0
_BALANCED_WITHIN_S = 8 * 60.0
_ROUND_S = (15.0, 60.0)
_PROGRESS_S = 240.0
_CALM_AUDIT_S = 30.0
_SESSION_S = 30.0
_CLIENT_TIMEOUT_S = 20.0
_RECONNECT_BACKOFF_S_MAX = 1.0  # Kafka's default
# Mostly Kafka's defaults: an idle cluster must cost little.
_CONFIG = {
    **GROUP_CONFIG,
    "broker.session.timeout.ms": str(int(_SESSION_S * 1000)),
    "broker.heartbeat.interval.ms": "10000",
    "initial.broker.registration.timeout.ms": "60000",
    # The followers fetch four times in this time.
    "controller.quorum.fetch.timeout.ms": "30000",
    "controller.quorum.request.timeout.ms": "30000",
    "controller.quorum.election.timeout.ms": "2000",
    "metadata.max.idle.interval.ms": "60000",
    "metadata.log.max.snapshot.interval.ms": "1200000",
    "replica.lag.time.max.ms": "30000",
    "replica.fetch.wait.max.ms": "10000",
    "replica.socket.timeout.ms": "15000",
    "log.flush.offset.checkpoint.interval.ms": "60000",
    "replica.high.watermark.checkpoint.interval.ms": "5000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "10000",
    "log.cleaner.enable": "true",
    "log.roll.ms": "600000",  # so that the logs of the internal topics are compacted
    **AgingState.CONFIG,
}


async def run_long_cluster_workload(world: World, hours: float, progress: Callable[[], None]) -> None:
    """Raises Violation if the cluster breaks a guarantee. `progress` is called after each round."""
    await run_within_time_limit(_run(world, hours, progress), 2 * hours * _HOUR_S + _HOUR_S)


async def _run(world: World, hours: float, progress: Callable[[], None]) -> None:
    random = world.derive()
    world.reconnect_backoff_s_max = _RECONNECT_BACKOFF_S_MAX
    cluster, changes_clocks = random_cluster(world, random, _CONFIG)
    audit = ClusterAudit(cluster, skips_compacted=True)
    try:
        await cluster.start()
        nemesis = ClusterNemesis(
            cluster,
            world.derive(),
            [*CLIENTS, *HOSTS],
            changes_clocks=changes_clocks,
            session_s=_SESSION_S,
        )
        run = _LongRun(cluster, audit, nemesis, random, has_right_clocks=not changes_clocks)
        await run.start()
        number = 0
        while asyncio.get_running_loop().time() < hours * _HOUR_S:
            await run.stay_calm()
            await run.run_round(number)
            number += 1
            progress()
        await cluster.stop()
    finally:
        audit.close()
        await cluster.kill()


class _LongRun:
    def __init__(
        self,
        cluster: Cluster,
        audit: ClusterAudit,
        nemesis: ClusterNemesis,
        random: Random,
        *,
        has_right_clocks: bool,
    ) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._audit = audit
        self._nemesis = nemesis
        self._random = random
        self._has_right_clocks = has_right_clocks
        self._client = new_client(cluster.world, "observer", "observer", _CLIENT_TIMEOUT_S)
        self._aging = AgingState(cluster, self._client)
        self._comparisons = 0

    async def start(self) -> None:
        await self._aging.start()

    async def stay_calm(self) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._random.uniform(*_CALM_S)
        async with self._auditing():
            await self._nemesis.run(1, until_s, _CALM_FAULT_PAUSE_S_MAX)
            await asyncio.sleep(_BALANCED_WITHIN_S)
        self._check_balance()
        self._aging.check_producers()

    @asynccontextmanager
    async def _auditing(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            auditing = tasks.create_task(self._audit.run(_CALM_AUDIT_S))
            yield
            auditing.cancel()

    def _check_balance(self) -> None:
        """The controller has moved all leaders back to the first replicas, without being asked to."""
        for topic in self._cluster.image().topics.values():
            for index, partition in topic.partitions.items():
                if partition.leader != partition.replicas[0]:
                    raise Violation(
                        f"balance: {_BALANCED_WITHIN_S:.0f} s after the last fault node {partition.leader} leads "
                        f"{topic.name}-{index}, not node {partition.replicas[0]}\n{self._cluster.describe()}"
                    )

    async def run_round(self, number: int) -> None:
        random, suffix = self._random, f"-{number}"
        self._world.trace.note(f"round {number}")
        run = await ClusterRun.create(
            self._cluster,
            self._audit,
            has_right_clocks=self._has_right_clocks,
            suffix=suffix,
            progress_s=_PROGRESS_S,
        )
        strands = random.randint(1, STRANDS_MAX)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._aging.use(number))
            await run.run(lambda until_s: self._nemesis.run(strands, until_s), random.uniform(*_ROUND_S))
        await run.check()
        await self._aging.check()
        for name in run.topic_names:
            await delete_topic_with_retries(self._client, name)
        self._audit.forget_checked()
        self._world.operations += run.operations + self._audit.comparisons - self._comparisons
        self._comparisons = self._audit.comparisons
