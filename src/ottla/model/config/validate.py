"""Validates configs of a resource for AlterConfigs, IncrementalAlterConfigs and CreateTopics, with Kafka's messages."""

import re
from collections.abc import Collection, Mapping

from ottla.model.config.broker import BrokerConfig, ConfigError
from ottla.model.config.definition import ConfigType, ResourceType, Scope, parse_value
from ottla.model.config.definitions import BROKER_CONFIGS, definition_of, without_listener_prefix
from ottla.model.config.synonyms import GROUP_SYNONYMS
from ottla.model.config.topic import topic_config_value
from ottla.model.errors import KafkaError
from ottla.model.regex import compile_regex

_KIND = {ResourceType.TOPIC: "topic", ResourceType.GROUP: "group"}
_METRICS_MATCH = re.compile(
    r"(client_instance_id|client_id|client_software_name|client_software_version|client_source_address|"
    r"client_source_port)=(.+)"
)
_GROUP_BOUNDS = (
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "assignment.interval.ms",
    "record.lock.duration.ms",
    "delivery.count.limit",
    "partition.max.record.locks",
)


def validate(resource_type: int, name: str, value: str) -> str | None:
    """The error message for a value, or None. Unknown broker configs are valid, because plug-ins may use them."""
    definition = definition_of(resource_type, name)
    if definition is None:
        if resource_type == ResourceType.CLIENT_METRICS:
            return f"Unknown client metrics configuration: {name}"
        kind = _KIND.get(ResourceType(resource_type))
        return f"Unknown {kind} config name: {name}" if kind else None
    try:
        definition._replace(name=name).parse(value)
    except ValueError as error:
        return str(error)
    if resource_type == ResourceType.CLIENT_METRICS:
        return _client_metrics_error(name, value)
    return None


def validate_topic_configs(configs: Mapping[str, str], broker: BrokerConfig) -> str | None:
    """The error message for the whole set of a topic's configs, or None."""
    for name, value in configs.items():
        error = validate(ResourceType.TOPIC, name, value)
        if error:
            return error
    least = topic_config_value("min.compaction.lag.ms", configs, broker)
    most = topic_config_value("max.compaction.lag.ms", configs, broker)
    if isinstance(least, int) and isinstance(most, int) and least > most:
        return (
            f"conflict topic config setting min.compaction.lag.ms ({least}) > max.compaction.lag.ms ({most})"
        )
    if topic_config_value("remote.storage.enable", configs, broker) and not broker.get_bool(
        "remote.log.storage.system.enable"
    ):
        return (
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log "
            "storage."
        )
    return None


def validate_group_configs(configs: Mapping[str, str], broker: BrokerConfig) -> str | None:
    """The error message for a group's configs, or None. Checks the broker's limits for groups too."""
    for name, value in configs.items():
        error = validate(ResourceType.GROUP, name, value)
        if error:
            return error
        kind, _, setting = name.partition(".")
        if setting not in _GROUP_BOUNDS or name not in GROUP_SYNONYMS:
            continue
        low, high = f"group.{kind}.min.{setting}", f"group.{kind}.max.{setting}"
        number = parse_value(name, value, ConfigType.LONG)
        if isinstance(number, int) and number < broker.get_int(low):
            return f"{name} must be greater than or equal to {low}"
        if isinstance(number, int) and number > broker.get_int(high):
            return f"{name} must be less than or equal to {high}"
    return None


def validate_broker_configs(
    configs: Mapping[str, str], broker: BrokerConfig, *, per_broker: bool, altered: Collection[str] = ()
) -> str | None:
    """The error message for the dynamic configs of one broker (`per_broker`) or of all brokers, or None.

    `altered` has the names that the request sets or deletes; if it is empty, all of `configs`.
    """
    names = altered or configs.keys()
    fixed = [name for name in names if _scope(name) is Scope.READ_ONLY]
    if fixed:
        return f"Cannot update these configs dynamically: [{', '.join(fixed)}]"
    security = [name for name in names if name.startswith("ssl.") and _scope(name) is Scope.PER_BROKER]
    if per_broker and security:
        return (
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            f"[{', '.join(security)}]"
        )
    own = [name for name in names if _scope(name) is Scope.PER_BROKER]
    if own and not per_broker:
        return (
            "Cannot update these configs at default cluster level, broker id must be specified: "
            f"[{', '.join(own)}]"
        )
    for name, value in configs.items():
        error = validate(ResourceType.BROKER, name, value)
        if error:
            return error
    try:
        if per_broker:
            broker.with_dynamic(configs, broker.dynamic_default)
        else:
            broker.with_dynamic(broker.dynamic_broker, configs)
    except ConfigError as invalid:
        return invalid.errors[0]
    return None


def _scope(name: str) -> Scope | None:
    """None for unknown names. As in Kafka they are stored and shown, for plug-ins."""
    base = without_listener_prefix(name)
    if base not in BROKER_CONFIGS:
        return None
    return BROKER_CONFIGS[base].scope if base == name else Scope.CLUSTER_WIDE


def _client_metrics_error(name: str, value: str) -> str | None:
    if name == "interval.ms" and not 100 <= int(value) <= 3_600_000:
        return f"Invalid value {value} for interval.ms, interval must be between 100 and 3600000 (1 hour)"
    if name == "match" and value.strip():
        for item in value.split(","):
            if not _is_metrics_match(item.strip()):
                return f"Illegal client matching pattern: {item.strip()}"
    return None


def _is_metrics_match(item: str) -> bool:
    match = _METRICS_MATCH.fullmatch(item)
    if not match:
        return False
    try:
        compile_regex(match[2], "The pattern")
    except KafkaError:
        return False
    return True
