"""Descriptions of group configs and of client-metrics subscriptions."""

TEXT = """
consumer.assignment.interval.ms
    The minimum time between two target assignments of a consumer group; changes in between are collected.
consumer.heartbeat.interval.ms
    How often a member of a consumer group must send a heartbeat.
consumer.session.timeout.ms
    How long a member of a consumer group may go without a heartbeat before it is removed.
share.assignment.interval.ms
    The minimum time between two target assignments of a share group; changes in between are collected.
share.auto.offset.reset
    Where a share group starts on a partition that it has not read: at the latest record, at the earliest, or at the
    first within a duration before now.
share.delivery.count.limit
    How often a record is delivered to a share group before it is given up.
share.heartbeat.interval.ms
    How often a member of a share group must send a heartbeat.
share.isolation.level
    Whether a share group reads records of open and aborted transactions (read_uncommitted) or not (read_committed).
share.partition.max.record.locks
    How many records of a partition may be delivered to a share group but not acknowledged yet.
share.record.lock.duration.ms
    How long a delivered record stays locked for its consumer before it is delivered to another.
share.renew.acknowledge.enable
    Whether a consumer may renew the lock of a record that it is still processing.
share.session.timeout.ms
    How long a member of a share group may go without a heartbeat before it is removed.
streams.assignment.interval.ms
    The minimum time between two target assignments of a streams group; changes in between are collected.
streams.heartbeat.interval.ms
    How often a member of a streams group must send a heartbeat.
streams.initial.rebalance.delay.ms
    How long the first assignment of a streams group waits for more members to join.
streams.num.standby.replicas
    How many standby copies each task of a streams group has.
streams.session.timeout.ms
    How long a member of a streams group may go without a heartbeat before it is removed.
interval.ms
    How often a matching client sends its metrics.
match
    The clients of the subscription: a list of label=regular expression. Empty matches all clients.
metrics
    The metrics to send, as prefixes of their names; * means all.
"""
