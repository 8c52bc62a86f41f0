"""Broker configs of transactions and producer ids (KIP-98, KIP-890)."""

from ottla.model.config.definition import (
    BOOLEAN,
    CLUSTER_WIDE,
    INT,
    SHORT,
    ConfigDef,
)
from ottla.model.config.validators import (
    AtLeast,
)

CONFIGS = (
    ConfigDef("add.partitions.to.txn.retry.backoff.max.ms", INT, 100, AtLeast(0)),
    ConfigDef("add.partitions.to.txn.retry.backoff.ms", INT, 20, AtLeast(1)),
    ConfigDef("producer.id.expiration.check.interval.ms", INT, 600_000, AtLeast(1), internal=True),
    ConfigDef("producer.id.expiration.ms", INT, 86_400_000, AtLeast(1), CLUSTER_WIDE),
    ConfigDef("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, 10000, AtLeast(1)),
    ConfigDef("transaction.max.timeout.ms", INT, 900_000, AtLeast(1)),
    ConfigDef("transaction.partition.verification.enable", BOOLEAN, True, scope=CLUSTER_WIDE),
    ConfigDef("transaction.remove.expired.transaction.cleanup.interval.ms", INT, 3_600_000, AtLeast(1)),
    ConfigDef("transaction.state.log.load.buffer.size", INT, 5_242_880, AtLeast(1)),
    ConfigDef("transaction.state.log.min.isr", INT, 2, AtLeast(1)),
    ConfigDef("transaction.state.log.num.partitions", INT, 50, AtLeast(1)),
    ConfigDef("transaction.state.log.replication.factor", SHORT, 3, AtLeast(1)),
    ConfigDef("transaction.state.log.segment.bytes", INT, 104_857_600, AtLeast(1)),
    ConfigDef("transaction.two.phase.commit.enable", BOOLEAN, False),
    ConfigDef("transactional.id.expiration.ms", INT, 604_800_000, AtLeast(1)),
)
