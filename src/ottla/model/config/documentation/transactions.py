"""Texts for broker configs of transactions and producer ids."""

TEXT = """
add.partitions.to.txn.retry.backoff.max.ms
    How long the broker goes on trying to add a partition to a transaction on a producer's behalf (KIP-890).
add.partitions.to.txn.retry.backoff.ms
    How long it waits between these attempts.
producer.id.expiration.check.interval.ms
    How often it is checked which producer ids have expired.
producer.id.expiration.ms
    How long a partition remembers the state of an idempotent producer that writes nothing more.
transaction.abort.timed.out.transaction.cleanup.interval.ms
    How often transactions that ran out of time are looked for and aborted.
transaction.max.timeout.ms
    The longest timeout that a producer may ask for its transactions.
transaction.partition.verification.enable
    Whether a write is checked to belong to an open transaction before it is appended (KIP-890).
transaction.remove.expired.transaction.cleanup.interval.ms
    How often transactional ids that have expired are removed.
transaction.state.log.load.buffer.size
    How much is read at once when a partition of the transaction state is loaded; at most 1 MiB, so that
    other requests go on.
transaction.state.log.min.isr
    min.insync.replicas of the topic that holds the transactions' state.
transaction.state.log.num.partitions
    How many partitions that topic is created with; it must not change afterwards.
transaction.state.log.replication.factor
    How many replicas that topic is created with. A single node creates it with one all the same.
transaction.state.log.segment.bytes
    segment.bytes of that topic; small, so that it loads and compacts fast.
transaction.two.phase.commit.enable
    Whether producers may prepare a transaction and leave its end to an outside coordinator (KIP-939).
transactional.id.expiration.ms
    How long a transactional id is remembered that is not used.
"""
