"""Ottla's own configs. Their prefix `ottla.` keeps them apart from Kafka's."""

from ottla.model.config.definition import BOOLEAN, CLUSTER_WIDE, INT, STRING, ConfigDef
from ottla.model.config.validators import AtLeast, OneOf

_RECORD_VALIDATION = OneOf(("quick", "full"))

CONFIGS = (
    ConfigDef("ottla.log.format", STRING, "text", OneOf(("text", "json"))),
    ConfigDef("ottla.log.level", STRING, "info", OneOf(("debug", "info", "warning", "error"))),
    ConfigDef("ottla.loop.turn.warn.ms", INT, 100, AtLeast(0)),
    ConfigDef("ottla.metrics.address", STRING, ""),
    ConfigDef("ottla.metrics.remote", BOOLEAN, False),
    ConfigDef("ottla.record.validation", STRING, "quick", _RECORD_VALIDATION, CLUSTER_WIDE),
    ConfigDef("ottla.telemetry.otlp.url", STRING, ""),
)
TOPIC_CONFIGS = (ConfigDef("ottla.record.validation", STRING, "quick", _RECORD_VALIDATION),)
