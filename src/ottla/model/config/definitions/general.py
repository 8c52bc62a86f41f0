"""Broker configs that belong to no other area: topic administration, metrics, quotas, plug-ins."""

from ottla.model.config.definition import (
    BOOLEAN,
    CLASS,
    CLUSTER_WIDE,
    INT,
    LIST,
    LONG,
    STRING,
    ConfigDef,
)
from ottla.model.config.validators import (
    AtLeast,
    ListOf,
)

CONFIGS = (
    ConfigDef("alter.config.policy.class.name", CLASS, None),
    ConfigDef("auto.create.topics.enable", BOOLEAN, True),
    ConfigDef("client.quota.callback.class", CLASS, None),
    ConfigDef("config.providers", LIST, (), ListOf(), CLUSTER_WIDE),
    ConfigDef("create.topic.policy.class.name", CLASS, None),
    ConfigDef("delete.topic.enable", BOOLEAN, True),
    ConfigDef("kafka.metrics.polling.interval.secs", INT, 10, AtLeast(1)),
    ConfigDef("kafka.metrics.reporters", LIST, (), ListOf()),
    ConfigDef(
        "metric.reporters", LIST, ("org.apache.kafka.common.metrics.JmxReporter",), ListOf(), CLUSTER_WIDE
    ),
    ConfigDef("metrics.num.samples", INT, 2, AtLeast(1)),
    ConfigDef("metrics.recording.level", STRING, "INFO"),
    ConfigDef("metrics.sample.window.ms", LONG, 30000, AtLeast(1)),
    ConfigDef("quota.window.num", INT, 11, AtLeast(1)),
    ConfigDef("quota.window.size.seconds", INT, 1, AtLeast(1)),
    ConfigDef("telemetry.max.bytes", INT, 1_048_576, AtLeast(1)),
)
