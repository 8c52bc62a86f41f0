"""What group members of both protocols have in common: they read the partitions that they own, for a `PartitionWork`.

A member whose requests got no response for the session timeout gives up its partitions by itself, because the
coordinator may assign them to others from then on. Its ownerships and commits go into a `GroupHistory`.
"""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Protocol

from ottla.model.errors import ErrorCode
from ottla.model.ids import NO_LEADER_EPOCH
from ottla.records.records import Record
from ottla.sim.cluster_client import new_client
from ottla.sim.env import World
from ottla.sim.group_client import Committed, GroupClient, Identity, Timeouts, Topic
from ottla.sim.group_history import GroupHistory, Lease, Ownership
from ottla.sim.history import Violation
from ottla.sim.partition_clients import RETRIABLE, RETRY_PAUSE_S, batches_of

TIMEOUTS = Timeouts(session=8.0, rebalance=12.0, heartbeat=2.0)
# The broker counts whole milliseconds, so a lease ends a little earlier than the session.
_LEASE_S = TIMEOUTS.session - 0.01
_CLIENT_TIMEOUT_S = 5.0
_LATE_COMMIT_PROBABILITY = 0.5
_POLL_MS = 200
_IDLE_S = 0.1
_MEMBERS_MAX = 3
_INSTANCE_IDS = ("one", "two")

GROUP_RETRIABLE = RETRIABLE | {ErrorCode.not_coordinator}
# Java consumers before 3.9 do not retry OffsetFetch after the other code.
OFFSET_FETCH_RETRIABLE = GROUP_RETRIABLE - {ErrorCode.coordinator_not_available}
REJECTED_COMMIT_ERRORS = frozenset(
    {
        ErrorCode.illegal_generation,
        ErrorCode.unknown_member_id,
        ErrorCode.rebalance_in_progress,
        ErrorCode.stale_member_epoch,
        ErrorCode.fenced_instance_id,
    }
)


class PartitionWork(Protocol):
    """What a member does with its partitions."""

    async def start(self, member: "GroupMember", partition: int) -> int | None:
        """Returns the position to start at; None if it is not known yet."""
        ...

    async def process(
        self,
        member: "GroupMember",
        partition: int,
        ownership: Ownership,
        position: int,
        records: list[Record],
    ) -> int | None:
        """Returns the next position; None to call `start` again."""
        ...

    async def finish(
        self, member: "GroupMember", partition: int, ownership: Ownership, position: int
    ) -> None:
        """The last call for a partition: before it is given up, or after it was lost."""
        ...


