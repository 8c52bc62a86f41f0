"""The shard runtimes of one coordinator: one for each partition of its internal topic that this broker leads."""

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from ottla.broker.coordinators.internal_topics import InternalTopic, ensure_topic
from ottla.broker.coordinators.key_hash import partition_for
from ottla.broker.coordinators.shard_runtime import RuntimeState, ShardRuntime, ShardT
from ottla.broker.hosted_partition import HostedPartition
from ottla.broker.promise import Promise
from ottla.broker.services import BrokerServices
from ottla.core.controller.image import MetadataImage
from ottla.core.coordination import Command
from ottla.model.errors import ErrorCode, KafkaError

ListedT = TypeVar("ListedT")


class ShardRuntimes(Generic[ShardT]):
    def __init__(
        self,
        services: BrokerServices,
        topic: InternalTopic,
        new_runtime: Callable[[HostedPartition], ShardRuntime[ShardT]],
    ) -> None:
        self._services = services
        self._topic = topic
        self._new_runtime = new_runtime
        self._runtimes: dict[int, ShardRuntime[ShardT]] = {}
        self._num_partitions = 0

    def __iter__(self) -> Iterator[ShardRuntime[ShardT]]:
        return iter(self._runtimes.values())

    def for_key(self, key: str) -> ShardRuntime[ShardT] | None:
        """None if another broker coordinates the key, or if the topic does not exist yet."""
        if not self._num_partitions:
            return None
        return self._runtimes.get(partition_for(key, self._num_partitions))

    def at(self, partition: int) -> ShardRuntime[ShardT] | None:
        return self._runtimes.get(partition)

    def partition_of(self, key: str) -> int | None:
        """The partition of `key`, whichever broker leads it; None if the topic does not exist yet."""
        return partition_for(key, self._num_partitions) if self._num_partitions else None

    def submit_to_all(
        self, command: Command[tuple[ListedT, ...]]
    ) -> Promise[tuple[ListedT, ...] | KafkaError]:
        """The joined lists of all shards here; KafkaError if one is still loading, as the list would be incomplete."""
        runtimes = list(self)

        def merge(results: list[tuple[ListedT, ...] | KafkaError]) -> tuple[ListedT, ...] | KafkaError:
            merged: list[ListedT] = []
            for runtime, result in zip(runtimes, results, strict=True):
                if not isinstance(result, KafkaError):
                    merged += result
                elif result.code is not ErrorCode.not_coordinator:
                    return result
                elif runtime.state is not RuntimeState.CLOSED and runtime.has_leadership:
                    # It failed during the request, and was loaded again, or still is.
                    return KafkaError(ErrorCode.coordinator_load_in_progress, result.message)
                # As in Kafka, the others are listed: this one is not served here, but perhaps by its new leader.
            return tuple(merged)

        return self._services.scheduler.run(runtimes, lambda runtime: runtime.submit(command)).then(merge)

    async def create_topic(self) -> KafkaError | None:
        """Creates the internal topic if it does not exist."""
        try:
            await ensure_topic(self._services, self._topic)
        except KafkaError as error:
            return error
        return None

    async def find_coordinator(self, key: str) -> int | KafkaError:
        """The id of the node that coordinates `key`. Creates the internal topic if it does not exist."""
        return await self.create_topic() or self.leader_of(key)

    def leader_of(self, key: str) -> int | KafkaError:
        """The id of the node that leads the partition of `key`. Call `create_topic` before."""
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

    def apply(self, image: MetadataImage) -> None:
        """Starts and closes runtimes as `image` says. The host has applied it before, so the partitions are open.

        A runtime serves one leadership: for a new leader epoch there is a new one, which loads the log again.
        """
        topic = image.topics.get(self._topic.name)
        self._num_partitions = len(topic.partitions) if topic is not None else 0
        led_here = {}
        for index in topic.partitions if topic is not None else ():
            try:
                led_here[index] = self._services.partitions.find_leader(self._topic.name, None, index)
            except KafkaError:
                continue  # another broker leads it, or its disk has failed
        for index, runtime in list(self._runtimes.items()):
            if led_here.get(index) is not runtime.hosted or not runtime.has_leadership:
                runtime.close()
                del self._runtimes[index]
        for index, hosted in led_here.items():
            if index not in self._runtimes:
                self._runtimes[index] = runtime = self._new_runtime(hosted)
                runtime.start()
