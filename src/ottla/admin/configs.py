"""Configs of a topic, a broker or a group, as the cluster reports and changes them."""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from ottla.admin.cluster import Cluster, ClusterError
from ottla.model.config import ConfigSource

_RESOURCE_TYPES = {
    "topic": ResourceType.TOPIC,
    "broker": ResourceType.BROKER,
    "group": ResourceType.GROUP,
}


class ConfigValue(NamedTuple):
    name: str
    value: str | None
    source: str
    read_only: bool
    sensitive: bool

    @property
    def is_default(self) -> bool:
        return self.source == ConfigSource.DEFAULT_CONFIG.name


def describe_configs(cluster: Cluster, kind: str, name: str) -> list[ConfigValue]:
    """Sorted by name. `kind` is topic, broker or group."""
    resource = ConfigResource(_RESOURCE_TYPES[kind], name)
    _check_broker(cluster, kind, name)
    (future,) = cluster.admin.describe_configs([resource]).values()
    entries = cluster.result(future, f"Configs of {kind} {name}")
    return sorted(_line(entry) for entry in entries.values())


def alter_configs(
    cluster: Cluster, kind: str, name: str, *, set: Mapping[str, str], unset: Collection[str]
) -> None:
    """Sets some configs and resets others to their defaults, in one request; the rest stays as it is (KIP-339)."""
    changes = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in set.items()
    ]
    changes += [ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in unset]
    resource = ConfigResource(_RESOURCE_TYPES[kind], name, incremental_configs=changes)
    _check_broker(cluster, kind, name)
    (future,) = cluster.admin.incremental_alter_configs([resource]).values()
    cluster.result(future, f"Configs of {kind} {name} were not changed")


def _check_broker(cluster: Cluster, kind: str, name: str) -> None:
    """A request about a broker is sent to that broker, so for an unknown broker it would only time out."""
    if kind == "broker":
        brokers = sorted(cluster.metadata().brokers)
        if name not in map(str, brokers):
            raise ClusterError(
                f"Broker {name} is not in the cluster. Its brokers are {', '.join(map(str, brokers))}"
            )


def _line(entry: ConfigEntry) -> ConfigValue:
    return ConfigValue(
        entry.name,
        entry.value,
        _source(entry.source),
        entry.is_read_only,
        entry.is_sensitive,
    )


def _source(number: Any) -> str:
    try:
        return ConfigSource(number).name
    except ValueError:
        return f"UNKNOWN_{number}"
