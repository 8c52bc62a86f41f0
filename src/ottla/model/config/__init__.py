"""Kafka's configs: definitions, parsing, effective values and their sources, validation.

`__all__` is the public interface. The descriptions of the configs are imported only when they are needed.
"""

from ottla.model.config.broker import BrokerConfig, ConfigError
from ottla.model.config.definition import (
    ConfigDef,
    ConfigSource,
    ConfigType,
    ConfigValue,
    ResourceType,
    Scope,
)
from ottla.model.config.definitions import definition_of, is_list
from ottla.model.config.describe import (
    ConfigEntry,
    ConfigSynonym,
    describe_broker_configs,
    describe_client_metrics_configs,
    describe_default_broker_configs,
    describe_group_configs,
    describe_topic_configs,
)
from ottla.model.config.documentation import documentation_of
from ottla.model.config.listeners import Endpoint
from ottla.model.config.metrics_address import takes_client_metrics
from ottla.model.config.properties import parse_properties
from ottla.model.config.topic import topic_config, topic_config_value
from ottla.model.config.unsupported import (
    Unsupported,
    rejection_errors,
    unsupported_change_error,
    unsupported_config,
    unsupported_errors,
)
from ottla.model.config.validate import (
    validate,
    validate_broker_configs,
    validate_group_configs,
    validate_topic_configs,
)

__all__ = [
    "BrokerConfig",
    "ConfigDef",
    "ConfigEntry",
    "ConfigError",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
    "ConfigValue",
    "Endpoint",
    "ResourceType",
    "Scope",
    "Unsupported",
    "definition_of",
    "describe_broker_configs",
    "describe_client_metrics_configs",
    "describe_default_broker_configs",
    "describe_group_configs",
    "describe_topic_configs",
    "documentation_of",
    "is_list",
    "parse_properties",
    "rejection_errors",
    "takes_client_metrics",
    "topic_config",
    "topic_config_value",
    "unsupported_change_error",
    "unsupported_config",
    "unsupported_errors",
    "validate",
    "validate_broker_configs",
    "validate_group_configs",
    "validate_topic_configs",
]
