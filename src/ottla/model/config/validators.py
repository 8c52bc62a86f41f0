"""Validators of config values. The messages are Kafka's, for tools that parse them."""

import re
from typing import NamedTuple

from ottla.model.config.definition import ConfigValue, format_value, invalid_value


class AtLeast(NamedTuple):
    least: int

    def error(self, name: str, value: ConfigValue) -> str | None:
        return _out_of_range(name, value, self.least, None)

    def allowed(self) -> str:
        return f"[{self.least},...]"


class Between(NamedTuple):
    least: float
    most: float

    def error(self, name: str, value: ConfigValue) -> str | None:
        return _out_of_range(name, value, self.least, self.most)

    def allowed(self) -> str:
        return f"[{self.least},...,{self.most}]"


def _out_of_range(name: str, value: ConfigValue, least: float, most: float | None) -> str | None:
    if not isinstance(value, int | float):
        return invalid_value(name, "null", "Value must be non-null")
    if value < least:
        return invalid_value(name, format_value(value), f"Value must be at least {least}")
    if most is not None and value > most:
        return invalid_value(name, format_value(value), f"Value must be no more than {most}")
    return None


class GzipLevel(NamedTuple):
    def error(self, name: str, value: ConfigValue) -> str | None:
        if isinstance(value, int) and (value == -1 or 1 <= value <= 9):
            return None
        return invalid_value(name, format_value(value), "Value must be between 1 and 9 or equal to -1")

    def allowed(self) -> str:
        return "[1,...,9] or -1"


class OneOf(NamedTuple):
    values: tuple[str, ...]
    ignore_case: bool = False

    def error(self, name: str, value: ConfigValue) -> str | None:
        if value in self.values or (
            self.ignore_case and isinstance(value, str) and value.upper() in self.values
        ):
            return None
        hint = " (case insensitive)" if self.ignore_case else ""
        text = "null" if value is None else value
        return invalid_value(name, text, f"String must be one of{hint}: {', '.join(self.values)}")

    def allowed(self) -> str:
        return f"[{', '.join(self.values)}]" + (" (case insensitive)" if self.ignore_case else "")


class ListOf(NamedTuple):
    """A list without empty items. If `values` is empty, any item is allowed."""

    values: tuple[str, ...] = ()
    may_be_empty: bool = True
    may_be_null: bool = False

    def error(self, name: str, value: ConfigValue) -> str | None:
        if value is None:
            return None if self.may_be_null else f"Configuration '{name}' values must not be null."
        if not isinstance(value, tuple):
            return invalid_value(name, value, "Not a list")
        if not value and not self.may_be_empty:
            valid = f"[{', '.join(self.values)}]" if self.values else "any non-empty value"
            return f"Configuration '{name}' must not be empty. Valid values include: {valid}"
        for item in value:
            if not item:
                return f"Configuration '{name}' values must not be empty."
            if self.values and item not in self.values:
                return invalid_value(name, item, f"String must be one of: {', '.join(self.values)}")
        return None

    def allowed(self) -> str:
        return f"a list of [{', '.join(self.values)}]" if self.values else "a list"


class NotEmpty(NamedTuple):
    def error(self, name: str, value: ConfigValue) -> str | None:
        return invalid_value(name, "", "String must be non-empty") if value == "" else None

    def allowed(self) -> str:
        return "a non-empty string"


class NotNull(NamedTuple):
    def error(self, name: str, value: ConfigValue) -> str | None:
        return invalid_value(name, "null", "entry must be non null") if value is None else None

    def allowed(self) -> str:
        return ""


class Matching(NamedTuple):
    """A string, or a list of strings, that match `pattern`. `form` is for the documentation, `sentence` the message."""

    pattern: str
    form: str
    sentence: str

    def error(self, name: str, value: ConfigValue) -> str | None:
        items = value if isinstance(value, tuple) else (str(value),)
        bad = [item for item in items if not re.fullmatch(self.pattern, item)]
        if not bad:
            return None
        shown = f"[{', '.join(items)}]" if isinstance(value, tuple) else value
        return self.sentence.format(name=name, value=shown, item=bad[0])

    def allowed(self) -> str:
        return self.form


THROTTLED_REPLICAS = Matching(
    r"\*|\d+:\d+",
    "* or [partitionId]:[brokerId],[partitionId]:[brokerId],...",
    "Invalid value {value} for configuration {name}: {name} must be the literal '*' or a list of replicas in the "
    "following format: [partitionId]:[brokerId],[partitionId]:[brokerId],...",
)
QUORUM_VOTERS = Matching(
    r"\d+@\[?[^@\[\]]+\]?:\d+",
    "{id}@{host}:{port},...",
    "Invalid configuration value for {name}. Each entry should be in the form `{{id}}@{{host}}:{{port}}`.",
)
BOOTSTRAP_SERVERS = Matching(
    r"\[?[^@\[\]]+\]?:\d+",
    "{host}:{port},...",
    "Failed to parse host name from {item} for the configuration {name}. Each entry should be in the form "
    '"{{host}}:{{port}}"',
)
AUTO_OFFSET_RESET = Matching(
    r"earliest|latest|by_duration:P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?",
    "latest, earliest or by_duration:PnDTnHnMn.nS",
    "Invalid value {value} for configuration {name}: Invalid value `{value}` for configuration {name}. The value must "
    "be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'.",
)
