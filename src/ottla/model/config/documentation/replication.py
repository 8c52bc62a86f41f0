"""Descriptions of broker configs of replication."""

TEXT = """
alter.log.dirs.replication.quota.window.num
    The number of samples over which the throttle of moves between log directories is measured.
alter.log.dirs.replication.quota.window.size.seconds
    The length of each sample.
auto.leader.rebalance.enable
    Whether the controller moves leadership back to the preferred replicas automatically.
controlled.shutdown.enable
    Whether a broker moves its leaderships to other brokers before it stops.
default.replication.factor
    The replication factor of a topic that is created without one, including automatically created topics.
follower.replication.throttled.rate
    The rate, in bytes per second, at which this broker fetches the replicas in
    follower.replication.throttled.replicas.
leader.imbalance.check.interval.seconds
    How often the controller checks whether partitions are led by their preferred replicas.
leader.replication.throttled.rate
    The rate, in bytes per second, at which this broker sends the replicas in leader.replication.throttled.replicas.
num.replica.alter.log.dirs.threads
    How many threads move replicas between log directories.
num.replica.fetchers
    How many connections to each other broker fetch from the leaders there.
replica.alter.log.dirs.io.max.bytes.per.second
    The maximum rate of moves between log directories.
replica.fetch.backoff.ms
    How long a follower waits before it fetches a partition again after an error.
replica.fetch.max.bytes
    The maximum size of a follower's fetch per partition. The first batch is returned even if it is larger.
replica.fetch.min.bytes
    The minimum size of the response to a follower's fetch; the leader waits for it.
replica.fetch.response.max.bytes
    The maximum size of a follower's fetch over all partitions.
replica.fetch.wait.max.ms
    How long a follower's fetch waits for replica.fetch.min.bytes. Keep it below replica.lag.time.max.ms, or quiet
    partitions leave the in-sync replicas.
replica.high.watermark.checkpoint.interval.ms
    How often the high watermarks are written to disk.
replica.lag.time.max.ms
    A follower that has not caught up with the leader's log end for this long leaves the in-sync replicas.
replica.selector.class
    The name of Kafka's class that selects the replica from which a consumer reads (KIP-392). If it is not set,
    consumers read from the leader.
replica.socket.receive.buffer.bytes
    The receive buffer of connections that fetch from leaders.
replica.socket.timeout.ms
    The socket timeout of connections that fetch from leaders.
replication.quota.window.num
    The number of samples over which the replication throttles are measured.
replication.quota.window.size.seconds
    The length of each sample.
unclean.leader.election.interval.ms
    How often the controller looks for partitions without a leader that need an unclean election.
"""
