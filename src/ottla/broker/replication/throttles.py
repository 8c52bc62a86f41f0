"""The replication throttles of this broker, as the configs of the broker and of the topics set them (KIP-73)."""

from collections.abc import Iterable

from ottla.core.controller.image import ConfigResource, MetadataImage
from ottla.core.replication_throttle import ReplicationThrottle
from ottla.model.config import BrokerConfig, ResourceType, topic_config_value


class ReplicationThrottles:
    def __init__(self, config: BrokerConfig) -> None:
        samples = config.get_int("replication.quota.window.num")
        sample_ms = config.get_int("replication.quota.window.size.seconds") * 1000
        self.leader = ReplicationThrottle(config.node_id, samples, sample_ms)
        self.follower = ReplicationThrottle(config.node_id, samples, sample_ms)
        self._config = config

    def rates_changed(self) -> None:
        self.leader.set_rate(self._config.get_int("leader.replication.throttled.rate"))
        self.follower.set_rate(self._config.get_int("follower.replication.throttled.rate"))

    def topics_changed(self, resources: Iterable[ConfigResource], image: MetadataImage) -> None:
        """The configs of some resources have changed; those that are not topics are ignored."""
        for resource in resources:
            if resource.type == ResourceType.TOPIC:
                overrides = image.config(ResourceType.TOPIC, resource.name)
                for throttle, name in (
                    (self.leader, "leader.replication.throttled.replicas"),
                    (self.follower, "follower.replication.throttled.replicas"),
                ):
                    replicas = topic_config_value(name, overrides, self._config)
                    throttle.set_replicas(resource.name, replicas if isinstance(replicas, tuple) else ())
