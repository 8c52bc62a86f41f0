"""The cluster while one command is decided: the image, with the changes that the command has made so far.

A broker may have replicas of very many partitions. They are changed in parts, so that no part holds the event loop for
long. As in Kafka, the partitions are changed before the broker is: the record of the broker is in the last part. If
another controller becomes active between two parts, it finds a broker that is not fenced yet, and decides anew.
"""

import uuid
from collections.abc import Collection, Mapping, Sequence

from ottla.core.controller.decision import ControllerDecision, ResponseT
from ottla.core.controller.delta import changed_broker, changed_partition, new_broker
from ottla.core.controller.image import BrokerImage, MetadataImage, PartitionImage
from ottla.core.controller.partition_change import (
    Election,
    ElectionRules,
    PartitionTarget,
    change_partition,
)
from ottla.core.controller.partition_index import PartitionIndex, PartitionKey
from ottla.core.controller.settings import ControllerSettings
from ottla.core.controller.topic_settings import elects_uncleanly, min_insync_replicas
from ottla.protocol.metadata_records.records import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)

# A part of a decision looks at this many partitions, which takes some milliseconds.
PARTITIONS_PER_PART = 200


class ClusterEdit:
    """Collects the `records` of a decision. Later changes build on earlier ones of the same decision.

    `rest` has the partitions that the earlier parts of the decision have left over, if there were any. `suspected` has
    the brokers that may be alive although they are fenced (see `BrokerSessions`).
    """

    def __init__(
        self,
        image: MetadataImage,
        index: PartitionIndex,
        settings: ControllerSettings,
        rest: Sequence[PartitionKey] = (),
        suspected: Mapping[int, int] | None = None,
    ) -> None:
        self.image = image
        self.index = index
        self.settings = settings
        self.records: list[MetadataRecord] = []
        self._given_rest = rest
        self._suspected = ({} if suspected is None else suspected).keys()
        self._rest: Sequence[PartitionKey] = ()
        self._room = PARTITIONS_PER_PART
        self._brokers: dict[int, BrokerImage | None] = {}
        self._partitions: dict[PartitionKey, PartitionImage] = {}
        self._rules: dict[uuid.UUID, tuple[ElectionRules, Election]] = {}

    # Parts

    @property
    def is_complete(self) -> bool:
        """Whether this is the last part of the decision."""
        return not self._rest

    def has_room_for(self, broker_id: int) -> bool:
        """Whether all partitions of the broker fit into this part."""
        return len(self._of_broker(broker_id)) <= self._room

    def decision(self, response: ResponseT) -> ControllerDecision[ResponseT]:
        """The brokers change with the last part only."""
        if self.is_complete:
            return ControllerDecision(tuple(self.records), response)
        changes = tuple(record for record in self.records if isinstance(record, PartitionChangeRecord))
        return ControllerDecision(changes, response, tuple(self._rest))

    def take(self, keys: Collection[PartitionKey]) -> Sequence[PartitionKey]:
        """The partitions of this part: the first of `keys`, or of those that the earlier parts have left over."""
        remaining = self._given_rest or tuple(keys)
        self._given_rest = ()
        taken, self._rest = remaining[: self._room], remaining[self._room :]
        self._room -= len(taken)
        return taken

    # Brokers

    def broker(self, broker_id: int) -> BrokerImage | None:
        if broker_id in self._brokers:
            return self._brokers[broker_id]
        return self.image.brokers.get(broker_id)

    def register_broker(self, record: RegisterBrokerRecord) -> None:
        self._brokers[record.broker_id] = new_broker(record)
        self.records.append(record)

    def change_broker(self, broker: BrokerImage, record: BrokerRegistrationChangeRecord) -> None:
        self._brokers[broker.broker_id] = changed_broker(broker, record)
        self.records.append(record)

    def unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        self._brokers[record.broker_id] = None
        self.records.append(record)

    def may_lead(self, broker_id: int, directory: uuid.UUID | None) -> bool:
        broker = self.broker(broker_id)
        return broker is not None and broker.is_active and broker.is_online(directory)

    # Partitions

    def partition(self, key: PartitionKey) -> PartitionImage | None:
        changed = self._partitions.get(key)
        if changed is not None:
            return changed
        topic = self.image.topics_by_id.get(key[0])
        return None if topic is None else topic.partitions.get(key[1])

    def change_partition(
        self, key: PartitionKey, target: PartitionTarget | None = None, election: Election | None = None
    ) -> PartitionChangeRecord | None:
        """Returns the record if the partition changes. An election is unclean only if the topic's config allows it and
        no replica that may have all records is suspected, unless `election` is given.
        """
        partition = self.partition(key)
        if partition is None:
            raise KeyError(key)
        rules, default = self._rules_of(key[0], len(partition.replicas))
        if not self._suspected.isdisjoint(partition.isr + partition.eligible_leader_replicas):
            default = Election.ONLINE
        record = change_partition(*key, partition, target or PartitionTarget(), election or default, rules)
        if record is not None:
            self._partitions[key] = changed_partition(partition, record)
            self.records.append(record)
        return record

    def _rules_of(self, topic_id: uuid.UUID, replication_factor: int) -> tuple[ElectionRules, Election]:
        found = self._rules.get(topic_id)
        if found is None:
            image, settings = self.image, self.settings
            name = image.topics_by_id[topic_id].name
            min_isr = min_insync_replicas(image, settings, name, replication_factor)
            election = Election.UNCLEAN if elects_uncleanly(image, settings, name) else Election.ONLINE
            found = ElectionRules(self.may_lead, min_isr, image.has_elr), election
            self._rules[topic_id] = found
        return found

    # What follows from a change of a broker

    def remove_from_isrs(self, broker_id: int, *, lost_records: bool = False) -> None:
        """Removes a broker that cannot lead any more from all ISRs; from the eligible leaders too if it may have lost
        records.
        """
        for key in self.take(self._of_broker(broker_id)):
            partition = self._existing(key)
            if broker_id in partition.isr or lost_records:
                isr = tuple(other for other in partition.isr if other != broker_id)
                self.change_partition(key, PartitionTarget(isr, lost=broker_id if lost_records else None))

    def remove_offline_replicas(self, broker_id: int) -> None:
        """Removes a broker from the ISRs of the partitions that it has in directories that are not online."""
        broker = self.broker(broker_id)
        for key in self.take(self._of_broker(broker_id)):
            partition = self._existing(key)
            is_online = broker is None or broker.is_online(partition.directory(broker_id))
            if broker_id in partition.isr and not is_online:
                isr = tuple(other for other in partition.isr if other != broker_id)
                self.change_partition(key, PartitionTarget(isr))

    def elect_where_leaderless(self, broker_id: int) -> bool:
        """Elects leaders for the partitions that had none because this broker, which is active now, was not.

        Returns False if there are too many of them: the caller must let `ElectLostLeaders` follow.
        """
        if len(self.index.leaderless) > PARTITIONS_PER_PART:
            return False
        changed = [key for key, partition in self._partitions.items() if not partition.has_leader]
        for key in _union(self.index.leaderless, changed):
            partition = self._existing(key)
            if not partition.has_leader and broker_id in partition.replicas:
                self.change_partition(key)
        return True

    def _of_broker(self, broker_id: int) -> Collection[PartitionKey]:
        changed = [
            key
            for key, partition in self._partitions.items()
            if broker_id in partition.isr or broker_id in partition.eligible_leader_replicas
        ]
        return _union(self.index.of_broker(broker_id), changed)

    def _existing(self, key: PartitionKey) -> PartitionImage:
        partition = self.partition(key)
        assert partition is not None, f"{key} is in the index but does not exist"
        return partition


def _union(first: Collection[PartitionKey], second: Collection[PartitionKey]) -> Collection[PartitionKey]:
    return dict.fromkeys([*first, *second]) if second else first
