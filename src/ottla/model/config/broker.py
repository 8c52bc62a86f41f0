"""The configuration of a broker: its file and command line, dynamic values of the cluster, and Kafka's defaults."""

from collections.abc import Iterable, Iterator, Mapping
from typing import cast

from ottla.model.config.checks import conflict_errors
from ottla.model.config.cordoned import CORDONED_LOG_DIRS, cordoned_paths
from ottla.model.config.definition import ConfigDef, ConfigType, ConfigValue, ResourceType
from ottla.model.config.definitions import (
    BROKER_CONFIGS,
    DYNAMIC_ONLY,
    definition_of,
    without_listener_prefix,
)
from ottla.model.config.listeners import Endpoint, parse_endpoints, parse_protocol_map
from ottla.model.config.properties import parse_properties
from ottla.model.config.unsupported import rejection_error, unsupported_config

# Configs of plug-ins: any name is accepted.
_PLUGIN_PREFIXES = ("config.providers.", "rsm.config.", "rlmm.config.")


class ConfigError(ValueError):
    """An invalid configuration, with all its errors."""

    def __init__(self, errors: Iterable[str]) -> None:
        self.errors = tuple(errors)
        super().__init__("\n".join(self.errors))


class BrokerConfig:
    """Effective values by name, `config["log.segment.bytes"]`, or typed with the `get_` methods.

    A value comes from the first of: the dynamic value of this broker, the dynamic value of all brokers, the properties
    with which the broker was started, the default.
    """

    def __init__(self, properties: Mapping[str, str] | None = None) -> None:
        """Raises ConfigError if a name is unknown, a value is invalid or two values conflict."""
        self.static: Mapping[str, str] = _with_node_id(properties or {})
        self.dynamic_broker: Mapping[str, str] = {}
        self.dynamic_default: Mapping[str, str] = {}
        values, errors = _parse_all(self.static)
        self._values: Mapping[str, ConfigValue] = values
        if errors or (errors := [*conflict_errors(self), *self._cordoned_errors()]):
            raise ConfigError(errors)

    def _cordoned_errors(self) -> Iterator[str]:
        """Not of dynamic values: a controller checks those of brokers whose log.dirs it does not know."""
        if "broker" in self.get_list("process.roles"):
            try:
                cordoned_paths(self.get_list(CORDONED_LOG_DIRS), self.log_dirs)
            except ValueError as error:
                yield str(error)

    @classmethod
    def load(cls, file_text: str = "", overrides: Mapping[str, str] | None = None) -> "BrokerConfig":
        """From the text of a server.properties and properties that override it."""
        try:
            properties = parse_properties(file_text)
        except ValueError as error:
            raise ConfigError([str(error)]) from None
        return cls({**properties, **(overrides or {})})

    def apply_dynamic(self, broker: Mapping[str, str], default: Mapping[str, str]) -> frozenset[str]:
        """Sets the dynamic values of this broker and of all brokers; returns the names whose value changed.

        Raises ConfigError if a value is invalid. The configuration is unchanged then.
        """
        changed = self.with_dynamic(broker, default)
        names = {name for name in changed._values.keys() | self._values.keys() if changed[name] != self[name]}
        self._values = changed._values
        self.dynamic_broker, self.dynamic_default = changed.dynamic_broker, changed.dynamic_default
        return frozenset(names)

    def with_dynamic(self, broker: Mapping[str, str], default: Mapping[str, str]) -> "BrokerConfig":
        """A copy of this configuration with these dynamic values. Raises ConfigError like the constructor."""
        result = BrokerConfig.__new__(BrokerConfig)
        result.static, result.dynamic_broker, result.dynamic_default = (
            self.static,
            dict(broker),
            dict(default),
        )
        values, errors = _parse_all({**self.static, **default, **broker}, known_only=True)
        result._values = values
        if errors or (errors := conflict_errors(result)):
            raise ConfigError(errors)
        return result

    def __getitem__(self, name: str) -> ConfigValue:
        """Raises KeyError for an unknown name. A listener's config falls back to the broker's."""
        if name in self._values:
            return self._values[name]
        if name in BROKER_CONFIGS:
            return BROKER_CONFIGS[name].default
        base = without_listener_prefix(name)
        if base == name:
            raise KeyError(name)
        return self[base]

    def get_int(self, name: str) -> int:
        value = self[name]
        if not isinstance(value, int):
            raise TypeError(f"{name} is not a number: {value!r}")
        return value

    def get_float(self, name: str) -> float:
        return cast(float, self[name])

    def get_bool(self, name: str) -> bool:
        return cast(bool, self[name])

    def get_str(self, name: str) -> str:
        """Empty if it is not set."""
        return cast(str, self[name]) or ""

    def get_list(self, name: str) -> tuple[str, ...]:
        """Empty if it is not set."""
        return cast(tuple[str, ...], self[name]) or ()

    def is_set(self, name: str) -> bool:
        """Whether the file, the command line or the cluster sets it."""
        return name in self._values

    @property
    def node_id(self) -> int:
        return self.get_int("node.id")

    @property
    def log_dirs(self) -> tuple[str, ...]:
        return self.get_list("log.dirs") or self.get_list("log.dir")

    @property
    def metadata_log_dir(self) -> str:
        return self.get_str("metadata.log.dir") or self.log_dirs[0]

    @property
    def listener_protocols(self) -> dict[str, str]:
        name = "listener.security.protocol.map"
        controllers = [listener.upper() for listener in self.get_list("controller.listener.names")]
        return parse_protocol_map(self.get_str(name), controllers, is_default=not self.is_set(name))

    @property
    def listeners(self) -> list[Endpoint]:
        return parse_endpoints("listeners", self.get_list("listeners"), self.listener_protocols)

    @property
    def broker_listeners(self) -> list[Endpoint]:
        """The listeners that serve clients and other brokers."""
        return [endpoint for endpoint in self.listeners if not self._is_controller(endpoint)]

    @property
    def controller_listeners(self) -> list[Endpoint]:
        """The listeners of the controller. Empty if a single node sets none."""
        return [endpoint for endpoint in self.listeners if self._is_controller(endpoint)]

    @property
    def advertised_listeners(self) -> list[Endpoint]:
        """If it is empty, each client gets the address that it connected to."""
        name = "advertised.listeners"
        return parse_endpoints(name, self.get_list(name), self.listener_protocols)

    def _is_controller(self, endpoint: Endpoint) -> bool:
        return endpoint.name in {name.upper() for name in self.get_list("controller.listener.names")}