class GroupMember:
    def __init__(
        self,
        world: World,
        history: GroupHistory,
        topic: Topic,
        host: str,
        work: PartitionWork,
        instance_id: str | None = None,
        *,
        fences_generations: bool = False,
    ) -> None:
        """With an instance id it is a static member (KIP-345), which replaces the last member with that id.

        `fences_generations`: all members use the classic protocol, in which an old generation cannot commit.
        """
        self.host = host
        self._fetcher = new_client(world, host, f"{host}-fetcher", _CLIENT_TIMEOUT_S)
        self._connection = new_client(world, host, host, _CLIENT_TIMEOUT_S)
        self.client = GroupClient(self._connection, history.group_id, topic)
        self._fences_generations = fences_generations
        self._history = history
        self._work = work
        self._topic = topic
        self._note = world.trace.note
        self.acknowledged = world.acknowledged
        self.random: Random = world.derive()
        self._now_s = asyncio.get_running_loop().time
        self.identity = Identity(instance_id=instance_id)
        self.lease = Lease()
        self.ownerships: dict[int, Ownership] = {}
        self._positions: dict[int, int] = {}
        self._leader_epochs: dict[int, int] = {}  # of the record before the position (KIP-320)
        self._leaving = asyncio.Event()

    async def run(self) -> None:
        """Runs until it is cancelled or has left the group."""
        async with asyncio.TaskGroup() as tasks:
            working = [tasks.create_task(self._coordinate()), tasks.create_task(self._poll())]
            await self._leaving.wait()
            for task in working:
                task.cancel()
        await self._revoke(list(self.ownerships))
        await self._leave()
        self.close()

    def leave(self) -> None:
        self._leaving.set()

    def die(self) -> None:
        """Stops without a word to the coordinator."""
        self.abandon()
        self.close()

    def close(self) -> None:
        self._fetcher.close()
        self._connection.close()

    async def _coordinate(self) -> None:
        raise NotImplementedError

    async def _leave(self) -> None:
        raise NotImplementedError

    # Ownership

    @property
    def has_lease(self) -> bool:
        return self._now_s() < self.lease.until_s

    def _extend_lease(self, sent_s: float) -> bool:
        """Called after the response to a request sent at `sent_s`. Returns False if that is too long ago."""
        self.lease.until_s = max(self.lease.until_s, sent_s + _LEASE_S)
        return self.has_lease

    def _assign(self, partitions: list[int]) -> None:
        owner = self.identity.member_id
        if self._fences_generations:
            owner += f" of generation {self.identity.generation}"
        for partition in partitions:
            self._note(
                f"member {self.host} of {self.client.group_id} takes {partition} in {self.identity.generation}"
            )
            self.ownerships[partition] = self._history[partition].assign(owner, self.lease, self._now_s())

    async def _revoke(self, partitions: list[int]) -> None:
        """Gives partitions up, after a last commit."""
        revoked = {
            index: (self.ownerships.pop(index), self._positions.pop(index, None)) for index in partitions
        }
        for index, (ownership, position) in revoked.items():
            if position is not None and not ownership.is_over(self._now_s()):
                await self._work.finish(self, index, ownership, position)
            ownership.has_ended = True
            self._note(f"member {self.host} of {self.client.group_id} gives up {index}")

    def abandon(self) -> None:
        """Drops all partitions, because the member is out of the group or has to assume so."""
        for ownership in self.ownerships.values():
            ownership.has_ended = True
        self.ownerships.clear()
        self._positions.clear()
        self.lease = Lease()

    async def _handle_lease_end(self) -> None:
        """After the end of the lease the member may still try to commit, as a program does that was suspended."""
        expired = [
            (index, ownership, self._positions.get(index)) for index, ownership in self.ownerships.items()
        ]
        self.abandon()
        for partition, ownership, position in expired:
            if position is not None and self.random.random() < _LATE_COMMIT_PROBABILITY:
                await self._work.finish(self, partition, ownership, position)

    def owns(self, partition: int, ownership: Ownership) -> bool:
        return self.ownerships.get(partition) is ownership and self.has_lease

    # Fetching and processing

    async def _poll(self) -> None:
        while True:
            for partition, ownership in list(self.ownerships.items()):
                if self.owns(partition, ownership):
                    await self._poll_partition(partition, ownership)
            await asyncio.sleep(_IDLE_S)

    async def _poll_partition(self, partition: int, ownership: Ownership) -> None:
        position = self._positions.get(partition)
        if position is None:
            position = await self._work.start(self, partition)
        else:
            records = await self._fetch(partition, position)
            if records is None or not self.owns(partition, ownership):
                return
            position = await self._work.process(self, partition, ownership, position, records)
        if self.owns(partition, ownership):
            if position is None:
                self._positions.pop(partition, None)
            else:
                self._positions[partition] = position

    async def _fetch(self, partition: int, position: int) -> list[Record] | None:
        try:
            response = await self._fetcher.fetch(self._topic.topic_id, partition, position, _POLL_MS)
        except OSError:
            return None
        if response.error_code in GROUP_RETRIABLE:
            return None
        if response.error_code != ErrorCode.none:
            raise Violation(f"a fetch from offset {position} got {response.error_code.name}")
        batches = batches_of(response)
        if batches:
            self._leader_epochs[partition] = batches[-1].header.partition_leader_epoch
        return [record for batch in batches for record in batch.records if record.offset >= position]

    async def commit(self, partition: int, position: int, metadata: str) -> ErrorCode:
        epoch = self._leader_epochs.get(partition, NO_LEADER_EPOCH)
        return await self.client.commit(self.identity, partition, position, metadata, epoch)

    async def committed(self, partition: int) -> Committed | None:
        """Returns None if the coordinator cannot answer now.

        The member does not fetch from leaders before the leader epoch of the committed offset (KIP-320). A former
        leader that was paused may lack the records before that offset.
        """
        error, found = await self.client.committed([partition], self._offset_fetch_identity())
        if error in OFFSET_FETCH_RETRIABLE or error in REJECTED_COMMIT_ERRORS:
            return None
        if error != ErrorCode.none:
            raise Violation(f"{self.identity} got {error.name} for OffsetFetch")
        if found[0].error_code != ErrorCode.none:
            return None
        self._leader_epochs[partition] = found[0].leader_epoch
        self._fetcher.see_leader_epoch(self._topic.topic_id, partition, found[0].leader_epoch)
        return found[0]

    def _offset_fetch_identity(self) -> Identity | None:
        return None

    async def _find_coordinator(self) -> None:
        while (error := await self.client.find_coordinator()) != ErrorCode.none:
            if error not in GROUP_RETRIABLE:
                raise Violation(f"FindCoordinator got {error.name}")
            await asyncio.sleep(RETRY_PAUSE_S)


class SimGroup:
    """A group whose members join, leave and die. Some are static, and replace a dead member with the same id."""

    def __init__(
        self, history: GroupHistory, random: Random, new_member: Callable[[str | None], GroupMember]
    ) -> None:
        self._random = random
        self._new_member = new_member
        self.history = history
        self.members: dict[GroupMember, asyncio.Task[None]] = {}
        self._leaving: dict[GroupMember, asyncio.Task[None]] = {}

    def start_member(self, tasks: asyncio.TaskGroup) -> None:
        # A leaving member still owns its partitions, so no other member may take its instance id yet.
        self._leaving = {member: task for member, task in self._leaving.items() if not task.done()}
        used = [member.identity.instance_id for member in (*self.members, *self._leaving)]
        free = [instance_id for instance_id in _INSTANCE_IDS if instance_id not in used]
        member = self._new_member(self._random.choice((None, *free)))
        self.members[member] = tasks.create_task(member.run())

    async def churn(self, tasks: asyncio.TaskGroup) -> None:
        """Starts members and ends them, until cancelled."""
        while True:
            if len(self.members) < self._random.randint(1, _MEMBERS_MAX):
                self.start_member(tasks)
            elif self._random.random() < 0.5:
                member = self._random.choice(list(self.members))
                task = self.members.pop(member)
                if self._random.random() < 0.5:
                    member.leave()
                    self._leaving[member] = task
                else:
                    task.cancel()
                    member.die()
            await asyncio.sleep(self._random.uniform(1.0, 12.0))

    async def leave(self) -> None:
        for member in self.members:
            member.leave()
        await asyncio.wait(list(self.members.values()))
        self.members.clear()
