"""The offsets of a shard's groups: committed offsets, and pending offsets of open transactions.

The order of the log decides which of two commits is newer: a transaction that ends late must not overwrite an offset
that was committed after its own. Pending offsets of a partition are therefore kept in log order, and a newer commit
clears the older pending values at once. So the positions of records in the log need not be stored.
"""

from collections.abc import Iterator

from ottla.core.groups.offsets.repeated_commits import CommitTemplate, RepeatedOffsets
from ottla.model.ids import TopicPartition
from ottla.protocol.group_records.records import ExpiringOffsetCommitValue, OffsetCommitValue

OffsetValue = OffsetCommitValue | ExpiringOffsetCommitValue
OffsetsByTopic = dict[str, dict[int, OffsetValue]]
# By producer id, oldest record first. None: a newer commit has replaced the value, but the transaction is still open.
PendingValues = dict[int, OffsetValue | None]


class OffsetStore:
    def __init__(self) -> None:
        self.committed: dict[str, OffsetsByTopic] = {}
        self.pending: dict[str, dict[TopicPartition, PendingValues]] = {}
        # The (group, partition) pairs of each open transaction. A dict as an ordered set.
        self.transactions: dict[int, dict[tuple[str, TopicPartition], None]] = {}
        # Repeated commits, oldest first. They are newer than `committed`, and are moved there when they are needed.
        self._repeated: dict[str, dict[CommitTemplate, RepeatedOffsets]] = {}

    def of_group(self, group_id: str) -> OffsetsByTopic:
        if group_id in self._repeated:
            self._expand_repeated(group_id)
        return self.committed.get(group_id) or {}

    def can_put_repeated(self, group_id: str) -> bool:
        """Whether `put_repeated` may be used: the group has committed offsets and none is pending."""
        return group_id in self.committed and group_id not in self.pending

    def put_repeated(self, group_id: str, commit: RepeatedOffsets) -> None:
        commits = self._repeated.get(group_id)
        if commits is None:
            commits = self._repeated[group_id] = {}
        commits.pop(commit.template, None)  # so that it becomes the last, as in the log
        commits[commit.template] = commit

    def _expand_repeated(self, group_id: str) -> None:
        topics = self.committed[group_id]
        for commit in self._repeated.pop(group_id).values():
            for key, value in commit.records():
                topics.setdefault(key.topic, {})[key.partition] = value

    def pending_of_group(self, group_id: str) -> dict[TopicPartition, PendingValues]:
        return self.pending.get(group_id) or {}

    def partitions_of_group(
        self, group_id: str, topics: frozenset[str] | None = None
    ) -> Iterator[TopicPartition]:
        """The partitions with a committed or pending offset, of these topics or of all, without duplicates."""
        committed = self.of_group(group_id)
        for topic, offsets in committed.items():
            if topics is None or topic in topics:
                for partition in offsets:
                    yield TopicPartition(topic, partition)
        for pending in self.pending_of_group(group_id):
            is_asked = topics is None or pending.topic in topics
            if is_asked and pending.partition not in committed.get(pending.topic, ()):
                yield pending

    def has(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether the partition has a committed or pending offset."""
        return partition.partition in self.of_group(group_id).get(
            partition.topic, ()
        ) or partition in self.pending_of_group(group_id)

    def put(self, group_id: str, topic: str, partition: int, value: OffsetValue) -> None:
        if self.pending and group_id in self.pending:
            overtaken = self.pending[group_id].get(TopicPartition(topic, partition), {})
            for producer_id in overtaken:
                overtaken[producer_id] = None
        self._put_committed(group_id, topic, partition, value)

    def put_pending(
        self, group_id: str, partition: TopicPartition, producer_id: int, value: OffsetValue
    ) -> None:
        values = self.pending.setdefault(group_id, {}).setdefault(partition, {})
        values.pop(producer_id, None)  # so that it becomes the last, as in the log
        values[producer_id] = value
        self.transactions.setdefault(producer_id, {})[group_id, partition] = None

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        """Removes pending values too, so that a later marker does not commit them."""
        topics = self.of_group(group_id)
        if topic in topics:
            topics[topic].pop(partition, None)
            if not topics[topic]:
                del topics[topic]
            if not topics:
                del self.committed[group_id]
        removed = TopicPartition(topic, partition)
        for producer_id in list(self.pending_of_group(group_id).get(removed, ())):
            self._take_pending(group_id, removed, producer_id)
            del self.transactions[producer_id][group_id, removed]
            if not self.transactions[producer_id]:
                del self.transactions[producer_id]

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        for group_id, partition in self.transactions.pop(producer_id, ()):
            if committed:
                values = self.pending[group_id][partition]
                value = values[producer_id]
                if value is not None:
                    self._put_committed(group_id, partition.topic, partition.partition, value)
                    for older in values:
                        if older == producer_id:
                            break
                        values[older] = None
            self._take_pending(group_id, partition, producer_id)

    def _put_committed(self, group_id: str, topic: str, partition: int, value: OffsetValue) -> None:
        if group_id in self._repeated:
            self._expand_repeated(group_id)
        topics = self.committed.get(group_id)
        if topics is None:
            topics = self.committed[group_id] = {}
        offsets = topics.get(topic)
        if offsets is None:
            offsets = topics[topic] = {}
        offsets[partition] = value

    def _take_pending(self, group_id: str, partition: TopicPartition, producer_id: int) -> None:
        partitions = self.pending[group_id]
        del partitions[partition][producer_id]
        if not partitions[partition]:
            del partitions[partition]
        if not partitions:
            del self.pending[group_id]

    def durable_state(self) -> object:
        pending = {
            group_id: {partition: tuple(values.items()) for partition, values in partitions.items()}
            for group_id, partitions in self.pending.items()
        }
        committed = {
            group_id: {topic: dict(offsets) for topic, offsets in self.of_group(group_id).items()}
            for group_id in self.committed
        }
        return committed, pending

    def validate(self) -> None:
        assert all(self.committed.values()), "a group without offsets was not removed"
        assert self._repeated.keys() <= self.committed.keys(), "a repeated commit has no earlier one"
        assert all(self.pending.values()), "a group without pending offsets was not removed"
        for group_id, topics in self.committed.items():
            assert all(topics.values()), f"{group_id}: a topic without offsets was not removed"
        written: dict[int, set[tuple[str, TopicPartition]]] = {}
        for group_id, partitions in self.pending.items():
            assert all(partitions.values()), f"{group_id}: a partition without pending values was not removed"
            for partition, values in partitions.items():
                overtaken = [value is None for value in values.values()]
                assert overtaken == sorted(overtaken, reverse=True), (
                    f"{group_id}: {partition} lost a newer offset"
                )
                for producer_id in values:
                    written.setdefault(producer_id, set()).add((group_id, partition))
        assert written == {producer_id: set(places) for producer_id, places in self.transactions.items()}
