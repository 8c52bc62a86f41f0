"""Helpers for tests of consumer groups: topics that can be changed, and members that behave like clients."""

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.unit.core.groups.shell import FakeShell

from ottla.core.coordination import Decision
from ottla.core.groups.commands import (
    Client,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
    DescribeConsumerGroup,
    DescribedConsumerGroup,
    TopicIdPartitions,
)
from ottla.core.groups.consumer.group import ConsumerGroup
from ottla.core.groups.consumer.machine import ConsumerMachine
from ottla.core.groups.settings import GroupSettings
from ottla.core.groups.state import GroupsState, TopicInfo
from ottla.model.errors import ErrorCode, KafkaError

GROUP = "the-group"
CLIENT = Client("the-client", "/127.0.0.1")

Partition = tuple[uuid.UUID, int]


class Topics:
    """The cluster's topics; topic ids are made of the name and how often it was created."""

    def __init__(self, **partitions: int) -> None:
        self.version = 1
        self._by_name: dict[str, TopicInfo] = {}
        self._created = 0
        for name, count in partitions.items():
            self.create(name, count)

    def create(self, name: str, partitions: int, racks: tuple[frozenset[str], ...] = ()) -> uuid.UUID:
        self.version += 1
        self._created += 1
        topic_id = uuid.uuid5(uuid.NAMESPACE_DNS, f"{name}.{self._created}")
        self._by_name[name] = TopicInfo(topic_id, name, partitions, racks)
        return topic_id

    def grow(self, name: str, partitions: int) -> None:
        self.version += 1
        self._by_name[name] = self._by_name[name]._replace(num_partitions=partitions)

    def delete(self, name: str) -> None:
        self.version += 1
        del self._by_name[name]

    def find(self, name: str) -> TopicInfo | None:
        return self._by_name.get(name)

    def find_by_id(self, topic_id: uuid.UUID) -> TopicInfo | None:
        return next((topic for topic in self._by_name.values() if topic.topic_id == topic_id), None)

    def names(self) -> Iterable[str]:
        return tuple(self._by_name)

    def id(self, name: str) -> uuid.UUID:
        return self._by_name[name].topic_id


def new_machine(topics: Topics, **settings: Any) -> ConsumerMachine:
    return ConsumerMachine(GroupsState(GroupSettings(**settings), topics))


class Groups(FakeShell):
    """A shell around the machine of consumer groups."""

    def __init__(self, topics: Topics, **settings: Any) -> None:
        self.topics = topics
        self.settings = settings
        super().__init__(new_machine(topics, **settings))

    def group(self, group_id: str = GROUP) -> ConsumerGroup:
        group = self.machine._state.groups[group_id]
        assert isinstance(group, ConsumerGroup)
        return group

    def described(self) -> DescribedConsumerGroup:
        described = self.ask(DescribeConsumerGroup(group_id=GROUP))
        assert isinstance(described, DescribedConsumerGroup)
        return described

    def fresh(self) -> ConsumerMachine:
        return new_machine(self.topics, **self.settings)

    def restart(self) -> None:
        self.reload(self.fresh())

    def changed_topics(self) -> None:
        """Notifies the machine, as the shard does."""
        decision: Any = Decision(self.machine.replay)
        self.machine.on_topics_changed(decision, self.now_ms)
        self._perform(decision)

    def heartbeat(self, member_id: str, epoch: int, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        command = ConsumerGroupHeartbeat(
            group_id=fields.pop("group_id", GROUP),
            member_id=member_id,
            member_epoch=epoch,
            client=fields.pop("client", CLIENT),
            **fields,
        )
        response = self.ask(command)
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        return response


class Member:
    """A client of the consumer protocol: it reports its owned partitions: those that it was assigned and has not
    revoked. A `slow` member revokes only when `revoke()` is called.
    """

    def __init__(
        self,
        groups: Groups,
        member_id: str,
        *names: str,
        regex: str | None = None,
        instance_id: str | None = None,
        rebalance_timeout_ms: int = 60_000,
        slow: bool = False,
        server_assignor: str | None = None,
        rack_id: str | None = None,
    ) -> None:
        self.groups = groups
        self.member_id = member_id
        self.names = names
        self.regex = regex
        self.instance_id = instance_id
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.slow = slow
        self.server_assignor = server_assignor
        self.rack_id = rack_id
        self.epoch = 0
        self.owned: set[Partition] = set()
        self.assigned: set[Partition] = set()
        self.interval_ms = 0

    def join(self) -> "Member":
        self.epoch = 0
        self.owned.clear()
        self.assigned.clear()
        return self.full_heartbeat()

    def full_heartbeat(self) -> "Member":
        return self._send(
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            subscribed_topic_names=self.names if self.regex is None else (),
            subscribed_topic_regex=self.regex,
            instance_id=self.instance_id,
            server_assignor=self.server_assignor,
            rack_id=self.rack_id,
            topic_partitions=self.told_owned(),
        )

    def heartbeat(self) -> "Member":
        """Sends a heartbeat without owned partitions."""
        return self._send(instance_id=self.instance_id)

    def report(self) -> "Member":
        """Reports its owned partitions, as clients do after a change."""
        return self._send(instance_id=self.instance_id, topic_partitions=self.told_owned())

    def subscribe(self, *names: str, regex: str = "") -> "Member":
        self.names = names
        self.regex = regex or None
        return self._send(
            instance_id=self.instance_id,
            subscribed_topic_names=names,
            subscribed_topic_regex=regex,
            topic_partitions=self.told_owned(),
        )

    def leave(self, epoch: int = -1) -> None:
        self.owned.clear()
        self.assigned.clear()
        self.groups.heartbeat(self.member_id, epoch, instance_id=self.instance_id)

    def revoke(self) -> None:
        self.owned &= self.assigned

    def told_owned(self) -> tuple[TopicIdPartitions, ...]:
        by_topic: dict[uuid.UUID, list[int]] = {}
        for topic_id, partition in sorted(self.owned, key=str):
            by_topic.setdefault(topic_id, []).append(partition)
        return tuple(TopicIdPartitions(topic_id, tuple(parts)) for topic_id, parts in by_topic.items())

    def partitions(self, name: str) -> set[int]:
        topic_id = self.groups.topics.id(name)
        return {partition for owned_id, partition in self.owned if owned_id == topic_id}

    def _send(self, **fields: Any) -> "Member":
        response = self.groups.heartbeat(self.member_id, self.epoch, **fields)
        self.epoch = response.member_epoch
        self.interval_ms = response.heartbeat_interval_ms
        if response.assignment is not None:
            self.assigned = {
                (topic_id, p) for topic_id, partitions in response.assignment for p in partitions
            }
            self.owned |= self.assigned
            if not self.slow:
                self.revoke()
        return self


def settle(groups: Groups, *members: Member, rounds: int = 20) -> None:
    """Lets the members send heartbeats until nothing changes."""
    for _ in range(rounds):
        before = [(member.epoch, set(member.owned)) for member in members]
        for member in members:
            member.report()
        groups.advance(1000)
        after = [(member.epoch, set(member.owned)) for member in members]
        group = groups.group()
        is_told = all(group.members[m.member_id].member_epoch == group.assignment_epoch for m in members)
        if before == after and is_told:
            return
    raise AssertionError(f"the group does not settle: {groups.described()}")


@contextmanager
def rejected(code: ErrorCode, message: str = "") -> Iterator[None]:
    """Expects an error with this code, and with this text in its message."""
    with pytest.raises(KafkaError) as rejection:
        yield
    assert rejection.value.code is code
    assert message in rejection.value.message
