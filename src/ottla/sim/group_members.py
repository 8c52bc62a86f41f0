"""What members of groups have in common, whichever protocol they speak: they read what they own, for some `Work`.

They keep their lease: a member that has not been answered for its session timeout gives up what it owns by itself, as
the coordinator may do the same from then on. What it believes and does goes into a `GroupHistory`.
"""

import asyncio
from random import Random
from typing import Protocol

from ottla.model.errors import ErrorCode
from ottla.records.records import Record
from ottla.sim.client import SimClient
from ottla.sim.env import World
from ottla.sim.group_client import Committed, GroupClient, Identity, Timeouts, Topic
from ottla.sim.group_history import GroupHistory, Lease, Tenure
from ottla.sim.history import Violation
from ottla.sim.node import HOST, PORT
from ottla.sim.workload import RETRIABLE, RETRY_PAUSE_S, records_of

TIMEOUTS = Timeouts(session=8.0, rebalance=12.0, heartbeat=2.0)
# Time runs in whole milliseconds for the broker: a lease ends a little earlier than its session.
LEASE_S = TIMEOUTS.session - 0.01
CLIENT_TIMEOUT_S = 5.0
LATE_COMMIT_PROBABILITY = 0.5
POLL_MS = 200
IDLE_S = 0.1

AGAIN = RETRIABLE | {ErrorCode.not_coordinator}
REFUSED_COMMITS = frozenset(
    {
        ErrorCode.illegal_generation,
        ErrorCode.unknown_member_id,
        ErrorCode.rebalance_in_progress,
        ErrorCode.stale_member_epoch,
        ErrorCode.fenced_instance_id,
    }
)


class Work(Protocol):
    """What a member does with the partitions that it owns."""

    async def start(self, member: "GroupMember", partition: int) -> int | None:
        """Where to begin; None where that is not known yet."""
        ...

    async def process(
        self, member: "GroupMember", partition: int, tenure: Tenure, position: int, records: list[Record]
    ) -> int | None:
        """Where to go on; None to start again."""
        ...

    async def finish(self, member: "GroupMember", partition: int, tenure: Tenure, position: int) -> None:
        """The last word on a partition: before it is given up, or too late."""
        ...


