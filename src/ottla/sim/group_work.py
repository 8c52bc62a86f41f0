"""What simulated group members do with their partitions: process and commit, or copy in transactions (KIP-447)."""

import asyncio
from random import Random

from ottla.model.errors import ErrorCode
from ottla.records.records import Record
from ottla.sim.group_client import Topic
from ottla.sim.group_history import GroupHistory, Ownership
from ottla.sim.group_members import GROUP_RETRIABLE, REJECTED_COMMIT_ERRORS, GroupMember
from ottla.sim.history import Value, Violation
from ottla.sim.transactional_producer import Abortable, Fenced, TransactionalProducer

_COMMIT_PROBABILITY = 0.5
_REWIND_PROBABILITY = 0.02
COPIED_AT_ONCE_MAX = 6


class CommitWork:
    """Processes records and commits now and then, and always when no records are left."""

    def __init__(self, history: GroupHistory, random: Random) -> None:
        self._history = history
        self._random = random
        self._committed: dict[int, int] = {}  # as acknowledged to this member
        self._now_s = asyncio.get_running_loop().time

    async def start(self, member: GroupMember, partition: int) -> int | None:
        start_s = self._now_s()
        found = await member.committed(partition)
        if found is None:
            return None
        self._history[partition].read(found.offset, found.metadata, start_s, self._now_s())
        self._committed[partition] = max(found.offset, 0)
        return self._committed[partition]

    async def process(
        self, member: GroupMember, partition: int, ownership: Ownership, position: int, records: list[Record]
    ) -> int | None:
        for record in records:
            self._history[partition].process(ownership, record.offset)
            position = record.offset + 1
        if self._random.random() < _REWIND_PROBABILITY:
            position = self._random.randint(0, position)
        if self._committed.get(partition) != position and (
            not records or self._random.random() < _COMMIT_PROBABILITY
        ):
            await self.finish(member, partition, ownership, position)
        return position

    async def finish(self, member: GroupMember, partition: int, ownership: Ownership, position: int) -> None:
        history = self._history[partition]
        commit = history.commit(ownership, position, self._now_s())
        error = await member.commit(partition, position, commit.name)
        if error == ErrorCode.none:
            history.acknowledge(commit, self._now_s())
            member.acknowledged.set()
            self._committed[partition] = position
        elif error in REJECTED_COMMIT_ERRORS:
            history.reject(commit)
        elif error not in GROUP_RETRIABLE:
            raise Violation(f"{member.identity} got {error.name} for its commit of {position}")


class CopyWork:
    """Copies records to another topic and commits their offsets in the same transaction, as a member of the group.

    A transaction continues when the member gives up the partition meanwhile: the coordinator then rejects its offsets,
    or the next owner waits until the transaction has ended.
    """

    def __init__(self, producer: TransactionalProducer, source: Topic, target: Topic, random: Random) -> None:
        self._producer = producer
        self._source = source
        self._target = target
        self._random = random
        self._is_ready = False

    async def start(self, member: GroupMember, partition: int) -> int | None:
        if not self._is_ready:
            await self._producer.init()
            self._is_ready = True
        found = await member.committed(partition)
        return None if found is None else max(found.offset, 0)

    async def process(
        self, member: GroupMember, partition: int, ownership: Ownership, position: int, records: list[Record]
    ) -> int | None:
        if not records:
            return position
        identity = member.identity
        copied = records[: self._random.randint(1, COPIED_AT_ONCE_MAX)]
        position = copied[-1].offset + 1
        transaction = self._producer.begin()
        commit = self._random.random() < 0.8
        try:
            try:
                for target in range(self._target.partitions):
                    part = _values_of(copied, target, self._target.partitions)
                    if part:
                        values = [transaction.next_value(source) for source in part]
                        await self._producer.send(self._target, target, values)
                await self._producer.commit_offset(
                    member.client.group_id, identity, self._source, partition, position
                )
            except Abortable:
                commit = False
            await self._producer.end(commit=commit)
        except Fenced:
            self._is_ready = False
            return None
        return position if commit else None

    async def finish(self, member: GroupMember, partition: int, ownership: Ownership, position: int) -> None:
        """Nothing is left to do: every offset was committed in a transaction."""


def _values_of(records: list[Record], target: int, targets: int) -> list[Value]:
    values = [Value.decode(record.key or b"") for record in records]
    return [value for value in values if value.number % targets == target]
