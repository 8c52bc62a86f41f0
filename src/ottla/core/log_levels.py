"""Decides changes of the broker's log levels, which clients make as configs of the resource BROKER_LOGGER (KIP-412).

The names of the levels are those of log4j. A level belongs to one process and is gone when it ends, as in Kafka.
"""

from collections.abc import Collection, Iterable, Mapping

from ottla.core.controller.commands import ConfigChange, ConfigOp
from ottla.model.errors import ErrorCode, KafkaError

ROOT_LOGGER = "root"
LEVELS: Mapping[str, int] = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40, "FATAL": 50}
_INHERITED = 0


def level_name(level: int) -> str:
    """The name of the first of log4j's levels that is not below `level`."""
    return next((name for name, known in LEVELS.items() if known >= level), "FATAL")


def decide_log_levels(known: Collection[str], changes: Iterable[ConfigChange]) -> dict[str, int]:
    """The new levels by logger; 0 is that of the parent. Raises KafkaError, and then no level may change."""
    levels: dict[str, int] = {}
    for name, op, value in changes:
        if name in levels:
            raise KafkaError(ErrorCode.invalid_request, "Error due to duplicate config keys")
        levels[name] = _level(known, name, op, value)
    return levels


def _level(known: Collection[str], name: str, op: int, value: str | None) -> int:
    if op not in (ConfigOp.SET, ConfigOp.DELETE):
        operation = ConfigOp(op).name if op in (ConfigOp.APPEND, ConfigOp.SUBTRACT) else f"unknown ({op})"
        raise KafkaError(
            ErrorCode.invalid_request,
            f"The operation {operation} is not allowed for a logger. Use SET or DELETE.",
        )
    if name not in known:
        raise KafkaError(
            ErrorCode.invalid_config, f"Logger {name} does not exist! The loggers are {', '.join(known)}."
        )
    if op == ConfigOp.DELETE:
        if name == ROOT_LOGGER:
            raise KafkaError(
                ErrorCode.invalid_request,
                f"Removing the log level of the {ROOT_LOGGER} logger is not allowed. Set another level.",
            )
        return _INHERITED
    if value is None or value not in LEVELS:
        raise KafkaError(
            ErrorCode.invalid_config,
            f"Cannot set the log level of {name} to {value} as it is not a supported log level. "
            f"Valid log levels are {', '.join(LEVELS)}",
        )
    return LEVELS[value]
