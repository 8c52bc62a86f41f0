"""Broker configs that are set in the metadata while the broker runs (KIP-226)."""

import logging
from collections.abc import Callable

from ottla.core.controller.configs import MIN_INSYNC_REPLICAS
from ottla.core.controller.image import ELR_VERSION, MetadataImage
from ottla.model.config import BrokerConfig, ConfigError, ResourceType, rejection_errors

logger = logging.getLogger("ottla.broker")


class DynamicConfigs:
    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._subscribers: list[Callable[[], None]] = []

    def subscribe(self, callback: Callable[[], None]) -> None:
        """`callback` is called after every change of the broker's configs, in the order of the subscriptions."""
        self._subscribers.append(callback)

    def apply(self, image: MetadataImage) -> None:
        """Sets the broker's configs to those of `image`, or leaves them as they are if one is invalid.

        With ELR (KIP-966) min.insync.replicas of a single broker has no effect, even if an old metadata log has one.
        The controller takes the value of all brokers: with a lower one, a leader would acknowledge records that the
        next leader need not have.
        """
        own = image.config(ResourceType.BROKER, str(self._config.node_id))
        if MIN_INSYNC_REPLICAS in own and image.features.get(ELR_VERSION, 0) >= 1:
            own = {name: value for name, value in own.items() if name != MIN_INSYNC_REPLICAS}
        default = image.config(ResourceType.BROKER, "")
        try:
            changed = self._config.apply_dynamic(own, default)
        except ConfigError as error:
            logger.error("dynamic broker configs are not applied: %s", "; ".join(error.errors))
            return
        for reason in rejection_errors(ResourceType.BROKER, {**default, **own}):
            logger.error("a dynamic broker config of the metadata has no effect: %s", reason)
        if changed:
            logger.info("broker configs changed: %s", ", ".join(sorted(changed)))
            for callback in self._subscribers:
                callback()
