"""Texts for group configs and for client-metrics subscriptions."""

TEXT = """
consumer.assignment.interval.ms
    The least time between two new target assignments of a consumer group; changes in between are collected.
consumer.heartbeat.interval.ms
    How often a member of a consumer group is told to send a heartbeat.
consumer.session.timeout.ms
    How long a member of a consumer group may stay silent before it is removed.
share.assignment.interval.ms
    The least time between two new target assignments of a share group; changes in between are collected.
share.auto.offset.reset
    Where a share group starts on a partition that it has not read: the latest record, the earliest, or the first
    within a duration before now.
share.delivery.count.limit
    How often a record is delivered to a share group before it is given up.
share.heartbeat.interval.ms
    How often a member of a share group is told to send a heartbeat.
share.isolation.level
    Whether a share group sees records of open and aborted transactions (read_uncommitted) or not (read_committed).
share.partition.max.record.locks
    How many records of a partition may be in flight (delivered, not yet acknowledged) in a share group.
share.record.lock.duration.ms
    How long a delivered record stays locked for its consumer before it is delivered to another.
share.renew.acknowledge.enable
    Whether a consumer may renew the lock of a record that it is still working on.
share.session.timeout.ms
    How long a member of a share group may stay silent before it is removed.
streams.assignment.interval.ms
    The least time between two new target assignments of a streams group; changes in between are collected.
streams.heartbeat.interval.ms
    How often a member of a streams group is told to send a heartbeat.
streams.initial.rebalance.delay.ms
    How long the first assignment of a streams group waits for more members to join.
streams.num.standby.replicas
    How many standby copies each task of a streams group has.
streams.session.timeout.ms
    How long a member of a streams group may stay silent before it is removed.
interval.ms
    How often a matching client sends its metrics.
match
    Which clients the subscription is for: a list of selector=regular expression. Empty matches all.
metrics
    Which metrics to send, by prefix of their names; * asks for all.
"""
