"""Broker configs of replication: fetchers, in-sync replicas, leader election."""

from ottla.model.config.definition import (
    BOOLEAN,
    CLUSTER_WIDE,
    INT,
    LONG,
    STRING,
    ConfigDef,
)
from ottla.model.config.validators import (
    AtLeast,
)

CONFIGS = (
    ConfigDef("alter.log.dirs.replication.quota.window.num", INT, 11, AtLeast(1)),
    ConfigDef("alter.log.dirs.replication.quota.window.size.seconds", INT, 1, AtLeast(1)),
    ConfigDef("auto.leader.rebalance.enable", BOOLEAN, True),
    ConfigDef("controlled.shutdown.enable", BOOLEAN, True),
    ConfigDef("default.replication.factor", INT, 1),
    ConfigDef("leader.imbalance.check.interval.seconds", LONG, 300, AtLeast(1)),
    ConfigDef("min.insync.replicas", INT, 1, AtLeast(1), CLUSTER_WIDE),
    ConfigDef("num.replica.alter.log.dirs.threads", INT, None),
    ConfigDef("num.replica.fetchers", INT, 1, AtLeast(1), CLUSTER_WIDE),
    ConfigDef("replica.fetch.backoff.ms", INT, 1000, AtLeast(0)),
    ConfigDef("replica.fetch.max.bytes", INT, 1_048_576, AtLeast(0)),
    ConfigDef("replica.fetch.min.bytes", INT, 1),
    ConfigDef("replica.fetch.response.max.bytes", INT, 10_485_760, AtLeast(0)),
    ConfigDef("replica.fetch.wait.max.ms", INT, 500),
    ConfigDef("replica.high.watermark.checkpoint.interval.ms", LONG, 5000),
    ConfigDef("replica.lag.time.max.ms", LONG, 30000),
    ConfigDef("replica.selector.class", STRING, None),
    ConfigDef("replica.socket.receive.buffer.bytes", INT, 65536),
    ConfigDef("replica.socket.timeout.ms", INT, 30000),
    ConfigDef("replication.quota.window.num", INT, 11, AtLeast(1)),
    ConfigDef("replication.quota.window.size.seconds", INT, 1, AtLeast(1)),
    ConfigDef("unclean.leader.election.enable", BOOLEAN, False, scope=CLUSTER_WIDE),
    ConfigDef("unclean.leader.election.interval.ms", LONG, 300_000, AtLeast(1), internal=True),
)
