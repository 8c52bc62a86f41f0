"""Configs that a single group may override (KIP-848, KIP-932, KIP-1071)."""

from ottla.model.config.definition import (
    BOOLEAN,
    INT,
    STRING,
    ConfigDef,
)
from ottla.model.config.validators import (
    AUTO_OFFSET_RESET,
    AtLeast,
    OneOf,
)

CONFIGS = (
    ConfigDef("consumer.assignment.interval.ms", INT, 1000, AtLeast(0)),
    ConfigDef("consumer.heartbeat.interval.ms", INT, 5000, AtLeast(1)),
    ConfigDef("consumer.session.timeout.ms", INT, 45000, AtLeast(1)),
    ConfigDef("share.assignment.interval.ms", INT, 1000, AtLeast(0)),
    ConfigDef("share.auto.offset.reset", STRING, "latest", AUTO_OFFSET_RESET),
    ConfigDef("share.delivery.count.limit", INT, 5, AtLeast(2)),
    ConfigDef("share.heartbeat.interval.ms", INT, 5000, AtLeast(1)),
    ConfigDef(
        "share.isolation.level", STRING, "read_uncommitted", OneOf(("read_committed", "read_uncommitted"))
    ),
    ConfigDef("share.partition.max.record.locks", INT, 2000, AtLeast(100)),
    ConfigDef("share.record.lock.duration.ms", INT, 30000, AtLeast(1000)),
    ConfigDef("share.renew.acknowledge.enable", BOOLEAN, True),
    ConfigDef("share.session.timeout.ms", INT, 45000, AtLeast(1)),
    ConfigDef("streams.assignment.interval.ms", INT, 1000, AtLeast(0)),
    ConfigDef("streams.heartbeat.interval.ms", INT, 5000, AtLeast(1)),
    ConfigDef("streams.initial.rebalance.delay.ms", INT, 3000, AtLeast(0)),
    ConfigDef("streams.num.standby.replicas", INT, 0, AtLeast(0)),
    ConfigDef("streams.session.timeout.ms", INT, 45000, AtLeast(1)),
)
