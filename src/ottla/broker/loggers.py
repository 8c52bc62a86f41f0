"""The loggers of this process, whose levels clients read and change (KIP-412)."""

import logging
from collections.abc import Collection, Iterable

from ottla.core.controller.commands import NO_ERROR, ApiError, ConfigChange
from ottla.core.log_levels import ROOT_LOGGER, decide_log_levels, level_name
from ottla.model.config import ConfigEntry, ConfigSource, ConfigType
from ottla.model.errors import ErrorCode, KafkaError

# Modules are loaded when they are needed, so not every logger exists from the start. A test compares with the source.
LOGGERS = (
    ROOT_LOGGER,
    "ottla.broker",
    "ottla.cleaner",
    "ottla.controller",
    "ottla.coordinator",
    "ottla.housekeeping",
    "ottla.loop",
    "ottla.metrics",
    "ottla.network",
    "ottla.partition",
    "ottla.quorum",
    "ottla.replication",
    "ottla.requests",
    "ottla.storage",
    "ottla.telemetry",
    "ottla.transactions",
)


def check_node(node_id: int, name: str) -> None:
    if name != str(node_id):
        raise KafkaError(
            ErrorCode.invalid_request, f"Unexpected broker id, expected {node_id} but received {name!r}"
        )


def describe_loggers(names: Collection[str] | None) -> list[ConfigEntry]:
    """If `names` is None or empty, all loggers are described."""
    return [
        ConfigEntry(
            name,
            level_name(_logger(name).getEffectiveLevel()),
            read_only=False,
            source=ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
            is_sensitive=False,
            type=ConfigType.STRING,
            synonyms=(),
        )
        for name in LOGGERS
        if not names or name in names
    ]


def alter_loggers(
    node_id: int, name: str, changes: Iterable[ConfigChange], *, validate_only: bool
) -> ApiError:
    try:
        check_node(node_id, name)
        levels = decide_log_levels(LOGGERS, changes)
    except KafkaError as error:
        return ApiError(error.code, error.message)
    if not validate_only:
        for logger, level in levels.items():
            _logger(logger).setLevel(level)
    return NO_ERROR


def _logger(name: str) -> logging.Logger:
    return logging.getLogger("ottla" if name == ROOT_LOGGER else name)
