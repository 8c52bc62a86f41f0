"""Opens, leads or follows, reconfigures and deletes the partitions of this broker as the metadata image says."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.broker.background_tasks import BackgroundTasks
from ottla.broker.delayed_operations import DelayedOperations
from ottla.broker.hosted_partition import HostedPartition
from ottla.broker.partition_flush import flush_partition
from ottla.broker.partition_work import PARTITIONS_PER_STEP, ROLES_PER_STEP, PartitionWork, PlacedPartition
from ottla.broker.random_uuid import random_uuid
from ottla.broker.replica_moves import ReplicaMoves
from ottla.broker.topic_counters import CountersByTopic
from ottla.broker.topic_settings import TopicSettings, topic_settings
from ottla.core.controller.changes import MetadataChanges
from ottla.core.controller.image import MetadataImage, PartitionImage, TopicImage
from ottla.core.partition.follower import PartitionFollower
from ottla.core.partition.leader import PartitionLeader
from ottla.core.partition.replica_selector import RACK_AWARE_SELECTOR
from ottla.core.partition.role import trusted_high_watermark
from ottla.env import Env
from ottla.model.config import BrokerConfig, ResourceType
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_LEADER_EPOCH, TopicPartition
from ottla.protocol.primitives import LeaderIdAndEpoch
from ottla.storage.damaged_log import InconsistentTopicIdError
from ottla.storage.deletion import DeletionSync
from ottla.storage.disk_errors import is_disk_failure
from ottla.storage.log_dirs import LogDirs

if TYPE_CHECKING:
    from ottla.storage.log import Log

logger = logging.getLogger("ottla.partition")

FOLLOWERS_PER_STEP = 1000


class PartitionHost:
    def __init__(
        self, env: Env, config: BrokerConfig, log_dirs: LogDirs, delayed_operations: DelayedOperations
    ) -> None:
        self.node_id = config.node_id
        self.selects_by_rack = config.get_str("replica.selector.class") == RACK_AWARE_SELECTOR
        self._env = env
        self._config = config
        self._log_dirs = log_dirs
        self._delayed_operations = delayed_operations
        self._image = MetadataImage()
        self._by_name: dict[str, dict[int, HostedPartition]] = {}
        self._by_id: dict[UUID, dict[int, HostedPartition]] = {}
        self._high_watermarks = log_dirs.high_watermarks  # of the previous run
        self._moves = ReplicaMoves(env, config, log_dirs, self._moved)
        self.on_opened_late: Callable[[], None] = lambda: None
        # Replication is told which partitions to copy, and which ISRs to propose to the controller.
        self.on_role_changed: Callable[[HostedPartition], None] = lambda hosted: None
        self.on_isr_proposed: Callable[[HostedPartition, PartitionLeader, tuple[int, ...]], None] = (
            lambda hosted, leader, isr: None
        )
        # The directory of a replica may be another one than the metadata says, which is the third parameter (KIP-858).
        self.on_placed: Callable[[TopicPartition, tuple[UUID, int], UUID | None], None] = (
            lambda partition, replica, assigned: None
        )
        self._unopened: dict[tuple[UUID, int], bool] = {}  # to be retried; whether the partition is new
        # Whether one of `_unopened` waits until an earlier folder of its name is gone.
        self._awaits_sync = False
        self._opening: set[tuple[UUID, int]] = set()  # wait for a later step of `apply`
        self._is_loading = True  # until the first image is applied
        self._is_closed = False
        self._flushes = BackgroundTasks()
        self.counters = CountersByTopic()

    def __iter__(self) -> Iterator[HostedPartition]:
        for partitions in self._by_id.values():
            yield from partitions.values()

    def find_leader(
        self,
        name: str | None,
        topic_id: UUID | None,
        index: int,
        current_leader_epoch: int = NO_LEADER_EPOCH,
    ) -> HostedPartition:
        """By name or, if that is None, by topic id. Raises KafkaError if this broker does not lead the partition.

        As in Kafka, a replica that does not lead first checks the leader epoch that the client knows, if it sent one.
        """
        partitions = self._by_name.get(name) if name is not None else self._by_id.get(topic_id)  # type: ignore[arg-type]
        hosted = None if partitions is None else partitions.get(index)
        if hosted is not None and hosted.is_led and hosted.failure is None:
            return hosted
        hosted = self.find_replica(name, topic_id, index)
        hosted.role.check_epoch(current_leader_epoch)
        raise hosted.not_leader()

    def find_replica(self, name: str | None, topic_id: UUID | None, index: int) -> HostedPartition:
        """As `find_leader`, but this broker may also follow."""
        partitions = self._by_name.get(name) if name is not None else self._by_id.get(topic_id)  # type: ignore[arg-type]
        hosted = None if partitions is None else partitions.get(index)
        if hosted is None:
            raise self._not_here(name, topic_id, index)
        if hosted.failure is not None:
            raise KafkaError(hosted.failure.code, hosted.failure.message)
        return hosted

    def current_leader(self, name: str | None, topic_id: UUID | None, index: int) -> LeaderIdAndEpoch | None:
        """The leader as the metadata says; None if there is no such partition."""
        topic = self._topic(name, topic_id)
        partition = None if topic is None else topic.partitions.get(index)
        return None if partition is None else LeaderIdAndEpoch(partition.leader, partition.leader_epoch)

    def _topic(self, name: str | None, topic_id: UUID | None) -> TopicImage | None:
        if name is not None:
            return self._image.topics.get(name)
        return None if topic_id is None else self._image.topics_by_id.get(topic_id)

    def _not_here(self, name: str | None, topic_id: UUID | None, index: int) -> KafkaError:
        topic = self._topic(name, topic_id)
        if topic is None and name is None:
            return KafkaError(ErrorCode.unknown_topic_id, f"there is no topic with the id {topic_id}")
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
        partition = topic.partitions[index]
        if self._config.node_id in partition.replicas:
            return KafkaError(
                ErrorCode.kafka_storage_error,
                f"the log of {topic.name}-{index} could not be opened; see the broker's log",
            )
        return KafkaError(
            ErrorCode.not_leader_or_follower,
            f"{topic.name}-{index} is not on broker {self._config.node_id}: "
            + (f"broker {partition.leader} leads it" if partition.has_leader else "it has no leader"),
        )

    def move(self, topic_partition: TopicPartition, path: str) -> None:
        """Starts to move the replica to the data directory `path` in the background. Raises KafkaError."""
        self._moves.check_target(path)
        self._moves.start(self.find_replica(topic_partition.topic, None, topic_partition.partition), path)

    async def close(self) -> None:
        """Stops to open partitions: the next start opens the rest. Later images have no effect."""
        self._is_closed = True
        await self._flushes.close()
        await self._moves.close()

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    # -- the metadata image

    def apply(self, changes: MetadataChanges, image: MetadataImage) -> Awaitable[None] | None:
        """Opens, leads, follows and deletes partitions as `image` says. `changes` are the differences to the previous.

        With very many partitions it returns an awaitable that does the work in steps. The caller must await it before
        it applies the next changes.
        """
        self._image = image
        if self._is_closed:
            return None
        # Before the roles: with a smaller ISR and an older min.insync.replicas, a leader could commit records alone.
        for resource in changes.configs:
            if resource.type == ResourceType.TOPIC:
                self.reconfigure(resource.name)
        work = self._plan(changes)
        remaining = None
        if work.is_small:
            for hosted, partition in work.changed:
                self._update_role(hosted, partition)
            for hosted in work.deleted:
                self._delete_log(hosted)
            work = PartitionWork((), work.new, ())
        if not work.is_small or self._must_wait_for_deletions(work.new):
            self._opening.update(partition.key for partition in work.new)
            remaining = self._apply_in_steps(work)
        else:
            for partition in work.new:
                self._host(partition, is_new=not self._is_loading)
            self._is_loading = False
        inactive = [broker_id for broker_id in changes.brokers if not image.is_active(broker_id)]
        if not inactive:
            return remaining
        led = [hosted for hosted in self if hosted.is_led]
        if remaining is None and len(led) <= ROLES_PER_STEP:
            self._leave_out(inactive, led)
            return None
        return self._leave_out_in_steps(remaining, inactive, led)

    def _leave_out(self, broker_ids: Sequence[int], led: Sequence[HostedPartition]) -> None:
        """No leader waits for a follower whose broker cannot join the ISR."""
        now_ms = self._env.clock.monotonic_ms()
        for hosted in led:
            for broker_id in broker_ids:
                hosted.follower_unavailable(broker_id, now_ms)

    async def _leave_out_in_steps(
        self, before: Awaitable[None] | None, broker_ids: Sequence[int], led: Sequence[HostedPartition]
    ) -> None:
        for start in range(0, len(led), FOLLOWERS_PER_STEP):
            self._leave_out(broker_ids, led[start : start + FOLLOWERS_PER_STEP])
            await asyncio.sleep(0)
        if before is not None:
            await before

    def _plan(self, changes: MetadataChanges) -> PartitionWork:
        """From now on requests for partitions that are not here any more are rejected; their logs are deleted later."""
        node_id = self._config.node_id
        deleted = [hosted for topic in changes.deleted for hosted in self._unhost_topic(topic)]
        new = [
            PlacedPartition(topic, index, image)
            for topic in changes.created
            for index, image in topic.partitions.items()
            if node_id in image.replicas
        ]
        changed = []
        for change in changes.changed:
            hosted_here = self._by_id.get(change.topic.topic_id, {})
            for part in change.partitions:
                partition = PlacedPartition(change.topic, part.partition, part.new)
                hosted = hosted_here.get(part.partition)
                if node_id not in part.new.replicas:
                    deleted += self._unhost_partition(partition)
                elif hosted is not None:
                    changed.append((hosted, partition))
                elif part.old is None or node_id not in part.old.replicas:
                    new.append(partition)
                # Else its log could not be opened: it may be in a directory that is offline, and must not be replaced.
        return PartitionWork(deleted, new, changed)

    async def _apply_in_steps(self, work: PartitionWork) -> None:
        """Roles first: they take little time, and clients wait for the new leader. Threads open and create the files.

        A stop ends it between two steps.
        """
        is_new = not self._is_loading
        try:
            for start in range(0, len(work.changed), ROLES_PER_STEP):
                for hosted, partition in work.changed[start : start + ROLES_PER_STEP]:
                    self._update_role(hosted, partition)
                await asyncio.sleep(0)
            for hosted in work.deleted:
                self._delete_log(hosted)
                await asyncio.sleep(0)
            if self._must_wait_for_deletions(work.new):
                await self._sync_all_deletions()
                if self._must_wait_for_deletions(work.new):
                    logger.error(
                        "some of %d new partitions are opened later: deletions of their names are not on disk",
                        len(work.new),
                    )
            for start in range(0, len(work.new), PARTITIONS_PER_STEP):
                if self._is_closed:
                    return
                step = work.new[start : start + PARTITIONS_PER_STEP]
                await self._open_ahead(step, is_new=is_new)
                for partition in step:
                    self._host(partition, is_new=is_new)
        finally:
            self._opening.clear()
            self._is_loading = False

    async def _open_ahead(self, partitions: Sequence[PlacedPartition], *, is_new: bool) -> None:
        now_ms = self._env.clock.now_ms()
        works: list[Callable[[], None] | None] = []
        for partition in partitions:
            log, config = partition.topic_partition, self._settings(partition.topic.name).log
            topic_id = partition.topic.topic_id
            existing = self._log_dirs.prepare_recovery(log, config, now_ms, topic_id, or_open=True)
            if existing is not None:
                works.append(existing[1])
            elif is_new:
                works.append(self._log_dirs.prepare_creation(log, config, now_ms, topic_id))
        await self._env.threads.run(lambda: [work() for work in works if work is not None])

    async def set_strays_aside(self, image: MetadataImage) -> None:
        """Renames folders of partitions that are not in the metadata, and keeps them. Call it before `apply`.

        Their topic may have been deleted while this node was down. Or the metadata is wrong, and they are the only
        copy: an administrator has to decide (KAFKA-14616).
        """
        placed, new_id = partial(image.topic_id_on, self.node_id), partial(random_uuid, self._env)
        self._log_dirs.mark_duplicates(placed, new_id)
        strays = [partition for partition in self._log_dirs.partitions if placed(partition) is None]
        if strays:
            logger.error(
                "%d folders have partitions that are not in the metadata of this broker", len(strays)
            )
            self._log_dirs.mark_strays(strays, new_id)
            await self.sync_deletions()
        self._high_watermarks = self._log_dirs.high_watermarks  # without those of strays

    @property
    def has_unsynced_deletions(self) -> bool:
        return bool(self._log_dirs.deletion_syncs())

    async def sync_deletions(self) -> None:
        """Makes deletions durable, in threads, for all of a data directory at once.

        Then opens the partitions that waited for it. It tries once, since the next metadata image waits for it. If
        file descriptors have run out, housekeeping tries again: a deletion may be acknowledged before it is durable,
        but no partition of its name is created. After a crash, its folder is a stray one.
        """
        await self._sync_all_deletions()
        if self._awaits_sync and not self._is_closed:
            self._awaits_sync = False
            self.retry_unopened()

    def _must_wait_for_deletions(self, partitions: Sequence[PlacedPartition]) -> bool:
        """Whether logs of the same names were deleted: `open` would block until that is durable.

        A broker that is behind gets the end of a topic and the beginning of another one of that name in one image.
        """
        return self._log_dirs.must_sync_before(partition.topic_partition for partition in partitions)

    async def _sync_all_deletions(self) -> None:
        await asyncio.gather(*(self._sync_deletions(sync) for sync in self._log_dirs.deletion_syncs()))

    async def _sync_deletions(self, sync: DeletionSync) -> None:
        try:
            await self._env.threads.run(sync.sync)
            sync.complete()
        except OSError as error:
            self._log_dirs.handle_checkpoint_error(sync, error)
            if is_disk_failure(error):
                self.fail_offline()

    async def recover(self, image: MetadataImage) -> None:
        """Recovers logs after an unclean stop, in threads for each data directory, before `apply` opens them."""
        self._image = image
        now_ms = self._env.clock.now_ms()
        works: dict[str, list[Callable[[], None]]] = {}
        for topic in image.topics.values():
            settings = self._settings(topic.name)
            for index, partition in topic.partitions.items():
                if self._config.node_id in partition.replicas:
                    found = self._log_dirs.prepare_recovery(
                        TopicPartition(topic.name, index), settings.log, now_ms, topic.topic_id, or_open=False
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
        """Retries the partitions that could not be opened because file descriptors had run out.

        Those that wait for a deletion, which takes a thread, wait on.
        """
        unopened, self._unopened = self._unopened, {}
        for (topic_id, index), is_new in unopened.items():
            topic = self._image.topics_by_id.get(topic_id)
            image = None if topic is None else topic.partitions.get(index)
            if topic is not None and image is not None and self._config.node_id in image.replicas:
                self._host(PlacedPartition(topic, index, image), is_new=is_new)
        if len(self._unopened) < len(unopened):
            self.on_opened_late()

    def _host(self, partition: PlacedPartition, *, is_new: bool) -> None:
        """Opens the log. A partition that is created in this run (`is_new`) cannot be in an offline directory."""
        topic, topic_partition = partition.topic, partition.topic_partition
        self._opening.discard(partition.key)
        if self._must_wait_for_deletions([partition]):
            self._unopened[partition.key] = is_new
            self._awaits_sync = True
            return
        settings = self._settings(topic.name)
        try:
            log = self._open_log(topic_partition, topic.topic_id, settings, is_new=is_new)
        except KafkaError as error:
            logger.error("%s cannot be opened: %s", topic_partition, error.message)
            cause = error.__cause__
            if isinstance(cause, OSError) and not is_disk_failure(cause):
                self._unopened[partition.key] = is_new
            else:
                self._placed(partition)
            return
        if log is None:
            self._unopened[partition.key] = True
            return
        checkpointed = self._high_watermarks.pop(topic_partition, 0)
        high_watermark = trusted_high_watermark(
            checkpointed,
            replicas=len(partition.image.replicas),
            was_closed_cleanly=self._log_dirs.was_closed_cleanly(topic_partition),
            leads_alone=self._leads_alone(partition.image),
        )
        hosted = HostedPartition(
            topic_partition,
            topic.topic_id,
            log,
            self._new_role(log, partition.image, settings, high_watermark),
            settings.records,
            self._storage_failed,
            self._delayed_operations.notify,
            self._env.clock.monotonic_ms,
            self._isr_proposed,
            self._log_dirs.plan_truncation,
            self.counters.of(topic.name),
        )
        if not partition.image.has_leader:
            hosted.untrusted_high_watermark = checkpointed
        self._by_name[topic.name] = self._by_id.setdefault(topic.topic_id, {})
        self._by_id[topic.topic_id][partition.index] = hosted
        self.on_role_changed(hosted)
        self._placed(partition)

    def _update_role(self, hosted: HostedPartition, partition: PlacedPartition) -> None:
        """A new leader epoch is a new role. Within the epoch, the ISR and the replicas may change.

        The epochs order the changes: one that comes late, after the answer to a proposal of this leader, has no effect.
        """
        role, image = hosted.role, partition.image
        if image.leader_epoch > role.leader_epoch:
            settings = self._settings(partition.topic.name)
            # Records that wait for a flush are not committed by a new leader either, until they are flushed.
            unflushed_from = hosted.log.recovery_point if hosted.needs_flush else None
            high_watermark = self._take_high_watermark(hosted, image)
            new = self._new_role(hosted.log, image, settings, high_watermark, unflushed_from)
            if isinstance(new, PartitionLeader):
                hosted.lead(new)
            else:
                hosted.follow(new)
            if hosted.is_led and unflushed_from is not None:
                self._flushes.start(flush_partition(self._env, hosted))
            self.on_role_changed(hosted)
        elif image.leader_epoch == role.leader_epoch:
            now_ms = self._env.clock.monotonic_ms()
            hosted.isr_committed(image.isr, image.replicas, image.partition_epoch, now_ms)
        self._placed(partition)

    def _take_high_watermark(self, hosted: HostedPartition, image: PartitionImage) -> int:
        """The high watermark for a new role. A lone leader also trusts what was checkpointed before an unclean stop."""
        known, untrusted = hosted.role.high_watermark, hosted.untrusted_high_watermark
        if image.has_leader:
            hosted.untrusted_high_watermark = 0
        return max(known, untrusted) if self._leads_alone(image) else known

    def _leads_alone(self, image: PartitionImage) -> bool:
        return (
            image.leader == self.node_id
            and image.isr == (self.node_id,)
            and not image.eligible_leader_replicas
        )

    def _moved(self, hosted: HostedPartition) -> None:
        topic, index = self._image.topics_by_id.get(hosted.topic_id), hosted.topic_partition.partition
        image = None if topic is None else topic.partitions.get(index)
        if topic is not None and image is not None and self.node_id in image.replicas:
            self._placed(PlacedPartition(topic, index, image))

    def _placed(self, partition: PlacedPartition) -> None:
        assigned = partition.image.directory(self.node_id)
        self.on_placed(partition.topic_partition, partition.key, assigned)

    def _isr_proposed(self, hosted: HostedPartition, leader: PartitionLeader, isr: tuple[int, ...]) -> None:
        self.on_isr_proposed(hosted, leader, isr)

    def _open_log(
        self, topic_partition: TopicPartition, topic_id: UUID, settings: TopicSettings, *, is_new: bool
    ) -> "Log | None":
        """None if the folder belongs to another topic id: it is set aside, and `sync_deletions` tries again."""
        now_ms = self._env.clock.now_ms()
        try:
            return self._log_dirs.open(
                topic_partition, settings.log, now_ms, topic_id=topic_id, is_new=is_new
            )
        except InconsistentTopicIdError as error:
            # The topic was deleted and created again while its log was offline, or a file is damaged.
            logger.error("a folder of another topic is set aside: %s", error.message)
            self._log_dirs.mark_strays([topic_partition], partial(random_uuid, self._env))
            self._awaits_sync = True
            return None

    def _new_role(
        self,
        log: "Log",
        partition: PartitionImage,
        settings: TopicSettings,
        high_watermark: int,
        unflushed_from: int | None = None,
    ) -> PartitionLeader | PartitionFollower:
        high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        if partition.leader != self._config.node_id:
            return PartitionFollower(
                log.offsets,
                log.producers,
                log.epochs,
                leader_epoch=partition.leader_epoch,
                leader_id=partition.leader,
                partition_epoch=partition.partition_epoch,
                high_watermark=high_watermark,
            )
        return PartitionLeader(
            log.offsets,
            log.producers,
            log.epochs,
            leader_epoch=partition.leader_epoch,
            high_watermark=high_watermark,
            local_id=self._config.node_id,
            replica_ids=partition.replicas,
            isr=partition.isr,
            settings=settings.leader,
            now_ms=self._env.clock.monotonic_ms(),
            partition_epoch=partition.partition_epoch,
            unflushed_from=unflushed_from,
        )

    def _unhost_topic(self, topic: TopicImage) -> list[HostedPartition]:
        """Closes the partitions of a topic. Returns those whose logs must be deleted."""
        self.counters.remove(topic.name)
        partitions = self._by_id.pop(topic.topic_id, {})
        if self._by_name.get(topic.name) is partitions:
            del self._by_name[topic.name]
        for hosted in partitions.values():
            hosted.close(
                KafkaError(ErrorCode.unknown_topic_or_partition, f"{hosted.topic_partition} was deleted")
            )
            self.on_role_changed(hosted)
        return [hosted for hosted in partitions.values() if hosted.failure is None]

    def _unhost_partition(self, partition: PlacedPartition) -> list[HostedPartition]:
        """Closes a partition that was reassigned to other brokers. Returns it if its log must be deleted."""
        hosted = self._by_id.get(partition.topic.topic_id, {}).pop(partition.index, None)
        if hosted is None:
            return []
        logger.info(
            "%s was reassigned to %s, and is deleted here", hosted.topic_partition, partition.image.replicas
        )
        hosted.close(self._not_here(partition.topic.name, None, partition.index))
        self.on_role_changed(hosted)
        return [hosted] if hosted.failure is None else []

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
        partition = hosted.topic_partition
        if self._log_dirs.logs.get(partition) is hosted.log:
            failure = self._log_dirs.handle_error(partition, error)
        else:
            # A new topic with this name may be in another directory, which has not failed.
            failure = KafkaError(
                ErrorCode.kafka_storage_error,
                f"{partition} is not available: it was deleted, or its data directory is offline ({error})",
            )
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
                self.on_role_changed(hosted)
