"""The group coordinator of this broker: a shard for each partition of `__consumer_offsets` that it leads."""

from collections.abc import Callable, Mapping

import ottla.protocol.group_records.codec as group_codec
from ottla.broker.coordinators.image_topics import ImageTopics
from ottla.broker.coordinators.internal_topics import CONSUMER_OFFSETS, consumer_offsets
from ottla.broker.coordinators.shard_runtime import RuntimeSettings, RuntimeState, ShardRuntime
from ottla.broker.coordinators.shard_runtimes import ShardRuntimes
from ottla.broker.hosted_partition import HostedPartition
from ottla.broker.promise import Promise, completed
from ottla.broker.services import BrokerServices
from ottla.broker.topic_settings import topic_settings
from ottla.core.controller.changes import MetadataChanges
from ottla.core.controller.image import MetadataImage
from ottla.core.coordination import Command, ResponseT
from ottla.core.groups.commands import DeletePartitionOffsets, ListedGroup, ListGroups
from ottla.core.groups.offsets.repeated_commits import CommitTemplates
from ottla.core.groups.settings import INT_MAX, NO_OVERRIDES, GroupOverrides, GroupSettings
from ottla.core.groups.shard import GroupShard
from ottla.model.config import BrokerConfig, ResourceType
from ottla.model.errors import ErrorCode, KafkaError

_MS_PER_MINUTE = 60_000
RECORD_ROOM = 512  # for the header of the batch, and for the key and the fields of a group


class GroupCoordinator:
    def __init__(self, services: BrokerServices) -> None:
        self._services = services
        self.runtimes: ShardRuntimes[GroupShard] = ShardRuntimes(
            services, consumer_offsets(services.config), self._new_runtime
        )
        self.templates = CommitTemplates()
        self._topics = ImageTopics(MetadataImage())
        self._settings = GroupSettings()
        self.reconfigure()

    # -- requests

    def submit(self, group_id: str, command: Command[ResponseT]) -> "Promise[ResponseT | KafkaError]":
        """Submits a command to the group's shard. Never raises: if it is rejected, the response is a KafkaError."""
        runtime = self.runtimes.for_key(group_id)
        if runtime is None:
            return completed(
                KafkaError(
                    ErrorCode.not_coordinator,
                    f"broker {self._services.config.node_id} does not coordinate the group {group_id!r}",
                )
            )
        return runtime.submit(command)

    def list_groups(self, command: ListGroups) -> Promise[tuple[ListedGroup, ...] | KafkaError]:
        """The groups of all shards here; KafkaError if one is still loading, as the list would be incomplete."""
        return self.runtimes.submit_to_all(command)

    async def find_coordinator(self, group_id: str) -> int | KafkaError:
        """The id of the node that coordinates the group. Creates `__consumer_offsets` if it does not exist."""
        return await self.runtimes.find_coordinator(group_id)

    # -- configs and metadata

    def reconfigure(self) -> None:
        """Configs of the broker, of topics or of groups have changed."""
        self.templates.clear()
        config, image = self._services.config, self._services.metadata.image
        of_topic = topic_settings(image.config(ResourceType.TOPIC, CONSUMER_OFFSETS), config)
        self._settings = group_settings(config, self._overrides, of_topic.leader.max_message_bytes)
        for runtime in self.runtimes:
            runtime.shard.state.settings = self._settings

    def _overrides(self, group_id: str) -> GroupOverrides:
        configs = self._services.metadata.image.config(ResourceType.GROUP, group_id)
        return group_overrides(configs) if configs else NO_OVERRIDES

    def image_changed(self, changes: MetadataChanges, image: MetadataImage) -> None:
        """Starts the shards whose partitions this broker leads now, and gives the new topics to all shards.

        The host has applied the image before: the partitions are open.
        """
        if not (changes.created or changes.deleted or changes.changed or changes.brokers):
            return
        self.templates.clear()
        self._topics = ImageTopics(image)
        self.runtimes.apply(image)
        deleted = frozenset(topic.name for topic in changes.deleted)
        for runtime in self.runtimes:
            runtime.shard.state.topics = self._topics
            if runtime.state is RuntimeState.ACTIVE:
                runtime.run(runtime.shard.on_topics_changed)
                if deleted:
                    runtime.submit(DeletePartitionOffsets(topics=deleted))

    def _new_runtime(self, hosted: HostedPartition) -> ShardRuntime[GroupShard]:
        services = self._services
        return ShardRuntime(
            hosted,
            self._new_shard,
            group_codec,
            services.env,
            services.delayed_operations,
            services.tasks.start,
            self._runtime_settings(),
        )

    def _new_shard(self) -> GroupShard:
        return GroupShard(self._settings, self._topics)

    def _runtime_settings(self) -> RuntimeSettings:
        config = self._services.config
        return RuntimeSettings(
            commit_timeout_ms=config.get_int("offsets.commit.timeout.ms"),
            compression=config.get_int("offsets.topic.compression.codec"),
            load_buffer_bytes=config.get_int("offsets.load.buffer.size"),
        )


def group_settings(
    config: BrokerConfig, overrides: Callable[[str], GroupOverrides], max_message_bytes: int
) -> GroupSettings:
    is_compressed = config.get_int("offsets.topic.compression.codec") != 0
    return GroupSettings(
        record_bytes_max=INT_MAX if is_compressed else max_message_bytes - RECORD_ROOM,
        max_size=config.get_int("group.max.size"),
        initial_rebalance_delay_ms=config.get_int("group.initial.rebalance.delay.ms"),
        min_session_timeout_ms=config.get_int("group.min.session.timeout.ms"),
        max_session_timeout_ms=config.get_int("group.max.session.timeout.ms"),
        consumer_max_size=config.get_int("group.consumer.max.size"),
        consumer_session_timeout_ms=config.get_int("group.consumer.session.timeout.ms"),
        consumer_heartbeat_interval_ms=config.get_int("group.consumer.heartbeat.interval.ms"),
        consumer_assignment_interval_ms=config.get_int("group.consumer.assignment.interval.ms"),
        consumer_assignors=tuple(config.get_list("group.consumer.assignors")),
        consumer_migration_policy=config.get_str("group.consumer.migration.policy").lower(),
        consumer_regex_refresh_interval_ms=config.get_int("group.consumer.regex.refresh.interval.ms"),
        rebalance_protocols=tuple(config.get_list("group.coordinator.rebalance.protocols")),
        offset_metadata_max_bytes=config.get_int("offset.metadata.max.bytes"),
        offsets_retention_ms=config.get_int("offsets.retention.minutes") * _MS_PER_MINUTE,
        offsets_retention_check_interval_ms=config.get_int("offsets.retention.check.interval.ms"),
        overrides=overrides,
    )


def group_overrides(configs: Mapping[str, str]) -> GroupOverrides:
    def number(name: str) -> int | None:
        value = configs.get(name)
        return None if value is None else int(value)

    return GroupOverrides(
        consumer_session_timeout_ms=number("consumer.session.timeout.ms"),
        consumer_heartbeat_interval_ms=number("consumer.heartbeat.interval.ms"),
        consumer_assignment_interval_ms=number("consumer.assignment.interval.ms"),
    )
