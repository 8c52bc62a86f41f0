"""Kafka's configs: definitions, parsing, effective values and where they come from, validation.

What the rest of Ottla uses is listed here; the texts of the documentation are imported only when asked for.
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
from ottla.model.config.marks import Mark, mark_of, refusals
from ottla.model.config.not_built import not_built, not_built_dynamically
from ottla.model.config.properties import parse_properties
from ottla.model.config.topic import topic_config, topic_config_value
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
    "Mark",
    "ResourceType",
    "Scope",
    "definition_of",
    "describe_broker_configs",
    "describe_client_metrics_configs",
    "describe_default_broker_configs",
    "describe_group_configs",
    "describe_topic_configs",
    "documentation_of",
    "is_list",
    "mark_of",
    "not_built",
    "not_built_dynamically",
    "parse_properties",
    "refusals",
    "topic_config",
    "topic_config_value",
    "validate",
    "validate_broker_configs",
    "validate_group_configs",
    "validate_topic_configs",
]
