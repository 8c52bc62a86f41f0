"""Configs of a client-metrics subscription (KIP-714)."""

from ottla.model.config.definition import (
    INT,
    LIST,
    ConfigDef,
)
from ottla.model.config.validators import (
    ListOf,
)

CONFIGS = (
    ConfigDef("interval.ms", INT, 300_000),
    ConfigDef("match", LIST, (), ListOf()),
    ConfigDef("metrics", LIST, (), ListOf()),
)
