"""Commits, fetches, deletes and expires the offsets of all groups of a shard.

The group decides who may commit or fetch.
"""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from ottla.core.coordination import Command, Producer, Waiter
from ottla.core.groups.classic.group import ClassicGroup
from ottla.core.groups.commands import (
    CommittedOffset,
    DeleteGroup,
    DeletePartitionOffsets,
    ExpireOffsets,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetToCommit,
    PartitionError,
    TxnOffsetCommit,
)
from ottla.core.groups.group import Group, GroupDecision, OffsetExpiry
from ottla.core.groups.offsets.repeated_commits import RepeatedCommit, RepeatedOffsets
from ottla.core.groups.offsets.store import OffsetsByTopic, OffsetStore, OffsetValue
from ottla.core.groups.state import GroupsState
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_PRODUCER_ID, NO_TIMESTAMP, TopicPartition
from ottla.protocol.group_records.records import (
    ExpiringOffsetCommitValue,
    GroupValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

_EXPIRY_TIMER = ("expire-offsets",)
NO_ERROR = ErrorCode.none  # looking up an enum member is slow, and this is used for every offset

Method = Callable[[Any, Any, Waiter, GroupDecision, int], None]


class OffsetsMachine:
    def __init__(self, state: GroupsState) -> None:
        self._state = state
        self._offsets = OffsetStore()

    def committed(self, group_id: str) -> OffsetsByTopic:
        """The committed offsets of the group, to be read at once."""
        return self._offsets.of_group(group_id)

    def commit(self, command: OffsetCommit, waiter: Waiter, decision: GroupDecision, now_ms: int) -> None:
        group = self._state.groups.get(command.group_id)
        if group is not None:
            group.check_offset_commit(command, decision, now_ms)
        elif command.generation_or_member_epoch >= 0:
            # KIP-848: clients know GROUP_ID_NOT_FOUND from v9 on.
            code = (
                ErrorCode.group_id_not_found
                if command.supports_stale_member_epoch
                else ErrorCode.illegal_generation
            )
            raise _no_such_group(command.group_id, code)
        expire_ms = NO_TIMESTAMP if command.retention_ms is None else now_ms + command.retention_ms
        decision.reply(waiter, self._write(command.group_id, command.offsets, expire_ms, decision, now_ms))

    def commit_repeated(
        self, command: RepeatedCommit, waiter: Waiter, decision: GroupDecision, now_ms: int
    ) -> None:
        """As `commit`, for a commit that differs from an earlier one only in its offsets."""
        template, group_id = command.template, command.template.command.group_id
        group = self._state.groups.get(group_id)
        if group is None or not self._offsets.can_put_repeated(group_id):
            self.commit(command.to_offset_commit(), waiter, decision, now_ms)
            return
        group.check_offset_commit(template.command, decision, now_ms)
        decision.write_packed(template.count, template.packed_records(command.offsets, now_ms))
        self._offsets.put_repeated(group_id, RepeatedOffsets(template, command.offsets, now_ms))
        decision.reply(waiter, template.accepted)

    def commit_in_transaction(
        self, command: TxnOffsetCommit, waiter: Waiter, decision: GroupDecision, now_ms: int
    ) -> None:
        _check_group_id(command.group_id)
        group = self._state.groups.get(command.group_id)
        if group is not None:
            group.check_offset_commit(command, decision, now_ms)
        elif command.generation_id >= 0:
            raise _no_such_group(command.group_id, ErrorCode.illegal_generation)
        decision.producer = Producer(command.producer_id, command.producer_epoch)
        decision.reply(waiter, self._write(command.group_id, command.offsets, NO_TIMESTAMP, decision, now_ms))

    def _write(
        self,
        group_id: str,
        offsets: Iterable[OffsetToCommit],
        expire_ms: int,
        decision: GroupDecision,
        now_ms: int,
    ) -> tuple[PartitionError, ...]:
        errors = []
        # Most commits are applied here instead of by `replay`, which would take a tenth of the time of a commit.
        is_plain = decision.producer is None and group_id in self._state.groups
        for topic, partition, offset, leader_epoch, given_metadata, topic_id in offsets:
            metadata = given_metadata or ""
            if self._is_too_large(metadata):
                errors.append(PartitionError(topic, partition, ErrorCode.offset_metadata_too_large))
                continue
            value: OffsetValue
            if expire_ms == NO_TIMESTAMP:
                value = OffsetCommitValue(
                    offset=offset,
                    leader_epoch=leader_epoch,
                    metadata=metadata,
                    commit_timestamp=now_ms,
                    topic_id=topic_id,
                )
            else:
                value = ExpiringOffsetCommitValue(
                    offset=offset, metadata=metadata, commit_timestamp=now_ms, expire_timestamp=expire_ms
                )
            key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
            if is_plain:
                decision.write_without_replay(key, value)
                self._offsets.put(group_id, topic, partition, value)
            else:
                decision.write(key, value)
            errors.append(PartitionError(topic, partition, NO_ERROR))
        return tuple(errors)

    def _is_too_large(self, metadata: str) -> bool:
        """Kafka compares `offset.metadata.max.bytes` with the length in UTF-16 units (one or two per character)."""
        limit = self._state.settings.offset_metadata_max_bytes
        return 2 * len(metadata) > limit and len(metadata.encode("utf-16-le")) > 2 * limit

    def fetch(self, command: OffsetFetch, waiter: Waiter, decision: GroupDecision, now_ms: int) -> None:
        """For an unknown group no offset is committed; that is no error."""
        group = self._state.groups.get(command.group_id)
        if group is not None:
            group.check_offset_fetch(command)
        committed = self._offsets.of_group(command.group_id)
        unstable = self._offsets.pending_of_group(command.group_id) if command.require_stable else {}
        partitions: Iterable[TopicPartition]
        if command.partitions is None:
            partitions = [TopicPartition(topic, each) for topic in committed for each in committed[topic]]
        else:
            partitions = command.partitions
        fetched = []
        for partition in partitions:
            topic, index = partition
            value = committed[topic].get(index) if topic in committed else None
            if partition in unstable:
                fetched.append(CommittedOffset(topic, index, error_code=ErrorCode.unstable_offset_commit))
            elif value is None:
                fetched.append(CommittedOffset(topic, index))
            else:
                fetched.append(
                    CommittedOffset(
                        topic, index, value.offset, value.leader_epoch, value.metadata, value.topic_id
                    )
                )
        decision.reply(waiter, tuple(fetched))

    def delete(self, command: OffsetDelete, waiter: Waiter, decision: GroupDecision, now_ms: int) -> None:
        _check_group_id(command.group_id)
        group = self._group(command.group_id)
        group.check_offset_delete()
        errors = []
        for partition in command.partitions:
            is_subscribed = group.is_subscribed_to(partition.topic)
            code = ErrorCode.group_subscribed_to_topic if is_subscribed else NO_ERROR
            if not is_subscribed and self._offsets.has(command.group_id, partition):
                _write_tombstone(command.group_id, partition, decision)
            errors.append(PartitionError(partition.topic, partition.partition, code))
        decision.reply(waiter, tuple(errors))

    def delete_partitions(
        self, command: DeletePartitionOffsets, waiter: Waiter, decision: GroupDecision, now_ms: int
    ) -> None:
        for group_id in list(self._state.groups):
            for partition in list(self._offsets.partitions_of_group(group_id, command.topics)):
                _write_tombstone(group_id, partition, decision)
        decision.reply(waiter, None)

    def delete_group(
        self, command: DeleteGroup, waiter: Waiter, decision: GroupDecision, now_ms: int
    ) -> None:
        group = self._group(command.group_id)
        group.check_delete()
        for partition in list(self._offsets.partitions_of_group(command.group_id)):
            _write_tombstone(command.group_id, partition, decision)
        group.write_tombstones(decision)
        decision.reply(waiter, None)

    def expire(self, command: ExpireOffsets, waiter: Waiter, decision: GroupDecision, now_ms: int) -> None:
        """KIP-211. Also deletes groups that are empty and have no offsets left."""
        self._start_expiry_timer(decision)
        for group in list(self._state.groups.values()):
            expiry = group.offset_expiry()
            if expiry is not None and group.group_id in self._offsets.committed:
                for partition in self._expired(group, expiry, now_ms):
                    _write_tombstone(group.group_id, partition, decision)
            if group.is_empty and not self._has_offsets(group.group_id):
                group.write_tombstones(decision)
        decision.reply(waiter, None)

    def _expired(self, group: Group, expiry: OffsetExpiry, now_ms: int) -> list[TopicPartition]:
        retention_ms = self._state.settings.offsets_retention_ms
        since_ms = expiry.since_ms or 0
        pending = self._offsets.pending_of_group(group.group_id)
        return [
            TopicPartition(topic, partition)
            for topic, offsets in self._offsets.of_group(group.group_id).items()
            if not group.is_subscribed_to(topic)
            for partition, value in offsets.items()
            if now_ms >= _expiry_ms(value, since_ms, retention_ms) and (topic, partition) not in pending
        ]

    def _has_offsets(self, group_id: str) -> bool:
        return group_id in self._offsets.committed or group_id in self._offsets.pending

    def _group(self, group_id: str) -> Group:
        group = self._state.groups.get(group_id)
        if group is None:
            raise _no_such_group(group_id, ErrorCode.group_id_not_found)
        return group

    def replay(
        self, key: OffsetCommitKey, value: GroupValue | None, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        group_id = key.group
        if value is None:
            self._offsets.remove(group_id, key.topic, key.partition)
            return
        assert isinstance(value, OffsetValue)
        if group_id not in self._state.groups:
            # A commit by a client that is not a member creates a simple group, for which there is no other record.
            self._state.groups[group_id] = ClassicGroup(group_id)
        if producer_id == NO_PRODUCER_ID:
            self._offsets.put(group_id, key.topic, key.partition, value)
        else:
            partition = TopicPartition(key.topic, key.partition)
            self._offsets.put_pending(group_id, partition, producer_id, value)

    def replay_marker(self, producer_id: int, committed: bool) -> None:
        self._offsets.end_transaction(producer_id, committed)

    def on_loaded(self, decision: GroupDecision, now_ms: int) -> None:
        self._start_expiry_timer(decision)

    def _start_expiry_timer(self, decision: GroupDecision) -> None:
        interval_ms = self._state.settings.offsets_retention_check_interval_ms
        decision.start_timer(_EXPIRY_TIMER, interval_ms, ExpireOffsets())

    def durable_state(self) -> object:
        return self._offsets.durable_state()

    def validate(self) -> None:
        self._offsets.validate()
        for group_id in (*self._offsets.committed, *self._offsets.pending):
            assert group_id in self._state.groups, f"there are offsets of {group_id}, but no such group"

    DECIDE: ClassVar[dict[type[Command[Any]], Method]] = {
        OffsetCommit: commit,
        RepeatedCommit: commit_repeated,
        TxnOffsetCommit: commit_in_transaction,
        OffsetFetch: fetch,
        OffsetDelete: delete,
        DeletePartitionOffsets: delete_partitions,
        DeleteGroup: delete_group,
        ExpireOffsets: expire,
    }


def _expiry_ms(value: OffsetValue, since_ms: int, retention_ms: int) -> int:
    if value.expire_timestamp != NO_TIMESTAMP:
        return value.expire_timestamp
    return max(value.commit_timestamp, since_ms) + retention_ms


def _write_tombstone(group_id: str, partition: TopicPartition, decision: GroupDecision) -> None:
    key = OffsetCommitKey(group=group_id, topic=partition.topic, partition=partition.partition)
    decision.write(key, None)


def _check_group_id(group_id: str) -> None:
    """Only commits and fetches of old clients may have an empty group id."""
    if not group_id:
        raise KafkaError(ErrorCode.invalid_group_id, "the group id is empty: set group.id")


def _no_such_group(group_id: str, code: ErrorCode) -> KafkaError:
    return KafkaError(
        code, f"there is no group {group_id!r}: it was never joined, was deleted or has expired; join it"
    )
