"""Programs that use transactions: some write their own, some copy from topic to topic exactly once.

Each transactional id is used by one program after the other, sometimes by two at once; programs die in the midst of
a transaction, or leave it open for too long.
"""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from random import Random

from ottla.model.errors import ErrorCode
from ottla.sim.classic_members import ClassicMember
from ottla.sim.client import SimClient
from ottla.sim.consumer_member import ConsumerMember
from ottla.sim.env import World
from ottla.sim.group_client import GroupClient, Identity, Topic
from ottla.sim.group_history import GroupHistory
from ottla.sim.group_members import GroupMember
from ottla.sim.group_under_test import GroupUnderTest
from ottla.sim.group_work import COPIED_AT_ONCE_MAX, Copying
from ottla.sim.history import Value, Violation
from ottla.sim.node import HOST, PORT
from ottla.sim.transaction_client import TransactionClient
from ottla.sim.transaction_history import TransactionHistory
from ottla.sim.transactional_producer import AGAIN, Abortable, Fenced, TransactionalProducer
from ottla.sim.workload import RETRY_PAUSE_S, records_of

HOSTS = [f"program-{index}" for index in range(3)]
COPIES = "copies"  # the group under which programs with a partition each commit
SHARING = "sharing"  # the group whose members share the partitions
CLIENT_TIMEOUT_S = 5.0


class Site:
    """What all programs of a run share."""

    def __init__(self, world: World, topics: dict[str, Topic]) -> None:
        self.world = world
        self.random: Random = world.derive()
        self.history = TransactionHistory()
        self.topics = topics

    def client(self) -> SimClient:
        return self._client(loses_late=False)

    def producer(self, transactional_id: str) -> TransactionalProducer:
        """In version 0 a late request of one transaction counts for the next (that is why there is version 2)."""
        adds_itself = self.random.random() < 0.6
        client = self._client(loses_late=not adds_itself)
        return TransactionalProducer(
            self.world, TransactionClient(client, transactional_id, adds_itself=adds_itself), self.history
        )

    def _client(self, *, loses_late: bool) -> SimClient:
        host = self.random.choice(HOSTS)
        door = self.world.network.host(host)
        return SimClient(door, (HOST, PORT), host, CLIENT_TIMEOUT_S, loses_late=loses_late)


async def write(site: Site, transactional_id: str) -> None:
    """A program that writes transaction after transaction, until it is fenced."""
    random, ledger = site.random, site.topics["ledger"]
    producer = site.producer(transactional_id)
    await producer.init()
    while True:
        transaction = producer.begin()
        try:
            for _ in range(random.randint(1, 4)):
                values = [transaction.next_value() for _ in range(random.randint(1, 3))]
                await producer.send(ledger, random.randrange(ledger.partitions), values)
                await asyncio.sleep(random.random() * (10.0 if random.random() < 0.1 else 0.5))
            await producer.end(commit=random.random() < 0.7)
        except Abortable:
            await producer.end(commit=False)
        await asyncio.sleep(random.random())


async def copy(site: Site, transactional_id: str, index: int) -> None:
    """A program that copies one partition of the input to the output, exactly once, until it is fenced."""
    random, source, target = site.random, site.topics["input"], site.topics["output"]
    client = site.client()
    group = GroupClient(client, COPIES, source)
    producer = site.producer(transactional_id)
    await producer.init()
    while True:
        position = await _committed_offset(group, index)
        values = await _fetch_values(client, source, index, position)
        if not values:
            continue
        transaction = producer.begin()
        try:
            copied = values[: random.randint(1, COPIED_AT_ONCE_MAX)]
            for partition in range(target.partitions):
                part = [value for value in copied if value.number % target.partitions == partition]
                if part:
                    await producer.send(target, partition, [transaction.next_value(value) for value in part])
            await producer.commit_offset(COPIES, Identity(), source, index, position + len(copied))
            await producer.end(commit=random.random() < 0.8)
        except Abortable:
            await producer.end(commit=False)


async def _committed_offset(group: GroupClient, partition: int) -> int:
    """What is committed for sure: while a transaction may still change it, nobody is told (KIP-447)."""
    await group.find_coordinator()
    while True:
        error, found = await group.committed([partition])
        if error == ErrorCode.none and found[0].error_code == ErrorCode.none:
            return max(found[0].offset, 0)
        if error not in AGAIN and error != ErrorCode.none:
            raise Violation(f"asked for offsets, the coordinator said {error.name}")
        await asyncio.sleep(RETRY_PAUSE_S)


async def _fetch_values(client: SimClient, topic: Topic, partition: int, offset: int) -> list[Value]:
    try:
        answer = await client.fetch(topic.topic_id, partition, offset)
    except OSError:
        await asyncio.sleep(RETRY_PAUSE_S)
        return []
    return [Value.decode(record.key or b"") for record in records_of(answer) if record.offset >= offset]


def sharing(site: Site) -> GroupUnderTest:
    """Members of one protocol, or of both, that copy the input; each has a transactional id of its own."""
    source, target = site.topics["input"], site.topics["shared"]
    history = GroupHistory(SHARING, source.partitions)
    random = site.world.derive()
    kinds = random.choice(((ClassicMember,), (ConsumerMember,), (ClassicMember, ConsumerMember)))
    ids = (f"member-{number}" for number in count())

    def new_member(instance_id: str | None) -> GroupMember:
        work = Copying(site.producer(next(ids)), source, target, random)
        return random.choice(kinds)(site.world, history, source, random.choice(HOSTS), work, instance_id)

    return GroupUnderTest(history, random, new_member)


class Programs:
    """The programs of one transactional id, one after the other."""

    def __init__(self, site: Site, run: Callable[[], Awaitable[None]]) -> None:
        self._site = site
        self._run = run
        self.is_calm = False
        self._running: list[asyncio.Task[None]] = []

    async def supervise(self, tasks: asyncio.TaskGroup) -> None:
        """Starts a program where none runs; unless it is calm, kills some, and starts some beside another."""
        random = self._site.random
        while True:
            self._running = [task for task in self._running if not task.done()]
            if not self._running or (random.random() < 0.1 and not self.is_calm):
                self._running.append(tasks.create_task(self._until_fenced()))
            elif random.random() < 0.15 and not self.is_calm:
                random.choice(self._running).cancel()
            await asyncio.sleep(random.uniform(0.5, 5.0))

    def stop(self) -> None:
        for task in self._running:
            task.cancel()

    async def _until_fenced(self) -> None:
        try:
            await self._run()
        except Fenced as fenced:
            self._site.world.trace.note(f"fenced: {fenced}")
