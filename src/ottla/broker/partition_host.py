"""Opens, leads, reconfigures and deletes the partitions of this broker as the metadata image says."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.broker.delayed_operations import DelayedOperations
from ottla.broker.hosted_partition import HostedPartition
from ottla.broker.random_uuid import random_uuid
from ottla.broker.replica_moves import ReplicaMoves
from ottla.broker.topic_settings import TopicSettings, topic_settings
from ottla.core.controller.changes import MetadataChanges
from ottla.core.controller.image import MetadataImage, PartitionImage, TopicImage
from ottla.core.partition.leader import PartitionLeader
from ottla.env import Env
from ottla.model.config import BrokerConfig, ResourceType
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition
from ottla.storage.damaged_log import InconsistentTopicIdError
from ottla.storage.deletion import DeletionSync
from ottla.storage.disk_errors import RETRY_S, is_disk_failure
from ottla.storage.log_dirs import LogDirs

if TYPE_CHECKING:
    from ottla.storage.log import Log

logger = logging.getLogger("ottla.partition")

_NewPartitions = list[tuple[TopicImage, Mapping[int, PartitionImage]]]

# Up to this many are opened or deleted in one turn of the event loop; each takes half a millisecond.
FEW_PARTITIONS = 20
PARTITIONS_PER_STEP = 10


class PartitionHost:
    def __init__(
        self, env: Env, config: BrokerConfig, log_dirs: LogDirs, delayed_operations: DelayedOperations
    ) -> None:
        self._env = env
        self._config = config
        self._log_dirs = log_dirs
        self._delayed_operations = delayed_operations
        self._image = MetadataImage()
        self._by_name: dict[str, dict[int, HostedPartition]] = {}
        self._by_id: dict[UUID, dict[int, HostedPartition]] = {}
        self._high_watermarks = log_dirs.high_watermarks  # of the previous run
        self._moves = ReplicaMoves(env, config, log_dirs)
        self.on_opened_late: Callable[[], None] = lambda: None
        self._unopened: dict[tuple[UUID, int], bool] = {}  # to be retried; whether the partition is new
        self._opening: set[tuple[UUID, int]] = set()  # wait for a later step of `apply`
        self._is_loading = True  # until the first image is applied

    def __iter__(self) -> Iterator[HostedPartition]:
        for partitions in self._by_id.values():
            yield from partitions.values()

    def find(self, name: str | None, topic_id: UUID | None, index: int) -> HostedPartition:
        """By name or, if that is None, by topic id. Raises KafkaError if the partition is not led here."""
        partitions = self._by_name.get(name) if name is not None else self._by_id.get(topic_id)  # type: ignore[arg-type]
        if partitions is not None:
            hosted = partitions.get(index)
            if hosted is not None:
                if hosted.failure is not None:
                    raise KafkaError(hosted.failure.code, hosted.failure.message)
                return hosted
        raise self._not_here(name, topic_id, index)

    def _not_here(self, name: str | None, topic_id: UUID | None, index: int) -> KafkaError:
        if name is None:
            topic = None if topic_id is None else self._image.topics_by_id.get(topic_id)
            if topic is None:
                return KafkaError(ErrorCode.unknown_topic_id, f"there is no topic with the id {topic_id}")
        else:
            topic = self._image.topics.get(name)
        if topic is None or index not in topic.partitions:
            return KafkaError(
                ErrorCode.unknown_topic_or_partition, f"there is no partition {name or topic_id}-{index}"
            )
        if (topic.topic_id, index) in self._opening:
            # As in Kafka while the metadata is ahead of the logs: clients retry.
            return KafkaError(
                ErrorCode.not_leader_or_follower,
                f"{topic.name}-{index} is being opened; try again in a moment",
            )
        if self._config.node_id in topic.partitions[index].replicas:
            return KafkaError(
                ErrorCode.kafka_storage_error,
                f"the log of {topic.name}-{index} could not be opened; see the broker's log",
            )
        return KafkaError(
            ErrorCode.not_leader_or_follower, f"{topic.name}-{index} is not on broker {self._config.node_id}"
        )

    def move(self, topic_partition: TopicPartition, path: str) -> None:
        """Starts to move the replica to the data directory `path` in the background. Raises KafkaError."""
        self._moves.check_target(path)
        self._moves.start(self.find(topic_partition.topic, None, topic_partition.partition), path)

    async def close(self) -> None:
        await self._moves.close()

    def apply(self, changes: MetadataChanges, image: MetadataImage) -> Awaitable[None] | None:
        """Opens, leads and deletes partitions as `image` says. `changes` are the differences to the previous image.

        With very many partitions it returns an awaitable that does the work in steps. The caller must await it before
        it applies the next changes.
        """
        self._image = image
        deleted = [hosted for topic in changes.deleted for hosted in self._unhost_topic(topic)]
        new: _NewPartitions = [(topic, topic.partitions) for topic in changes.created]
        new += [
            (change.topic, {part.partition: part.new for part in change.partitions})
            for change in changes.changed
        ]
        remaining = None
        if self._is_loading or len(deleted) + sum(len(partitions) for _, partitions in new) <= FEW_PARTITIONS:
            for hosted in deleted:
                self._delete_log(hosted)
            for topic, partitions in new:
                self._host_partitions(topic, partitions)
        else:
            self._opening.update((topic.topic_id, index) for topic, partitions in new for index in partitions)
            remaining = self._apply_in_steps(deleted, new)
        self._is_loading = False
        for resource in changes.configs:
            if resource.type == ResourceType.TOPIC:
                self.reconfigure(resource.name)
        return remaining

    async def _apply_in_steps(self, deleted: list[HostedPartition], new: "_NewPartitions") -> None:
        """Deletes and opens a few partitions in a turn of the event loop; a thread creates the files of new ones."""
        try:
            for hosted in deleted:
                self._delete_log(hosted)
                await asyncio.sleep(0)
            items = ((topic, *item) for topic, partitions in new for item in partitions.items())
            while step := list(islice(items, PARTITIONS_PER_STEP)):
                await self._create_logs(step)
                for topic, index, partition in step:
                    self._host_partitions(topic, {index: partition}, is_new=True)
        finally:
            self._opening.clear()

    async def _create_logs(self, partitions: list[tuple[TopicImage, int, PartitionImage]]) -> None:
        now_ms = self._env.clock.now_ms()
        works = [
            self._log_dirs.prepare_creation(
                TopicPartition(topic.name, index), self._settings(topic.name).log, now_ms, topic.topic_id
            )
            for topic, index, partition in partitions
            if partition.leader == self._config.node_id
        ]
        await self._env.threads.run(lambda: [work() for work in works if work is not None])

    def set_strays_aside(self, image: MetadataImage) -> None:
        """Renames folders of partitions that are not in the metadata, and keeps them. Call it before `apply`.

        Their topic may have been deleted while this node was down. Or the metadata is wrong, and they are the only
        copy: an administrator has to decide (KAFKA-14616).
        """
        node_id = self._config.node_id
        strays = []
        for topic_partition in self._log_dirs.partitions:
            topic = image.topics.get(topic_partition.topic)
            partition = None if topic is None else topic.partitions.get(topic_partition.partition)
            if partition is None or node_id not in partition.replicas:
                strays.append(topic_partition)
        if strays:
            logger.error(
                "%d folders have partitions that are not in the metadata of this broker", len(strays)
            )
            self._log_dirs.mark_strays(strays, partial(random_uuid, self._env))

    async def sync_deletions(self) -> None:
        """Makes deletions durable, in threads, for all of a data directory at once. Until then none is acknowledged."""
        await asyncio.gather(*(self._sync_deletions(sync) for sync in self._log_dirs.deletion_syncs()))

    async def _sync_deletions(self, sync: DeletionSync) -> None:
        while True:
            try:
                await self._env.threads.run(sync.sync)
                sync.complete()
                return
            except OSError as error:
                self._log_dirs.handle_checkpoint_error(sync, error)
                if is_disk_failure(error):
                    self.fail_offline()
                    return
                await asyncio.sleep(RETRY_S)

    async def recover(self, image: MetadataImage) -> None:
        """Recovers logs after an unclean stop, in threads for each data directory, before `apply` opens them."""
        self._image = image
        now_ms = self._env.clock.now_ms()
        works: dict[str, list[Callable[[], None]]] = {}
        for topic in image.topics.values():
            settings = self._settings(topic.name)
            for index, partition in topic.partitions.items():
                if partition.leader == self._config.node_id:
                    found = self._log_dirs.prepare_recovery(
                        TopicPartition(topic.name, index), settings.log, now_ms, topic.topic_id
                    )
                    if found is not None:
                        works.setdefault(found[0], []).append(found[1])
        threads = self._config.get_int("num.recovery.threads.per.data.dir")
        await asyncio.gather(*(self._env.threads.run_all(work, threads) for work in works.values()))

    def reconfigure(self, topic: str) -> None:
        """The topic's configs, or defaults of the broker, have changed."""
        settings = self._settings(topic)
        for hosted in self._by_name.get(topic, {}).values():
            hosted.configure(settings.log, settings.leader, settings.records)

    def reconfigure_all(self) -> None:
        for topic in self._by_name:
            self.reconfigure(topic)

    def _settings(self, topic: str) -> TopicSettings:
        return topic_settings(self._image.config(ResourceType.TOPIC, topic), self._config)

    def retry_unopened(self) -> None:
        """Retries the partitions that could not be opened because file descriptors had run out."""
        unopened, self._unopened = self._unopened, {}
        for (topic_id, index), is_new in unopened.items():
            topic = self._image.topics_by_id.get(topic_id)
            if topic is not None and index in topic.partitions:
                self._host_partitions(topic, {index: topic.partitions[index]}, is_new=is_new)
        if len(self._unopened) < len(unopened):
            self.on_opened_late()

    def _host_partitions(
        self, topic: TopicImage, partitions: Mapping[int, PartitionImage], *, is_new: bool | None = None
    ) -> None:
        if self._opening:
            self._opening.difference_update((topic.topic_id, index) for index in partitions)
        local = {index: part for index, part in partitions.items() if part.leader == self._config.node_id}
        if not local:
            return
        # A partition that is created in this run cannot be in a directory that is offline.
        is_new = not self._is_loading if is_new is None else is_new
        settings = self._settings(topic.name)
        hosted_here = self._by_id.setdefault(topic.topic_id, {})
        self._by_name[topic.name] = hosted_here
        for index, partition in local.items():
            topic_partition = TopicPartition(topic.name, index)
            hosted = hosted_here.get(index)
            if hosted is None:
                try:
                    log = self._open_log(topic_partition, topic.topic_id, settings, is_new=is_new)
                except KafkaError as error:
                    logger.error("%s cannot be opened: %s", topic_partition, error.message)
                    cause = error.__cause__
                    if isinstance(cause, OSError) and not is_disk_failure(cause):
                        self._unopened[topic.topic_id, index] = is_new
                    continue
                high_watermark = self._high_watermarks.pop(topic_partition, 0)
                leader = self._new_leader(log, partition, settings, high_watermark)
                hosted_here[index] = HostedPartition(
                    topic_partition,
                    topic.topic_id,
                    log,
                    leader,
                    settings.records,
                    self._storage_failed,
                    self._delayed_operations.notify,
                    self._env.clock.now_ms(),
                )
            elif hosted.leader.leader_epoch != partition.leader_epoch:
                high_watermark = hosted.leader.high_watermark
                hosted.lead(self._new_leader(hosted.log, partition, settings, high_watermark))

    def _open_log(
        self, topic_partition: TopicPartition, topic_id: UUID, settings: TopicSettings, *, is_new: bool
    ) -> "Log":
        now_ms = self._env.clock.now_ms()
        try:
            return self._log_dirs.open(
                topic_partition, settings.log, now_ms, topic_id=topic_id, is_new=is_new
            )
        except InconsistentTopicIdError as error:
            # The topic was deleted and created again while its log was offline, or a file is damaged.
            logger.error("%s", error.message)
            self._log_dirs.mark_strays([topic_partition], partial(random_uuid, self._env))
            return self._log_dirs.open(topic_partition, settings.log, now_ms, topic_id=topic_id, is_new=True)

    def _new_leader(
        self, log: "Log", partition: PartitionImage, settings: TopicSettings, high_watermark: int
    ) -> PartitionLeader:
        return PartitionLeader(
            log.offsets,
            log.producers,
            log.epochs,
            leader_epoch=partition.leader_epoch,
            high_watermark=min(max(high_watermark, log.log_start_offset), log.log_end_offset),
            local_id=self._config.node_id,
            replica_ids=partition.replicas,
            isr=partition.isr,
            settings=settings.leader,
            now_ms=self._env.clock.now_ms(),
        )

    def _unhost_topic(self, topic: TopicImage) -> list[HostedPartition]:
        """Closes the partitions of a topic. Returns those whose logs must be deleted."""
        partitions = self._by_id.pop(topic.topic_id, {})
        if self._by_name.get(topic.name) is partitions:
            del self._by_name[topic.name]
        for hosted in partitions.values():
            hosted.close()
        return [hosted for hosted in partitions.values() if hosted.failure is None]

    def _delete_log(self, hosted: HostedPartition) -> None:
        partition = hosted.topic_partition
        if self._log_dirs.logs.get(partition) is not hosted.log:
            return  # its directory went offline meanwhile
        try:
            self._log_dirs.delete(partition, random_uuid(self._env), self._env.clock.now_ms())
        except KafkaError as error:
            logger.error("%s cannot be deleted: %s", partition, error.message)

    def _storage_failed(self, hosted: HostedPartition, error: OSError) -> KafkaError:
        """As in Kafka, takes the whole directory offline: an error of one file will hit the others of the disk too."""
        failure = self._log_dirs.handle_error(hosted.topic_partition, error)
        self.fail_offline()
        return failure

    def fail_offline(self) -> None:
        """Fails the partitions in directories that have gone offline, and the requests that wait for them."""
        for hosted in list(self):
            if hosted.failure is None and self._log_dirs.logs.get(hosted.topic_partition) is not hosted.log:
                hosted.fail(
                    KafkaError(
                        ErrorCode.kafka_storage_error,
                        f"{hosted.topic_partition} is not available: its data directory is offline. "
                        "Fix the disk and restart the broker",
                    )
                )
