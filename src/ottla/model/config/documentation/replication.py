"""Texts for broker configs of replication."""

TEXT = """
alter.log.dirs.replication.quota.window.num
    Over how many samples the throttle of moves between log directories is measured.
alter.log.dirs.replication.quota.window.size.seconds
    How long each of these samples is.
auto.leader.rebalance.enable
    Whether the controller moves leadership back to the preferred replicas by itself.
controlled.shutdown.enable
    Whether a broker hands over its leaderships before it stops.
default.replication.factor
    How many replicas a topic gets that is created without a number, by auto-creation too.
follower.replication.throttled.rate
    How many bytes a second this broker fetches for the replicas that follower.replication.throttled.replicas names.
leader.imbalance.check.interval.seconds
    How often the controller checks whether leaders are off their preferred replicas.
leader.replication.throttled.rate
    How many bytes a second this broker sends for the replicas that leader.replication.throttled.replicas names.
num.replica.alter.log.dirs.threads
    How many threads move replicas between log directories.
num.replica.fetchers
    How many connections to each other broker fetch from the leaders there.
replica.alter.log.dirs.io.max.bytes.per.second
    How many bytes a second moves between log directories may use.
replica.fetch.backoff.ms
    How long a follower waits before it fetches a partition again after an error.
replica.fetch.max.bytes
    How much a follower asks for per partition; a larger first batch comes all the same.
replica.fetch.min.bytes
    How much a follower's fetch waits for before it is answered.
replica.fetch.response.max.bytes
    How much a follower asks for over all partitions of one fetch.
replica.fetch.wait.max.ms
    How long a follower's fetch waits for replica.fetch.min.bytes. Keep it below replica.lag.time.max.ms, or quiet
    partitions leave the in-sync replicas.
replica.high.watermark.checkpoint.interval.ms
    How often the high watermarks are written to disk.
replica.lag.time.max.ms
    A follower that has not caught up with the leader's log end for this long leaves the in-sync replicas.
replica.selector.class
    Which replica a consumer should read from (KIP-392), by the name of Kafka's class. Where it is not set, the leader.
replica.socket.receive.buffer.bytes
    The receive buffer of connections that fetch from leaders.
replica.socket.timeout.ms
    The socket timeout of connections that fetch from leaders.
replication.quota.window.num
    Over how many samples the replication throttles are measured.
replication.quota.window.size.seconds
    How long each of these samples is.
unclean.leader.election.interval.ms
    How often the controller looks for partitions without leader that an unclean election would help.
"""