class GroupMember:
    def __init__(
        self,
        world: World,
        history: GroupHistory,
        topic: Topic,
        host: str,
        work: "Work",
        instance_id: str | None = None,
        *,
        fences_generations: bool = False,
    ) -> None:
        """With an instance id it is a static member (KIP-345): it takes the place of the one that had it before.

        `fences_generations`: all members are of the classic protocol, where an old generation cannot commit.
        """
        self.host = host
        door = world.network.host(host)
        self._fetcher = SimClient(door, (HOST, PORT), f"{host}-fetcher", CLIENT_TIMEOUT_S)
        self._connection = SimClient(door, (HOST, PORT), host, CLIENT_TIMEOUT_S)
        self.client = GroupClient(self._connection, history.group_id, topic)
        self._fences_generations = fences_generations
        self._history = history
        self._work = work
        self._topic = topic
        self._note = world.trace.note
        self.acknowledged = world.acknowledged
        self.random: Random = world.derive()
        self._now_s = asyncio.get_running_loop().time
        self.who = Identity(instance_id=instance_id)
        self.lease = Lease()
        self.tenures: dict[int, Tenure] = {}
        self._positions: dict[int, int] = {}
        self._leaving = asyncio.Event()

    async def run(self) -> None:
        """Until it is cancelled, or has left the group."""
        async with asyncio.TaskGroup() as tasks:
            working = [tasks.create_task(self._coordinate()), tasks.create_task(self._poll())]
            await self._leaving.wait()
            for task in working:
                task.cancel()
        await self._revoke(list(self.tenures))
        await self._leave()
        self.close()

    def leave(self) -> None:
        self._leaving.set()

    def die(self) -> None:
        """Nothing more is said or done; the coordinator is not told."""
        self.abandon()
        self.close()

    def close(self) -> None:
        self._fetcher.close()
        self._connection.close()

    async def _coordinate(self) -> None:
        raise NotImplementedError

    async def _leave(self) -> None:
        raise NotImplementedError

    # -- what it owns

    @property
    def has_lease(self) -> bool:
        return self._now_s() < self.lease.until_s

    def _extend_lease(self, sent_s: float) -> bool:
        """The coordinator has answered what was sent at `sent_s`. False where that is too long ago to count."""
        self.lease.until_s = max(self.lease.until_s, sent_s + LEASE_S)
        return self.has_lease

    def _assign(self, partitions: list[int]) -> None:
        owner = self.who.member_id
        if self._fences_generations:
            owner += f" of generation {self.who.generation}"
        for partition in partitions:
            self._note(
                f"member {self.host} of {self.client.group_id} takes {partition} as {self.who.generation}"
            )
            self.tenures[partition] = self._history[partition].assign(owner, self.lease, self._now_s())

    async def _revoke(self, partitions: list[int]) -> None:
        """Gives partitions up, with a last commit."""
        revoked = {index: (self.tenures.pop(index), self._positions.pop(index, None)) for index in partitions}
        for index, (tenure, position) in revoked.items():
            if position is not None and not tenure.is_over(self._now_s()):
                await self._work.finish(self, index, tenure, position)
            tenure.has_ended = True
            self._note(f"member {self.host} of {self.client.group_id} gives up {index}")

    def abandon(self) -> None:
        """It is out of the group, or has to assume so."""
        for tenure in self.tenures.values():
            tenure.has_ended = True
        self.tenures.clear()
        self._positions.clear()
        self.lease = Lease()

    async def _lapse(self) -> None:
        """Its lease has ended. As programs do that were held up, it may commit what it did all the same."""
        late = [(index, tenure, self._positions.get(index)) for index, tenure in self.tenures.items()]
        self.abandon()
        for partition, tenure, position in late:
            if position is not None and self.random.random() < LATE_COMMIT_PROBABILITY:
                await self._work.finish(self, partition, tenure, position)

    def owns(self, partition: int, tenure: Tenure) -> bool:
        return self.tenures.get(partition) is tenure and self.has_lease

    # -- what it does with it

    async def _poll(self) -> None:
        while True:
            for partition, tenure in list(self.tenures.items()):
                if self.owns(partition, tenure):
                    await self._poll_partition(partition, tenure)
            await asyncio.sleep(IDLE_S)

    async def _poll_partition(self, partition: int, tenure: Tenure) -> None:
        position = self._positions.get(partition)
        if position is None:
            position = await self._work.start(self, partition)
        else:
            records = await self._fetch(partition, position)
            if records is None or not self.owns(partition, tenure):
                return
            position = await self._work.process(self, partition, tenure, position, records)
        if self.owns(partition, tenure):
            if position is None:
                self._positions.pop(partition, None)
            else:
                self._positions[partition] = position

    async def _fetch(self, partition: int, position: int) -> list[Record] | None:
        try:
            answer = await self._fetcher.fetch(self._topic.topic_id, partition, position, POLL_MS)
        except OSError:
            return None
        if answer.error_code in AGAIN:
            return None
        if answer.error_code != ErrorCode.none:
            raise Violation(f"a fetch from offset {position} was answered with {answer.error_code.name}")
        return [record for record in records_of(answer) if record.offset >= position]

    async def committed(self, partition: int) -> Committed | None:
        """None where the coordinator cannot say now."""
        error, found = await self.client.committed([partition], self._as_reader())
        if error in AGAIN or error in REFUSED_COMMITS:
            return None
        if error != ErrorCode.none:
            raise Violation(f"{self.who} was told {error.name} when it asked for its offsets")
        return found[0] if found[0].error_code == ErrorCode.none else None

    def _as_reader(self) -> Identity | None:
        return None

    async def _find_coordinator(self) -> None:
        while (error := await self.client.find_coordinator()) != ErrorCode.none:
            if error not in AGAIN:
                raise Violation(f"FindCoordinator was answered with {error.name}")
            await asyncio.sleep(RETRY_PAUSE_S)
