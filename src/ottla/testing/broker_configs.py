"""The configs of brokers for tests: Kafka's defaults, but for what would make a test wait."""

from collections.abc import Mapping

GROUP_CONFIGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "1",
    "group.consumer.min.session.timeout.ms": "1",
}
# Advanced time must neither fence the only broker nor close the connections of clients.
TIME_CONFIGS = {"broker.session.timeout.ms": str(2**31 - 1), "connections.max.idle.ms": "-1"}


# `Kafka` and `KafkaCluster` choose them: free ports, and folders that end with the broker.
_OWN_CONFIGS = ("log.dir", "log.dirs", "metadata.log.dir", "listeners", "advertised.listeners")


def users_configs(config: Mapping[str, object] | None) -> dict[str, str]:
    """As text. Raises ValueError for a config that would be overridden."""
    for name in config or {}:
        if name in _OWN_CONFIGS:
            raise ValueError(
                f"config {name}: a Kafka for tests chooses its own ports and folders. Remove it, or run `ottla serve`"
            )
    return as_text(config or {})


def as_text(config: Mapping[str, object]) -> dict[str, str]:
    return {name: _text(value) for name, value in config.items()}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
