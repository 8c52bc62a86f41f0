"""The effective configs of a topic: its overrides, and the broker's defaults for the rest."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.model.config.definition import ConfigValue
from ottla.model.config.definitions import TOPIC_CONFIGS
from ottla.model.config.synonyms import TOPIC_SYNONYMS

if TYPE_CHECKING:
    from ottla.model.config.broker import BrokerConfig


def topic_config_value(name: str, overrides: Mapping[str, str], broker: "BrokerConfig") -> ConfigValue:
    """Raises KeyError if there is no such topic config."""
    definition = TOPIC_CONFIGS[name]
    if name in overrides:
        try:
            return definition.parse(overrides[name])
        except ValueError:
            # An invalid value is rejected when it is set, but another version may have stored it. Use the default.
            pass
    return topic_default(name, broker)


def topic_config(overrides: Mapping[str, str], broker: "BrokerConfig") -> dict[str, ConfigValue]:
    """All of a topic's configs by name."""
    return {name: topic_config_value(name, overrides, broker) for name in TOPIC_CONFIGS}


def topic_default(name: str, broker: "BrokerConfig") -> ConfigValue:
    """The broker's default for topics that do not set `name`."""
    for synonym, factor in TOPIC_SYNONYMS.get(name, ()):
        value = broker[synonym]
        if value is None:
            continue
        if name == "retention.ms" and isinstance(value, int):
            return value * factor if value >= 0 else -1
        return value if factor == 1 or not isinstance(value, int) else value * factor
    return TOPIC_CONFIGS[name].default
