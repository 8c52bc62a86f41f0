"""Offsets agree with a model of Kafka's implementation, for any sequence of events.

The model keeps for every offset the position of its record in the log, and compares positions when a transaction ends.
After each step the shard equals the one rebuilt from the bytes of its log, complete or compacted.
"""

import uuid
from typing import Any, NamedTuple

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.examples import examples
from tests.unit.core.groups.offsets.offsets_shell import OffsetsShard, OffsetsShell
from tests.unit.core.groups.transactional_shell import compacted, replayed

from ottla.core.coordination import Command
from ottla.core.groups.commands import DeleteGroup, DeletePartitionOffsets, OffsetDelete, OffsetToCommit
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition

# Few of each, so that they collide.
GROUPS = ("a", "b")
PARTITIONS = (TopicPartition("s", 0), TopicPartition("t", 0), TopicPartition("t", 1))
PRODUCERS = (100, 200)
METADATA_MAX = 4
RETENTION_MS = 1000
CHECK_INTERVAL_MS = 300

groups = st.sampled_from(("a", "a", "a", "b"))
producers = st.sampled_from(PRODUCERS)
some_partitions = st.sampled_from((PARTITIONS, PARTITIONS[:2], PARTITIONS[1:], PARTITIONS[1:2]))
metadata = st.sampled_from((None, "", "fits", "fits", "does not"))


class Place(NamedTuple):
    group_id: str
    partition: TopicPartition


class Kept(NamedTuple):
    offset: int
    metadata: str
    expires_at_ms: int
    position: int


class OffsetsModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.shell = OffsetsShell(
            offset_metadata_max_bytes=METADATA_MAX,
            offsets_retention_ms=RETENTION_MS,
            offsets_retention_check_interval_ms=CHECK_INTERVAL_MS,
        )
        self.next_check_ms = self.shell.now_ms + CHECK_INTERVAL_MS
        self.made = 0
        self.position = 0
        self.groups: set[str] = set()
        self.committed: dict[Place, Kept] = {}
        self.pending: dict[int, dict[Place, Kept]] = {}

    @rule(
        group_id=groups,
        partitions=some_partitions,
        metadata=metadata,
        retention_ms=st.none() | st.integers(0, 3000),
    )
    def commit(
        self,
        group_id: str,
        partitions: tuple[TopicPartition, ...],
        metadata: str | None,
        retention_ms: int | None,
    ) -> None:
        offsets = self._offsets(partitions, metadata)
        self.shell.commit(*offsets, group_id=group_id, retention_ms=retention_ms)
        lives_ms = RETENTION_MS if retention_ms is None else retention_ms
        self.committed.update(self._accepted(group_id, offsets, lives_ms))

    @rule(group_id=groups, partitions=some_partitions, metadata=st.sampled_from((None, "fits")))
    def commit_repeated(
        self, group_id: str, partitions: tuple[TopicPartition, ...], metadata: str | None
    ) -> None:
        """With a template, whether there was a commit before or not."""
        offsets = self._offsets(partitions, metadata)
        response = self.shell.commit_repeated(*offsets, group_id=group_id)
        assert not any(each.error_code for each in response)
        self.committed.update(self._accepted(group_id, offsets, RETENTION_MS))

    @rule(group_id=groups, producer_id=producers, partitions=some_partitions, metadata=metadata)
    def commit_in_transaction(
        self, group_id: str, producer_id: int, partitions: tuple[TopicPartition, ...], metadata: str | None
    ) -> None:
        offsets = self._offsets(partitions, metadata)
        self.shell.commit_in_transaction(producer_id, *offsets, group_id=group_id)
        accepted = self._accepted(group_id, offsets, RETENTION_MS)
        if accepted:
            self.pending.setdefault(producer_id, {}).update(accepted)

    def _offsets(
        self, partitions: tuple[TopicPartition, ...], metadata: str | None
    ) -> tuple[OffsetToCommit, ...]:
        """No two commits have the same offset; only the first partition has the metadata."""
        self.made += 1
        texts = [metadata, *[None] * len(partitions)]
        return tuple(
            OffsetToCommit(*partition, self.made, metadata=text, topic_id=uuid.UUID(int=1))
            for partition, text in zip(partitions, texts, strict=False)
        )

    def _accepted(
        self, group_id: str, offsets: tuple[OffsetToCommit, ...], lives_ms: int
    ) -> dict[Place, Kept]:
        accepted = {}
        for each in offsets:
            text = each.metadata or ""
            if len(text) <= METADATA_MAX:
                self.position += 1
                self.groups.add(group_id)
                place = Place(group_id, TopicPartition(each.topic, each.partition))
                accepted[place] = Kept(each.offset, text, self.shell.now_ms + lives_ms, self.position)
        return accepted

    @precondition(lambda self: self.pending)
    @rule(data=st.data(), committed=st.booleans())
    def end_transaction(self, data: st.DataObject, committed: bool) -> None:
        producer_id = data.draw(st.sampled_from(sorted(self.pending)))
        self.shell.end_transaction(producer_id, committed)
        for place, kept in self.pending.pop(producer_id, {}).items():
            current = self.committed.get(place)
            if committed and (current is None or kept.position > current.position):
                self.committed[place] = kept

    @rule(data=st.data())
    def delete_something(self, data: st.DataObject) -> None:
        """One rule for all kinds of deletion, or offsets would be deleted too often."""
        delete = data.draw(st.sampled_from((self._delete_offsets, self._delete_topics, self._delete_group)))
        delete(data)

    def _delete_offsets(self, data: st.DataObject) -> None:
        group_id, partitions = data.draw(groups), data.draw(some_partitions)
        if self._is_done(group_id, OffsetDelete(group_id=group_id, partitions=partitions)):
            self._remove({Place(group_id, partition) for partition in partitions})

    def _delete_topics(self, data: st.DataObject) -> None:
        topics = data.draw(st.sampled_from((frozenset({"s"}), frozenset({"t", "unread"}))))
        self.shell.ask(DeletePartitionOffsets(topics=topics))
        self._remove({place for place in self._places() if place.partition.topic in topics})

    def _delete_group(self, data: st.DataObject) -> None:
        group_id = data.draw(groups)
        if self._is_done(group_id, DeleteGroup(group_id=group_id)):
            self._remove({place for place in self._places() if place.group_id == group_id})
            self.groups.remove(group_id)

    def _is_done(self, group_id: str, command: Command[Any]) -> bool:
        """Unless the group does not exist."""
        if group_id in self.groups:
            self.shell.ask(command)
            return True
        with pytest.raises(KafkaError, match="GROUP_ID_NOT_FOUND"):
            self.shell.ask(command)
        return False

    @rule(ms=st.sampled_from((1, 100, 299, 301, 1000)))
    def let_time_pass(self, ms: int) -> None:
        self.shell.advance(ms)
        while self.next_check_ms <= self.shell.now_ms:
            self._expire(self.next_check_ms)
            self.next_check_ms += CHECK_INTERVAL_MS

    @rule()
    def restart(self) -> None:
        self.shell.reload()
        self.next_check_ms = self.shell.now_ms + CHECK_INTERVAL_MS

    def _expire(self, now_ms: int) -> None:
        waiting = self._pending_places()
        expired = {
            place
            for place, kept in self.committed.items()
            if kept.expires_at_ms <= now_ms and place not in waiting
        }
        self._remove(expired)
        self.groups &= {place.group_id for place in self._places()}

    def _pending_places(self) -> set[Place]:
        return {place for places in self.pending.values() for place in places}

    def _places(self) -> set[Place]:
        return self._pending_places() | set(self.committed)

    def _remove(self, places: set[Place]) -> None:
        for place in places:
            self.committed.pop(place, None)
            for pending in self.pending.values():
                pending.pop(place, None)

    @invariant()
    def fetches_agree_with_the_model(self) -> None:
        waiting = self._pending_places()
        for group_id in GROUPS:
            expected = {
                place.partition: (kept.offset, kept.metadata)
                for place, kept in self.committed.items()
                if place.group_id == group_id
            }
            fetched = self.shell.fetch(group_id=group_id)
            assert {TopicPartition(*each[:2]): (each.offset, each.metadata) for each in fetched} == expected
            stable = self.shell.fetch(*PARTITIONS, group_id=group_id, require_stable=True)
            for each in stable:
                partition = TopicPartition(each.topic, each.partition)
                is_waiting = Place(group_id, partition) in waiting
                assert (each.error_code is ErrorCode.unstable_offset_commit) == is_waiting
                assert each.offset == (-1 if is_waiting else expected.get(partition, (-1, ""))[0])
        assert set(self.shell.machine.state.groups) == self.groups

    @invariant()
    def a_shard_rebuilt_from_the_log_is_the_same(self) -> None:
        rebuilt = self.shell.rebuilt(OffsetsShard(self.shell.settings))
        rebuilt.validate()
        assert rebuilt.durable_state() == self.shell.machine.durable_state()

    @invariant()
    def a_shard_rebuilt_from_the_compacted_log_has_the_same_offsets(self) -> None:
        rebuilt = replayed(compacted(self.shell.log), OffsetsShard(self.shell.settings))
        rebuilt.validate()
        assert rebuilt.offsets.durable_state() == self.shell.machine.offsets.durable_state()


TestOffsetsModel = OffsetsModel.TestCase
TestOffsetsModel.settings = examples(100, stateful_step_count=40)
