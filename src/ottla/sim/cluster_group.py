"""A consumer group on a simulated cluster: its members join, leave and die while its coordinator moves between nodes.

A coordinator that was cut off answers heartbeats until it knows that it was replaced, so two members may own a
partition at once; but it cannot commit. So commits are checked, and that all records are processed, not that owners
exclude each other.
"""

import asyncio
from collections.abc import Sequence
from random import Random

from ottla.model.errors import ErrorCode
from ottla.sim.classic_members import ClassicMember, CooperativeMember
from ottla.sim.client import SimClient
from ottla.sim.consumer_member import ConsumerMember
from ottla.sim.env import World
from ottla.sim.group_client import GroupClient, Topic
from ottla.sim.group_history import GroupHistory
from ottla.sim.group_members import OFFSET_FETCH_RETRIABLE, GroupMember, SimGroup
from ottla.sim.group_work import CommitWork
from ottla.sim.history import Violation

GROUP_CONFIG = {
    "group.initial.rebalance.delay.ms": "500",
    "group.consumer.min.session.timeout.ms": "8000",
    "group.consumer.session.timeout.ms": "8000",
    "group.consumer.min.heartbeat.interval.ms": "2000",
    "group.consumer.heartbeat.interval.ms": "2000",
}
_KINDS: tuple[tuple[type[GroupMember], ...], ...] = (
    (ClassicMember,),
    (ConsumerMember,),
    (ClassicMember, ConsumerMember),
    (CooperativeMember,),
)
_READ_INTERVAL_S = 1.0


class ClusterGroup:
    """`client` reads the committed offsets; it is not a member. `hosts` are those of the members."""

    def __init__(
        self, world: World, client: SimClient, group_id: str, topic: Topic, hosts: Sequence[str]
    ) -> None:
        random: Random = world.derive()
        kinds = random.choice(_KINDS)
        self._history = history = GroupHistory(group_id, topic.partitions, owners_exclude_each_other=False)
        self._client = GroupClient(client, group_id, topic)
        self._partitions = list(range(topic.partitions))
        self._now_s = asyncio.get_running_loop().time
        self._background: list[asyncio.Task[None]] = []

        def new_member(instance_id: str | None) -> GroupMember:
            return random.choice(kinds)(
                world,
                history,
                topic,
                random.choice(hosts),
                CommitWork(history, random),
                instance_id,
                fences_generations=kinds == (ClassicMember,),
            )

        self._group = SimGroup(history, random, new_member)

    def start(self, tasks: asyncio.TaskGroup) -> None:
        self._background = [
            tasks.create_task(self._group.churn(tasks)),
            tasks.create_task(self._read_commits()),
        ]

    def settle(self, tasks: asyncio.TaskGroup) -> None:
        """From now on the members stay, and there is at least one."""
        for task in self._background:
            task.cancel()
        self._group.start_member(tasks)

    async def has_converged(self, ends: Sequence[int]) -> bool:
        """Whether each partition has an owner, and everything is committed. Call it after `settle`."""
        return (
            self._history.is_owned(self._now_s())
            and await self._client.describe() == ("Stable", len(self._group.members))
            and await self._committed() == list(ends)
        )

    async def leave(self, ends: Sequence[int]) -> None:
        """Raises Violation if a record was not processed."""
        for partition, end_offset in enumerate(ends):
            self._history.check_processed(partition, end_offset)
        await self._group.leave()

    async def _read_commits(self) -> None:
        while True:
            await self._committed()
            await asyncio.sleep(_READ_INTERVAL_S)

    async def _committed(self) -> list[int] | None:
        """None if the coordinator could not answer."""
        start_s = self._now_s()
        error, found = await self._client.committed(self._partitions)
        if error != ErrorCode.none:
            if error not in OFFSET_FETCH_RETRIABLE:
                raise Violation(f"OffsetFetch of {self._history.group_id} got {error.name}")
            return None
        for committed in found:
            history = self._history[committed.partition]
            history.read(committed.offset, committed.metadata, start_s, self._now_s())
        return [committed.offset for committed in found]
