"""The group coordinator of this broker: a shard for each partition of `__consumer_offsets` that it leads."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import ottla.protocol.group_records.codec as group_codec
from ottla.broker.coordinators.image_topics import ImageTopics
from ottla.broker.coordinators.internal_topics import consumer_offsets
from ottla.broker.coordinators.shard import CoordinatorShard, ShardSettings, ShardState
from ottla.broker.coordinators.shard_set import ShardSet
from ottla.broker.hosted_partition import HostedPartition
from ottla.broker.pending import Pending, completed
from ottla.core.controller.changes import MetadataChanges
from ottla.core.controller.image import MetadataImage
from ottla.core.coordination import Command, ResponseT
from ottla.core.groups.commands import DeletePartitionOffsets, ListedGroup, ListGroups
from ottla.core.groups.offsets.repeated_commits import CommitTemplates
from ottla.core.groups.settings import NO_OVERRIDES, GroupOverrides, GroupSettings
from ottla.core.groups.shard import GroupShard
from ottla.model.config import BrokerConfig, ResourceType
from ottla.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.node import Broker

_MS_PER_MINUTE = 60_000


class GroupCoordinator:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self.shards: ShardSet[GroupShard] = ShardSet(broker, consumer_offsets(broker.config), self._new_shard)
        self.templates = CommitTemplates()
        self._topics = ImageTopics(MetadataImage())
        self._settings = GroupSettings()
        self.reconfigure()

    # -- requests

    def submit(self, group_id: str, command: Command[ResponseT]) -> "Pending[ResponseT | KafkaError]":
        """Has the group's shard decide. Never raises: a refusal is a KafkaError in the place of the response."""
        shard = self.shards.shard_of(group_id)
        if shard is None:
            return completed(
                KafkaError(
                    ErrorCode.not_coordinator,
                    f"broker {self._broker.config.node_id} does not coordinate the group {group_id!r}",
                )
            )
        return shard.submit(command)

    def list_groups(self, command: ListGroups) -> Pending[tuple[ListedGroup, ...] | KafkaError]:
        """The groups of all shards here; KafkaError where one is still loading: the list would not be whole."""
        return self.shards.submit_to_all(command)

    async def find(self, group_id: str) -> int | KafkaError:
        """The id of the node that coordinates the group. Makes `__consumer_offsets` where it is not there."""
        return await self.shards.find(group_id)

    # -- what happens around

    def reconfigure(self) -> None:
        """Configs of the broker or of groups have changed."""
        self.templates.clear()
        self._settings = group_settings(self._broker.config, self._overrides)
        for shard in self.shards:
            shard.machine.state.settings = self._settings

    def _overrides(self, group_id: str) -> GroupOverrides:
        configs = self._broker.image.config(ResourceType.GROUP, group_id)
        return group_overrides(configs) if configs else NO_OVERRIDES

    def image_changed(self, changes: MetadataChanges, image: MetadataImage) -> None:
        """After the partitions are open: takes over those of `__consumer_offsets`, and tells groups of their topics."""
        if not (changes.created or changes.deleted or changes.changed or changes.brokers):
            return
        self.templates.clear()
        self._topics = ImageTopics(image)
        self.shards.follow(image)
        deleted = frozenset(topic.name for topic in changes.deleted)
        for shard in self.shards:
            shard.machine.state.topics = self._topics
            if shard.state is ShardState.ACTIVE:
                shard.run(shard.machine.on_topics_changed)
                if deleted:
                    shard.submit(DeletePartitionOffsets(topics=deleted))

    def _new_shard(self, hosted: HostedPartition) -> CoordinatorShard[GroupShard]:
        broker = self._broker
        return CoordinatorShard(
            hosted,
            self._new_machine,
            group_codec,
            broker.env,
            broker.waiting_room,
            broker.spawn,
            self._shard_settings(),
        )

    def _new_machine(self) -> GroupShard:
        return GroupShard(self._settings, self._topics)

    def _shard_settings(self) -> ShardSettings:
        config = self._broker.config
        return ShardSettings(
            commit_timeout_ms=config.get_int("offsets.commit.timeout.ms"),
            compression=config.get_int("offsets.topic.compression.codec"),
            load_buffer_bytes=config.get_int("offsets.load.buffer.size"),
        )


def group_settings(config: BrokerConfig, overrides: Callable[[str], GroupOverrides]) -> GroupSettings:
    return GroupSettings(
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
