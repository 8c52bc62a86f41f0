"""Descriptions of broker configs of transactions and producer ids."""

TEXT = """
add.partitions.to.txn.retry.backoff.max.ms
    How long the broker retries to add a partition to a transaction on behalf of a producer (KIP-890).
add.partitions.to.txn.retry.backoff.ms
    The time between these attempts.
producer.id.expiration.check.interval.ms
    How often expired producer ids are removed.
producer.id.expiration.ms
    How long a partition keeps the state of an inactive idempotent producer.
transaction.abort.timed.out.transaction.cleanup.interval.ms
    How often timed-out transactions are aborted.
transaction.max.timeout.ms
    The maximum transaction timeout that a producer may set.
transaction.partition.verification.enable
    Whether the leader verifies that a transaction is open before it appends its first batch (KIP-890).
transaction.remove.expired.transaction.cleanup.interval.ms
    How often expired transactional ids are removed.
transaction.state.log.load.buffer.size
    The size of a read when a partition of the transaction state is loaded. Ottla reads at most 1 MiB at once, so that
    other requests are not delayed.
transaction.state.log.min.isr
    min.insync.replicas of the topic with the transaction state.
transaction.state.log.num.partitions
    The number of partitions of that topic. It must not change after the topic is created.
transaction.state.log.replication.factor
    The replication factor of that topic. It is created when so many brokers are active. A single node that sets
    neither this config nor the controllers of a quorum creates it with one replica.
transaction.state.log.segment.bytes
    segment.bytes of that topic. A small value makes loading and compaction fast.
transaction.two.phase.commit.enable
    Whether producers may prepare a transaction and let an external coordinator end it (KIP-939).
transactional.id.expiration.ms
    How long an unused transactional id is kept.
"""
