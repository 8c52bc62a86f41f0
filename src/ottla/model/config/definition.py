"""The definition of a config: its name, type, default, allowed values and update mode.

A value has two forms: the text in files, requests and metadata records, and the Python value that code uses.
`parse_value` and `format_value` convert between them exactly as Kafka does.
"""

import re
from enum import Enum, IntEnum
from typing import NamedTuple, Protocol

ConfigValue = bool | int | float | str | tuple[str, ...] | None

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


class ConfigType(IntEnum):
    """With the numbers of DescribeConfigs (KIP-569)."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """Where a value comes from, with the numbers of DescribeConfigs (KIP-226)."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class ResourceType(IntEnum):
    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Scope(Enum):
    """For which brokers a config can be changed while they run; the value is Kafka's name of the update mode."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


BOOLEAN, STRING, INT, SHORT = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.SHORT
LONG, DOUBLE, LIST = ConfigType.LONG, ConfigType.DOUBLE, ConfigType.LIST
CLASS, PASSWORD = ConfigType.CLASS, ConfigType.PASSWORD
READ_ONLY, PER_BROKER, CLUSTER_WIDE = Scope.READ_ONLY, Scope.PER_BROKER, Scope.CLUSTER_WIDE


class Validator(Protocol):
    def error(self, name: str, value: ConfigValue) -> str | None:
        """The error message for `value`, or None if it is valid."""
        ...

    def allowed(self) -> str:
        """The allowed values, for the documentation."""
        ...


class ConfigDef(NamedTuple):
    name: str
    type: ConfigType
    default: ConfigValue
    valid: Validator | None = None
    scope: Scope = READ_ONLY
    # Kafka does not document these, and DescribeConfigs shows them only if they are set.
    internal: bool = False

    @property
    def sensitive(self) -> bool:
        return self.type is PASSWORD

    def parse(self, text: str | None) -> ConfigValue:
        """The Python value of `text`. Raises ValueError with Kafka's message if it is invalid."""
        value = parse_value(self.name, text, self.type)
        if isinstance(value, tuple):
            # KIP-1161: duplicates in a list are removed.
            value = tuple(dict.fromkeys(value))
        error = self.valid.error(self.name, value) if self.valid is not None else None
        if error:
            raise ValueError(error)
        return value

    def default_text(self) -> str | None:
        return format_value(self.default)


_INTEGER = re.compile(r"[+-]?[0-9]+\Z")
# Values come from clients: a pattern must not match a text in two ways, which would take quadratic time.
_DOUBLE = re.compile(r"[+-]?(NaN|Infinity|(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?)[fFdD]?\Z", re.ASCII)
_NUMBER_LENGTH_MAX = 400  # a double has at most about 330 digits before the point
_BITS = {SHORT: 16, INT: 32, LONG: 64}


def parse_value(name: str, text: str | None, type_: ConfigType) -> ConfigValue:
    """Raises ValueError if `text` is not of the type. The validator checks whether the value is allowed."""
    if text is None:
        return None
    trimmed = text.strip()
    if type_ in _BITS:
        return _parse_integer(name, trimmed, type_)
    if type_ is BOOLEAN:
        if trimmed.lower() not in ("true", "false"):
            raise ValueError(invalid_value(name, text, "Expected value to be either true or false"))
        return trimmed.lower() == "true"
    if type_ is DOUBLE:
        if len(trimmed) > _NUMBER_LENGTH_MAX or not _DOUBLE.match(trimmed):
            raise ValueError(invalid_value(name, trimmed, "Not a number of type DOUBLE"))
        return float(trimmed.rstrip("fFdD") if trimmed[-1] in "fFdD" else trimmed)
    if type_ is LIST:
        return tuple(item.strip() for item in trimmed.split(",")) if trimmed else ()
    return text if type_ is PASSWORD else trimmed


def _parse_integer(name: str, text: str, type_: ConfigType) -> int:
    if len(text) <= _NUMBER_LENGTH_MAX and _INTEGER.match(text):
        value = int(text)
        limit = 1 << (_BITS[type_] - 1)
        if -limit <= value < limit:
            return value
    raise ValueError(invalid_value(name, text, f"Not a number of type {type_.name}"))


def format_value(value: ConfigValue) -> str | None:
    """The text of a value, as Kafka prints it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return _format_double(value)
    return str(value)


def _format_double(value: float) -> str:
    """Java writes 1.0E7 where Python writes 10000000.0 or 1e+16."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    text = repr(abs(value))
    sign = "-" if str(value).startswith("-") else ""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return sign + text
    mantissa, _, exponent = text.partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    power = int(exponent or 0) + (len(whole) if whole != "0" else len(digits) - len(fraction)) - 1
    digits = digits.rstrip("0")
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{power}"


def invalid_value(name: str, value: object, reason: str) -> str:
    return f"Invalid value {value} for configuration {name}: {reason}"
