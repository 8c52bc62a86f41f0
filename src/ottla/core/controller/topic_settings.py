"""The configs of a topic that decide elections: from the topic, this node, all brokers, or the node's configuration."""

from collections.abc import Iterable

from ottla.core.controller.configs import MIN_INSYNC_REPLICAS, UNCLEAN_LEADER_ELECTION
from ottla.core.controller.image import ConfigResource, MetadataImage
from ottla.core.controller.settings import ControllerSettings
from ottla.model.config.definition import ResourceType

_ALL_BROKERS = ConfigResource(ResourceType.BROKER, "")


def min_insync_replicas(
    image: MetadataImage, settings: ControllerSettings, topic: str, replication_factor: int
) -> int:
    """At most the number of replicas: a partition that has fewer counts as complete with all of them.

    No broker has a value of its own while this decides anything (KIP-966).
    """
    value = _dynamic_value(image, MIN_INSYNC_REPLICAS, (_topic(topic), _ALL_BROKERS))
    wanted = settings.min_insync_replicas if value is None else int(value)
    return min(wanted, replication_factor)


def elects_uncleanly(image: MetadataImage, settings: ControllerSettings, topic: str) -> bool:
    own = ConfigResource(ResourceType.BROKER, str(settings.node_id))
    value = _dynamic_value(image, UNCLEAN_LEADER_ELECTION, (_topic(topic), own, _ALL_BROKERS))
    return settings.unclean_leader_election if value is None else value.strip().lower() == "true"


def _topic(name: str) -> ConfigResource:
    return ConfigResource(ResourceType.TOPIC, name)


def _dynamic_value(image: MetadataImage, name: str, resources: Iterable[ConfigResource]) -> str | None:
    """The value of the first resource that has one."""
    for resource in resources:
        value = image.configs.get(resource, {}).get(name)
        if value is not None:
            return value
    return None
