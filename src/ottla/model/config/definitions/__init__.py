"""All configs of Apache Kafka 4.3, in one table per area, and lookup by resource type and name."""

import re
from collections.abc import Mapping

from ottla.model.config.definition import ConfigDef, ConfigType, ResourceType
from ottla.model.config.definitions import (
    client_metrics,
    general,
    group,
    groups,
    log,
    network,
    ottla,
    quorum,
    remote,
    replication,
    security,
    share_groups,
    throttles,
    topic,
    transactions,
)

BROKER_AREAS = {
    "Identity, quorum and metadata log": quorum.CONFIGS,
    "Listeners, connections and requests": network.CONFIGS,
    "Log": log.CONFIGS,
    "Replication": replication.CONFIGS,
    "Groups and offsets": groups.CONFIGS,
    "Share groups and streams groups": share_groups.CONFIGS,
    "Transactions and producer ids": transactions.CONFIGS,
    "Security": security.CONFIGS,
    "Tiered storage": remote.CONFIGS,
    "Metrics, quotas and plug-ins": general.CONFIGS,
    "Replication throttles (dynamic only)": throttles.CONFIGS,
    "Ottla's own": ottla.CONFIGS,
}

TOPIC_CONFIGS: Mapping[str, ConfigDef] = {c.name: c for c in (*topic.CONFIGS, *ottla.TOPIC_CONFIGS)}
GROUP_CONFIGS: Mapping[str, ConfigDef] = {c.name: c for c in group.CONFIGS}
CLIENT_METRICS_CONFIGS: Mapping[str, ConfigDef] = {c.name: c for c in client_metrics.CONFIGS}
BROKER_CONFIGS: Mapping[str, ConfigDef] = {c.name: c for area in BROKER_AREAS.values() for c in area}
DYNAMIC_ONLY = frozenset(c.name for c in throttles.CONFIGS)

_BY_RESOURCE = {
    ResourceType.TOPIC: TOPIC_CONFIGS,
    ResourceType.BROKER: BROKER_CONFIGS,
    ResourceType.GROUP: GROUP_CONFIGS,
    ResourceType.CLIENT_METRICS: CLIENT_METRICS_CONFIGS,
}

# A listener can override a broker config: listener.name.internal.ssl.keystore.location. A few SASL configs can also be
# set per mechanism: listener.name.internal.plain.sasl.jaas.config (KIP-103, KIP-85).
_LISTENER_CONFIG = re.compile(r"listener\.name\.[^.]*\.(.*)")
_MECHANISM_CONFIGS = (
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
    "sasl.login.callback.handler.class",
    "sasl.jaas.config",
    "sasl.login.class",
)


def without_listener_prefix(name: str) -> str:
    """`ssl.keystore.location` for `listener.name.internal.ssl.keystore.location`; other names are unchanged."""
    match = _LISTENER_CONFIG.fullmatch(name)
    if not match:
        return name
    base = match[1]
    return next((config for config in _MECHANISM_CONFIGS if base.endswith(config)), base)


def definition_of(resource_type: int, name: str) -> ConfigDef | None:
    """The definition of `name` for a resource type (a ResourceType, or its number in the protocol)."""
    try:
        by_name = _BY_RESOURCE[ResourceType(resource_type)]
    except (KeyError, ValueError):
        return None
    definition = by_name.get(name)
    if definition is None and by_name is BROKER_CONFIGS:
        return by_name.get(without_listener_prefix(name))
    return definition


def is_list(resource_type: int, name: str) -> bool:
    """Whether IncrementalAlterConfigs can append to it and subtract from it (KIP-339)."""
    definition = definition_of(resource_type, name)
    return definition is not None and definition.type is ConfigType.LIST
