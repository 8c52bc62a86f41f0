"""Applies every new metadata image to this broker: to its configs, its partitions and its coordinators."""

from collections.abc import Awaitable

from ottla.broker.coordinators.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from ottla.broker.dynamic_configs import DynamicConfigs
from ottla.broker.services import BrokerServices
from ottla.core.controller.changes import MetadataChanges, changes_since
from ottla.core.controller.image import MetadataImage
from ottla.model.config import ResourceType


class MetadataPublisher:
    def __init__(self, services: BrokerServices, dynamic_configs: DynamicConfigs) -> None:
        self._services = services
        self._dynamic_configs = dynamic_configs

    async def load(self, image: MetadataImage) -> None:
        """Opens the partitions of the image that the broker starts with."""
        partitions = self._services.partitions
        await partitions.set_strays_aside(image)
        if any(resource.type == ResourceType.BROKER for resource in image.configs):
            self._dynamic_configs.apply(image)  # recovery depends on configs
        await partitions.recover(image)
        opening = self.publish(MetadataImage(), image)
        if opening is not None:
            await opening
        # Completes deletions of the previous run before a client can create a topic of the same name.
        await partitions.sync_deletions()

    def publish(self, old: MetadataImage, new: MetadataImage) -> Awaitable[None] | None:
        """Applies the differences between the two images.

        The result, if there is one, is work that must end before the commands that changed the image are complete.
        """
        changes = changes_since(old, new)
        config_types = {resource.type for resource in changes.configs}
        if ResourceType.BROKER in config_types:
            self._dynamic_configs.apply(new)
        if ResourceType.CLIENT_METRICS in config_types:
            self._services.telemetry.configure(
                {
                    resource.name: configs
                    for resource, configs in new.configs.items()
                    if resource.type == ResourceType.CLIENT_METRICS
                }
            )
        if ResourceType.TOPIC in config_types:
            self._services.throttles.topics_changed(changes.configs, new)
        partitions = self._services.partitions
        opening = partitions.apply(changes, new)
        if partitions.is_closed:
            return None  # the broker stops
        self._publish_to_coordinators(changes, config_types, new)
        if opening is None:
            return partitions.sync_deletions() if partitions.has_unsynced_deletions else None
        return self._finish(opening)

    async def _finish(self, opening: Awaitable[None]) -> None:
        """Many partitions are opened and deleted in steps. Coordinators take over their partitions after that."""
        await opening
        if self._services.partitions.is_closed:
            return
        self.partitions_opened()
        await self._services.partitions.sync_deletions()

    def partitions_opened(self) -> None:
        """Partitions were opened later than the image was applied: coordinators take over those that are theirs."""
        image = self._services.metadata.image
        for coordinator in (self._services.groups.created, self._services.transactions.created):
            if coordinator is not None:
                coordinator.runtimes.apply(image)

    def _publish_to_coordinators(
        self, changes: MetadataChanges, config_types: set[int], image: MetadataImage
    ) -> None:
        """Creates a coordinator, which then takes over the whole image, when its topic appears.

        Groups first: transactions write markers to their partitions.
        """
        groups = self._services.groups.created
        if groups is not None:
            if config_types & {ResourceType.BROKER, ResourceType.TOPIC, ResourceType.GROUP}:
                groups.reconfigure()
            groups.image_changed(changes, image)
        elif CONSUMER_OFFSETS in image.topics:
            self._services.groups.get()
        transactions = self._services.transactions.created
        if transactions is not None:
            if ResourceType.BROKER in config_types:
                transactions.reconfigure()
            transactions.image_changed(changes, image)
        elif TRANSACTION_STATE in image.topics:
            self._services.transactions.get()
