"""Broker configs of listeners, connections and the request path."""

from ottla.model.config.definition import (
    CLUSTER_WIDE,
    INT,
    INT_MAX,
    LIST,
    LONG,
    PER_BROKER,
    STRING,
    ConfigDef,
)
from ottla.model.config.validators import (
    AtLeast,
    ListOf,
)

CONFIGS = (
    ConfigDef("advertised.listeners", LIST, None, ListOf(may_be_empty=False, may_be_null=True)),
    ConfigDef("background.threads", INT, 10, AtLeast(1), CLUSTER_WIDE),
    ConfigDef("connections.max.idle.ms", LONG, 600_000),
    ConfigDef("delete.records.purgatory.purge.interval.requests", INT, 1),
    ConfigDef("fetch.max.bytes", INT, 57_671_680, AtLeast(1024)),
    ConfigDef("fetch.purgatory.purge.interval.requests", INT, 1000),
    ConfigDef("inter.broker.listener.name", STRING, None),
    ConfigDef(
        "listener.security.protocol.map",
        STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        scope=PER_BROKER,
    ),
    ConfigDef("listeners", LIST, ("PLAINTEXT://:9092",), ListOf(may_be_empty=False), PER_BROKER),
    ConfigDef("max.connection.creation.rate", INT, INT_MAX, AtLeast(0), CLUSTER_WIDE),
    ConfigDef("max.connections", INT, INT_MAX, AtLeast(0), CLUSTER_WIDE),
    ConfigDef("max.connections.per.ip", INT, INT_MAX, AtLeast(0), CLUSTER_WIDE),
    ConfigDef("max.connections.per.ip.overrides", STRING, "", scope=CLUSTER_WIDE),
    ConfigDef("max.incremental.fetch.session.cache.slots", INT, 1000, AtLeast(0)),
    ConfigDef("max.request.partition.size.limit", INT, 2000, AtLeast(1)),
    ConfigDef("num.io.threads", INT, 8, AtLeast(1), CLUSTER_WIDE),
    ConfigDef("num.network.threads", INT, 3, AtLeast(1), CLUSTER_WIDE),
    ConfigDef("producer.purgatory.purge.interval.requests", INT, 1000),
    ConfigDef("queued.max.request.bytes", LONG, -1),
    ConfigDef("queued.max.requests", INT, 500, AtLeast(1)),
    ConfigDef("request.timeout.ms", INT, 30000),
    ConfigDef("socket.connection.setup.timeout.max.ms", LONG, 30000),
    ConfigDef("socket.connection.setup.timeout.ms", LONG, 10000),
    ConfigDef("socket.listen.backlog.size", INT, 50, AtLeast(1)),
    ConfigDef("socket.receive.buffer.bytes", INT, 102_400),
    ConfigDef("socket.request.max.bytes", INT, 104_857_600, AtLeast(1)),
    ConfigDef("socket.send.buffer.bytes", INT, 102_400),
)
