"""Helpers for tests of migration: a whole shard, the members of `consumer_groups`, and classic members that behave like
real consumers: they rebalance eagerly or cooperatively, and assign partitions when they lead.
"""

import uuid
from typing import Any

from tests.unit.core.groups.consumer.consumer_groups import GROUP, Groups, Partition, Topics
from tests.unit.core.groups.shell import FakeShell

from ottla.core.groups.classic.group import ClassicGroup
from ottla.core.groups.commands import (
    Client,
    Heartbeat,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeavingMember,
    MemberLeft,
    SyncGroup,
    SyncGroupResponse,
)
from ottla.core.groups.consumer.group import ConsumerGroup
from ottla.core.groups.consumer_protocol import read_assignment, read_subscription, write_assignment
from ottla.core.groups.settings import GroupSettings
from ottla.core.groups.shard import GroupShard
from ottla.model.errors import ErrorCode, KafkaError

SESSION_MS = 10_000
REBALANCE_MS = 20_000
RESET = {ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id, ErrorCode.group_max_size_reached}


class MixedGroups(Groups):
    def __init__(self, topics: Topics, **settings: Any) -> None:
        self.topics = topics
        self.settings = {"initial_rebalance_delay_ms": 0} | settings
        FakeShell.__init__(self, self.fresh())
        self.made_up = 0

    def fresh(self) -> Any:
        return GroupShard(GroupSettings(**self.settings), self.topics)

    @property
    def any_group(self) -> ClassicGroup | ConsumerGroup | None:
        group = self.machine.state.groups.get(GROUP)
        assert group is None or isinstance(group, ClassicGroup | ConsumerGroup)
        return group

    def group(self, group_id: str = GROUP) -> ConsumerGroup:
        assert isinstance(self.any_group, ConsumerGroup), self.any_group
        return self.any_group

    def classic_group(self) -> ClassicGroup:
        assert isinstance(self.any_group, ClassicGroup), self.any_group
        return self.any_group

    def changed_topics(self) -> None:
        self._perform(self.machine.on_topics_changed(self.now_ms))