def _with_node_id(properties: Mapping[str, str]) -> dict[str, str]:
    """`broker.id` is the older name of `node.id`: sets both if one is given."""
    result = dict(properties)
    if "node.id" in result:
        result.setdefault("broker.id", result["node.id"])
    elif "broker.id" in result:
        result["node.id"] = result["broker.id"]
    return result


def _parse_all(
    properties: Mapping[str, str], *, known_only: bool = False
) -> tuple[dict[str, ConfigValue], list[str]]:
    values: dict[str, ConfigValue] = {}
    errors = []
    for name, text in properties.items():
        definition = definition_of(ResourceType.BROKER, name)
        if definition is None or (name in DYNAMIC_ONLY and not known_only):
            if not known_only and not name.startswith(_PLUGIN_PREFIXES):
                errors.append(_unknown(name, text))
            continue
        try:
            values[name] = definition._replace(name=name).parse(text)
        except ValueError as error:
            errors.append(f"{error}{_allowed(definition)}")
    return values, errors


def _allowed(definition: ConfigDef) -> str:
    allowed = definition.valid.allowed() if definition.valid is not None else ""
    if definition.type is ConfigType.BOOLEAN:
        allowed = "[true, false]"
    default = definition.default_text()
    parts = [f"allowed: {definition.type.name} {allowed}".rstrip(), f"default: {default}" if default else ""]
    return f" ({'; '.join(filter(None, parts))})"


def _unknown(name: str, value: str) -> str:
    if name in DYNAMIC_ONLY:
        return f"Configuration {name}={value} can only be set dynamically: use ottla configs set"
    unsupported = unsupported_config(ResourceType.BROKER, name)
    if unsupported is not None:
        return rejection_error(name, unsupported)
    from difflib import get_close_matches  # slow to import, and rarely needed

    close = get_close_matches(name, BROKER_CONFIGS, n=3, cutoff=0.75)
    hint = f"; did you mean {' or '.join(close)}?" if close else "; the known names are in docs/configs.md"
    return f"Unknown configuration {name}={value}{hint}"
