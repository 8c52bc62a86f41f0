"""Configs as DescribeConfigs reports them: the value, its source and its synonyms (KIP-226, KIP-569)."""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from ottla.model.config.broker import BrokerConfig
from ottla.model.config.definition import (
    ConfigDef,
    ConfigSource,
    ConfigType,
    ConfigValue,
    ResourceType,
    Scope,
    format_value,
)
from ottla.model.config.definitions import (
    BROKER_CONFIGS,
    CLIENT_METRICS_CONFIGS,
    DYNAMIC_ONLY,
    GROUP_CONFIGS,
    TOPIC_CONFIGS,
    definition_of,
)
from ottla.model.config.synonyms import GROUP_SYNONYMS, TOPIC_SYNONYMS, broker_synonyms
from ottla.model.config.topic import topic_config_value


class ConfigSynonym(NamedTuple):
    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    name: str
    value: str | None
    read_only: bool
    source: ConfigSource
    is_sensitive: bool
    type: ConfigType
    # In order of precedence. The handler omits them if the request does not ask for them.
    synonyms: tuple[ConfigSynonym, ...]

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT_CONFIG


def describe_topic_configs(
    overrides: Mapping[str, str], broker: BrokerConfig, names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """If `names` is None or empty, all configs are described."""
    entries = []
    for definition in _selected(TOPIC_CONFIGS.values(), overrides, names):
        name = definition.name
        value = format_value(topic_config_value(name, overrides, broker))
        behind = TOPIC_SYNONYMS.get(name)
        synonyms = _synonyms(behind[0][0], broker) if behind else ()
        if name in overrides:
            synonyms = (ConfigSynonym(name, value, ConfigSource.DYNAMIC_TOPIC_CONFIG), *synonyms)
        entries.append(_entry(definition, value, synonyms))
    return entries


def describe_broker_configs(broker: BrokerConfig, names: Collection[str] | None = None) -> list[ConfigEntry]:
    """All configs of this broker, including unknown ones that were set dynamically, whose values are hidden."""
    given = {**broker.static, **broker.dynamic_default, **broker.dynamic_broker}
    known = [definition for definition in BROKER_CONFIGS.values() if definition.name not in DYNAMIC_ONLY]
    listed = {definition.name for definition in known}
    known.extend(_broker_definition(name) for name in given if name not in listed)
    entries = []
    for definition in _selected(known, given, names):
        name = definition.name
        value: ConfigValue = given.get(name)
        if definition.type is not ConfigType.UNKNOWN:
            value = broker[name]
        entries.append(_broker_entry(definition, value, _synonyms(name, broker)))
    return entries


def describe_default_broker_configs(
    broker: BrokerConfig, names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """The dynamic values of all brokers: the broker resource with the empty name."""
    entries = []
    for name, text in broker.dynamic_default.items():
        if names and name not in names:
            continue
        definition = _broker_definition(name)
        synonyms = tuple(
            synonym
            for synonym in _synonyms(name, broker)
            if synonym.source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        )
        entries.append(_broker_entry(definition, text, synonyms))
    return entries


def describe_group_configs(
    overrides: Mapping[str, str], broker: BrokerConfig, names: Collection[str] | None = None
) -> list[ConfigEntry]:
    entries = []
    for definition in _selected(GROUP_CONFIGS.values(), overrides, names):
        name = definition.name
        behind = GROUP_SYNONYMS.get(name)
        synonyms = (
            _synonyms(behind, broker)
            if behind
            else (ConfigSynonym(name, definition.default_text(), ConfigSource.DEFAULT_CONFIG),)
        )
        value = format_value(broker[behind] if behind else definition.default)
        if name in overrides:
            value = _normalized(definition, overrides[name])
            synonyms = (ConfigSynonym(name, value, ConfigSource.DYNAMIC_GROUP_CONFIG), *synonyms)
        entries.append(_entry(definition, value, synonyms))
    return entries


def describe_client_metrics_configs(
    overrides: Mapping[str, str], names: Collection[str] | None = None
) -> list[ConfigEntry]:
    entries = []
    for definition in _selected(CLIENT_METRICS_CONFIGS.values(), overrides, names):
        value = definition.default_text()
        synonyms: tuple[ConfigSynonym, ...] = ()
        if definition.name in overrides:
            value = _normalized(definition, overrides[definition.name])
            source = ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG
            synonyms = (ConfigSynonym(definition.name, value, source),)
        entries.append(_entry(definition, value, synonyms))
    return entries


def _normalized(definition: ConfigDef, text: str) -> str | None:
    """The text as Kafka writes the value: without spaces and duplicates."""
    try:
        return format_value(definition.parse(text))
    except ValueError:
        return text


def _selected(
    definitions: Iterable[ConfigDef], given: Mapping[str, str], names: Collection[str] | None
) -> Iterable[ConfigDef]:
    for definition in definitions:
        if (not names or definition.name in names) and (not definition.internal or definition.name in given):
            yield definition


def _broker_definition(name: str) -> ConfigDef:
    known = definition_of(ResourceType.BROKER, name)
    if known is None:
        return ConfigDef(name, ConfigType.UNKNOWN, None)
    # As Kafka: a listener's config is shown as read-only, though it can be set dynamically.
    return known if known.name == name else known._replace(name=name, scope=Scope.READ_ONLY)


def _broker_entry(
    definition: ConfigDef, value: ConfigValue, synonyms: tuple[ConfigSynonym, ...]
) -> ConfigEntry:
    read_only = definition.scope is Scope.READ_ONLY
    return _entry(definition, format_value(value), synonyms)._replace(read_only=read_only)


def _entry(definition: ConfigDef, value: str | None, synonyms: tuple[ConfigSynonym, ...]) -> ConfigEntry:
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG
    hidden = _is_hidden(definition)
    return ConfigEntry(
        definition.name, None if hidden else value, False, source, hidden, definition.type, synonyms
    )


def _is_hidden(definition: ConfigDef) -> bool:
    """An unknown config may be the password of a plug-in."""
    return definition.sensitive or definition.type is ConfigType.UNKNOWN


def _synonyms(name: str, broker: BrokerConfig) -> tuple[ConfigSynonym, ...]:
    """All values of `name` and its synonyms, in order of precedence, the default last."""
    names = broker_synonyms(name)
    hidden = _is_hidden(_broker_definition(name))
    found: list[ConfigSynonym] = []
    for values, source in (
        (broker.dynamic_broker, ConfigSource.DYNAMIC_BROKER_CONFIG),
        (broker.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        (broker.static, ConfigSource.STATIC_BROKER_CONFIG),
    ):
        found.extend(ConfigSynonym(n, None if hidden else values[n], source) for n in names if n in values)
    for n in names:
        definition = BROKER_CONFIGS.get(n)
        default = definition.default_text() if definition else None
        if default is not None and n not in DYNAMIC_ONLY:
            found.append(ConfigSynonym(n, None if hidden else default, ConfigSource.DEFAULT_CONFIG))
    # As Kafka: entries before the first entry of `name` itself are no synonyms of it.
    start = next((index for index, synonym in enumerate(found) if synonym.name == name), len(found))
    return tuple(found[start:])
