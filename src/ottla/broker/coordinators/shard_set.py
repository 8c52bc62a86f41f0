"""The shards of one coordinator: one for each partition of its internal topic that this broker leads."""

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from ottla.broker.coordinators.internal_topics import InternalTopic, ensure_topic
from ottla.broker.coordinators.key_hash import partition_for
from ottla.broker.coordinators.shard import CoordinatorShard, MachineT
from ottla.broker.hosted_partition import HostedPartition
from ottla.broker.promise import Promise
from ottla.broker.services import BrokerServices
from ottla.core.controller.image import MetadataImage
from ottla.core.coordination import Command
from ottla.model.errors import ErrorCode, KafkaError

ListedT = TypeVar("ListedT")


class ShardSet(Generic[MachineT]):
    def __init__(
        self,
        services: BrokerServices,
        topic: InternalTopic,
        new_shard: Callable[[HostedPartition], CoordinatorShard[MachineT]],
    ) -> None:
        self._services = services
        self._topic = topic
        self._new_shard = new_shard
        self._shards: dict[int, CoordinatorShard[MachineT]] = {}
        self._num_partitions = 0

    def __iter__(self) -> Iterator[CoordinatorShard[MachineT]]:
        return iter(self._shards.values())

    def shard_of(self, key: str) -> CoordinatorShard[MachineT] | None:
        """None where the key is coordinated elsewhere, or the topic is not there yet."""
        if not self._num_partitions:
            return None
        return self._shards.get(partition_for(key, self._num_partitions))

    def shard_at(self, index: int) -> CoordinatorShard[MachineT] | None:
        return self._shards.get(index)

    def index_of(self, key: str) -> int | None:
        """The partition that `key` belongs to, wherever it is led; None where the topic is not there yet."""
        return partition_for(key, self._num_partitions) if self._num_partitions else None

    def submit_to_all(
        self, command: Command[tuple[ListedT, ...]]
    ) -> Promise[tuple[ListedT, ...] | KafkaError]:
        """What all shards here list; KafkaError where one is still loading: the list would not be whole."""

        def merge(results: list[tuple[ListedT, ...] | KafkaError]) -> tuple[ListedT, ...] | KafkaError:
            merged: list[ListedT] = []
            for result in results:
                if isinstance(result, KafkaError):
                    return result
                merged += result
            return tuple(merged)

        return self._services.scheduler.run(list(self), lambda shard: shard.submit(command)).then(merge)

    async def make_topic(self) -> KafkaError | None:
        """Makes the topic if it is not there."""
        try:
            await ensure_topic(self._services, self._topic)
        except KafkaError as error:
            return error
        return None

    async def find(self, key: str) -> int | KafkaError:
        """The id of the node that coordinates `key`. Makes the topic if it is not there."""
        return await self.make_topic() or self.leader_for(key)

    def leader_for(self, key: str) -> int | KafkaError:
        """As `find`, after `make_topic`."""
        topic = self._services.metadata.image.topics.get(self._topic.name)
        if topic is None:
            return KafkaError(
                ErrorCode.coordinator_not_available, f"{self._topic.name} was deleted just now; try again"
            )
        partition = topic.partitions[partition_for(key, len(topic.partitions))]
        if not partition.has_leader:
            return KafkaError(
                ErrorCode.coordinator_not_available,
                f"the partition of {key!r} in {self._topic.name} has no leader",
            )
        return partition.leader

    def follow(self, image: MetadataImage) -> None:
        """Opens and closes shards as `image` says; the partitions are open by now."""
        topic = image.topics.get(self._topic.name)
        self._num_partitions = len(topic.partitions) if topic is not None else 0
        led_here = {}
        for index in topic.partitions if topic is not None else ():
            try:
                led_here[index] = self._services.partitions.find(self._topic.name, None, index)
            except KafkaError:
                continue  # led elsewhere, or its disk has failed
        for index, shard in list(self._shards.items()):
            if led_here.get(index) is not shard.hosted:
                shard.close()
                del self._shards[index]
        for index, hosted in led_here.items():
            if index not in self._shards:
                self._shards[index] = shard = self._new_shard(hosted)
                shard.start()
