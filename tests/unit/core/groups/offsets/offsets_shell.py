"""Helpers for tests of offsets: a group with scripted responses, and a shard that has only offsets."""

from typing import Any

from tests.unit.core.groups.transactional_shell import TransactionalShell

from ottla.core.coordination import Command, Decision
from ottla.core.groups.commands import (
    CommittedOffset,
    ListedGroup,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
    PartitionError,
    TxnOffsetCommit,
)
from ottla.core.groups.group import GroupDecision, OffsetExpiry
from ottla.core.groups.offsets.machine import OffsetsMachine
from ottla.core.groups.offsets.repeated_commits import CommitTemplate, RepeatedCommit
from ottla.core.groups.settings import GroupSettings
from ottla.core.groups.state import GroupsState
from ottla.model.errors import KafkaError
from ottla.model.ids import NO_PRODUCER_ID, TopicPartition
from ottla.protocol.group_records.records import GroupMetadataKey, OffsetCommitKey

AFTER_COMMIT = OffsetExpiry(None)


class ScriptedGroup:
    """A group whose responses are fields."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.is_empty = False
        self.rejection: KafkaError | None = None
        self.subscription: set[str] = set()
        self.expiry: OffsetExpiry | None = AFTER_COMMIT

    def check_offset_commit(
        self, command: OffsetCommit | TxnOffsetCommit, decision: GroupDecision, now_ms: int
    ) -> None:
        self._reject()

    def check_offset_fetch(self, command: OffsetFetch) -> None:
        self._reject()

    def check_offset_delete(self) -> None:
        self._reject()

    def check_delete(self) -> None:
        self._reject()

    def _reject(self) -> None:
        if self.rejection is not None:
            raise self.rejection

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscription

    def offset_expiry(self) -> OffsetExpiry | None:
        return self.expiry

    def write_tombstones(self, decision: GroupDecision) -> None:
        decision.write(GroupMetadataKey(group=self.group_id), None)

    def listed(self) -> ListedGroup:
        return ListedGroup(self.group_id, "scripted", "Scripted", "scripted")

    def validate(self) -> None:
        pass


class OffsetsShard:
    """Of other records it handles only the tombstone of a group."""

    def __init__(self, settings: GroupSettings) -> None:
        self.state = GroupsState(settings, topics=None)  # type: ignore[arg-type]
        self.offsets = OffsetsMachine(self.state)

    def decide(self, command: Command[Any], waiter: Any, now_ms: int) -> Decision[Any, Any]:
        decision: Decision[Any, Any] = Decision(self.replay)
        self.offsets.DECIDE[type(command)](self.offsets, command, waiter, decision, now_ms)
        return decision

    def replay(self, key: Any, value: Any, producer_id: int = NO_PRODUCER_ID) -> None:
        if isinstance(key, OffsetCommitKey):
            self.offsets.replay(key, value, producer_id)
        else:
            assert value is None
            self.state.groups.pop(key.group, None)

    def replay_marker(self, producer_id: int, committed: bool) -> None:
        self.offsets.replay_marker(producer_id, committed)

    def on_loaded(self, now_ms: int) -> Decision[Any, Any]:
        decision: Decision[Any, Any] = Decision(self.replay)
        self.offsets.on_loaded(decision, now_ms)
        return decision

    def durable_state(self) -> object:
        return self.offsets.durable_state(), set(self.state.groups)

    def validate(self) -> None:
        self.offsets.validate()


class OffsetsShell(TransactionalShell):
    """Short methods for commits and fetches."""

    def __init__(self, **settings: Any) -> None:
        self.settings = GroupSettings(**settings)
        self.templates: dict[object, CommitTemplate] = {}
        super().__init__(OffsetsShard(self.settings))
        self.reload()

    def reload(self, fresh: Any = None) -> None:
        super().reload(fresh or OffsetsShard(self.settings))

    def add_group(self, group_id: str = "g") -> ScriptedGroup:
        group = ScriptedGroup(group_id)
        self.machine.state.groups[group_id] = group
        return group

    def commit(
        self, *offsets: OffsetToCommit, group_id: str = "g", **fields: Any
    ) -> tuple[PartitionError, ...]:
        given = {"member_id": "", "group_instance_id": None, "generation_or_member_epoch": -1, **fields}
        response: tuple[PartitionError, ...] = self.ask(
            OffsetCommit(group_id=group_id, offsets=offsets, **given)
        )
        return response

    def commit_repeated(self, *offsets: OffsetToCommit, group_id: str = "g") -> tuple[PartitionError, ...]:
        """As the second request of a member that commits these partitions."""
        given = {"member_id": "", "group_instance_id": None, "generation_or_member_epoch": -1}
        key = (group_id, *((each.topic, each.partition, each.metadata) for each in offsets))
        if key not in self.templates:
            command = OffsetCommit(group_id=group_id, offsets=offsets, **given)  # type: ignore[arg-type]
            self.templates[key] = CommitTemplate(
                bytes(12 * len(offsets)), [12 * n for n in range(len(offsets))], command, b""
            )
        numbers = tuple(number for each in offsets for number in (each.offset, each.leader_epoch))
        response: tuple[PartitionError, ...] = self.ask(RepeatedCommit(self.templates[key], numbers))
        return response

    def commit_in_transaction(
        self, producer_id: int, *offsets: OffsetToCommit, group_id: str = "g", **fields: Any
    ) -> tuple[PartitionError, ...]:
        given = {
            "member_id": "",
            "group_instance_id": None,
            "generation_id": -1,
            "producer_epoch": 0,
            **fields,
        }
        command = TxnOffsetCommit(group_id=group_id, producer_id=producer_id, offsets=offsets, **given)
        response: tuple[PartitionError, ...] = self.ask(command)
        return response

    def fetch(
        self, *partitions: TopicPartition, group_id: str = "g", **fields: Any
    ) -> tuple[CommittedOffset, ...]:
        command = OffsetFetch(group_id=group_id, partitions=partitions or None, **fields)
        response: tuple[CommittedOffset, ...] = self.ask(command)
        return response

    def offset_of(self, topic: str, partition: int = 0, group_id: str = "g") -> int:
        (fetched,) = self.fetch(TopicPartition(topic, partition), group_id=group_id)
        return fetched.offset