class ClassicConsumer:
    """`owned` has the partitions that it consumes. `waits_for` is the waiter of a pending JoinGroup or SyncGroup."""

    def __init__(
        self,
        groups: MixedGroups,
        name: str,
        *topics: str,
        cooperative: bool = True,
        instance_id: str | None = None,
        version: int = 3,
    ) -> None:
        self.groups = groups
        self.name = name
        self.topics = topics
        self.cooperative = cooperative
        self.instance_id = instance_id
        self.version = version
        self.reset()

    def reset(self) -> None:
        """It is no longer a member: it gives up all its partitions."""
        self.member_id = ""
        self.generation_id = -1
        self.owned: set[Partition] = set()
        self.joined: JoinGroupResponse | None = None
        self.is_stable = False
        self.waits_for: int | None = None
        self.watched: dict[str, int] | None = None
        self.has_skipped_assignment = False

    # -- actions

    def act(self) -> None:
        """Its next request if it does not wait: join, sync or heartbeat. A leader watches its topics."""
        if self.waits_for is None:
            if self.is_stable and self.watched is not None and self.watched != self.seen():
                self.join()
            elif self.is_stable:
                self.heartbeat()
            elif self.joined is None:
                self.join()
            else:
                self.sync()
        self.listen()

    def join(self) -> None:
        self.is_stable, self.joined = False, None
        if not self.cooperative:
            self.owned.clear()
        self.groups.made_up += 1
        protocol = "cooperative-sticky" if self.cooperative else "range"
        self.waits_for = self.groups.decide(
            JoinGroup(
                group_id=GROUP,
                member_id=self.member_id,
                new_member_id=f"{self.name}-{self.groups.made_up}",
                client=Client("client", "/127.0.0.1"),
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                protocol_type="consumer",
                protocols=((protocol, self.subscription()),),
                group_instance_id=self.instance_id,
                require_known_member_id=True,
                can_skip_assignment=True,
            )
        )
        self.listen()

    def sync(self) -> None:
        assert self.joined is not None
        self.watched = self.seen() if self.joined.leader == self.member_id else None
        self.has_skipped_assignment = self.watched is not None and self.joined.skip_assignment
        leads = self.watched is not None and not self.has_skipped_assignment
        self.waits_for = self.groups.decide(
            SyncGroup(
                group_id=GROUP,
                generation_id=self.generation_id,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                protocol_type="consumer",
                protocol_name=self.joined.protocol_name,
                assignments=self.assign() if leads else (),
            )
        )
        self.listen()

    def heartbeat(self) -> ErrorCode:
        command = Heartbeat(
            group_id=GROUP,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        response = self.groups.replies[self.groups.decide(command)]
        error = ErrorCode.none if response is None else response.code
        self.heed(error)
        return error

    def leave(self) -> tuple[MemberLeft, ...]:
        leaving = LeavingMember(self.member_id, self.instance_id)
        left: tuple[MemberLeft, ...] = self.groups.ask(LeaveGroup(group_id=GROUP, members=(leaving,)))
        self.reset()
        return left

    # -- responses

    def listen(self) -> None:
        if self.waits_for not in self.groups.replies:
            return
        response = self.groups.replies[self.waits_for]
        self.waits_for = None
        if isinstance(response, KafkaError):
            self.heed(response.code)
        elif isinstance(response, SyncGroupResponse):
            self.take(response.assignment)
        elif response.error_code is ErrorCode.member_id_required:
            self.member_id = response.member_id
        elif response.error_code is not ErrorCode.none:
            self.heed(response.error_code)
        else:
            self.member_id, self.generation_id = response.member_id, response.generation_id
            self.joined = response

    def heed(self, error: ErrorCode) -> None:
        if error in RESET:
            self.reset()
        elif error is ErrorCode.illegal_generation:
            self.owned.clear()
            self.joined, self.is_stable, self.generation_id = None, False, -1
        elif error in (ErrorCode.rebalance_in_progress, ErrorCode.inconsistent_group_protocol):
            self.joined, self.is_stable = None, False
        else:
            assert error is ErrorCode.none, error

    def take(self, assignment: bytes) -> None:
        """A cooperative consumer that must revoke partitions revokes them and rejoins at once."""
        read = read_assignment(assignment)
        partitions = () if read is None else read.partitions
        known = [(self.groups.topics.find(topic), indexes) for topic, indexes in partitions]
        assigned = {(topic.topic_id, index) for topic, indexes in known if topic for index in indexes}
        has_revoked = bool(self.owned - assigned)
        self.owned = assigned
        self.joined = None
        self.is_stable = not (self.cooperative and has_revoked)

    # -- its metadata and assignments

    def subscription(self) -> bytes:
        owned: dict[str, list[int]] = {}
        for topic_id, index in sorted(self.owned, key=str):
            topic = self.groups.topics.find_by_id(topic_id)
            if topic is not None:
                owned.setdefault(topic.name, []).append(index)
        return subscription(self.version, self.topics, owned if self.cooperative else {}, self.generation_id)

    def seen(self) -> dict[str, int]:
        found = [self.groups.topics.find(name) for name in self.topics]
        return {topic.name: topic.num_partitions for topic in found if topic is not None}

    def assign(self) -> tuple[tuple[str, bytes], ...]:
        """Round robin; a partition that another member still owns is not assigned yet."""
        assert self.joined is not None
        subscriptions = {
            member.member_id: read_subscription(member.metadata) for member in self.joined.members
        }
        topics = sorted(
            {topic for read in subscriptions.values() if read is not None for topic in read.topics}
        )
        owners = {
            (topic, index): member_id
            for member_id, read in subscriptions.items()
            if read is not None
            for topic, indexes in read.owned_partitions
            for index in indexes
        }
        assigned: dict[str, dict[str, list[int]]] = {member_id: {} for member_id in subscriptions}
        turn = 0
        for name in topics:
            topic = self.groups.topics.find(name)
            wanting = sorted(
                m for m, read in subscriptions.items() if read is not None and name in read.topics
            )
            for index in range(topic.num_partitions if topic else 0):
                turn += 1
                member_id = wanting[turn % len(wanting)]
                if owners.get((name, index), member_id) == member_id:
                    assigned[member_id].setdefault(name, []).append(index)
        return tuple(
            (member_id, write_assignment(self.version, {t: tuple(i) for t, i in topics.items()}))
            for member_id, topics in assigned.items()
        )

    def partitions(self, name: str) -> set[int]:
        topic_id = self.groups.topics.id(name)
        return {index for owned_id, index in self.owned if owned_id == topic_id}


def subscription(
    version: int, topics: tuple[str, ...], owned: dict[str, list[int]], generation_id: int
) -> bytes:
    parts = [version.to_bytes(2, "big"), _count(topics)]
    parts += [_text(topic) for topic in topics]
    parts.append(b"\xff" * 4)
    if version >= 1:
        parts.append(_count(owned))
        for topic, indexes in owned.items():
            parts += [_text(topic), _count(indexes), *(index.to_bytes(4, "big") for index in indexes)]
    if version >= 2:
        parts.append(generation_id.to_bytes(4, "big", signed=True))
    if version >= 3:
        parts.append(b"\xff" * 2)
    return b"".join(parts)


def _count(items: Any) -> bytes:
    return len(items).to_bytes(4, "big")


def _text(text: str) -> bytes:
    return len(text.encode()).to_bytes(2, "big") + text.encode()


def run(groups: MixedGroups, *members: Any, rounds: int = 30, ms: int = 1000) -> None:
    """All members act for a while; those of the consumer protocol report their owned partitions."""
    for _ in range(rounds):
        for member in members:
            if isinstance(member, ClassicConsumer):
                member.act()
            else:
                member.report()
        groups.advance(ms)
        for member in members:
            if isinstance(member, ClassicConsumer):
                member.listen()


def all_partitions(groups: MixedGroups, name: str) -> set[tuple[uuid.UUID, int]]:
    topic = groups.topics.find(name)
    return set() if topic is None else {(topic.topic_id, index) for index in range(topic.num_partitions)}
