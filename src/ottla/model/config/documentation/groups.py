"""Descriptions of broker configs of groups, of committed offsets and of the share coordinator."""

TEXT = """
group.consumer.assignors
    The assignors for consumer groups; the first is the default. Supported are uniform and range.
group.consumer.max.size
    How many members a consumer group may have.
group.consumer.migration.policy
    How a group may migrate between the classic and the consumer protocol: upgrade, downgrade, bidirectional or
    disabled.
group.consumer.regex.refresh.interval.ms
    How often subscriptions by regular expression are resolved again.
group.coordinator.append.linger.ms
    How long the coordinator collects records before it appends them; -1 adapts the time to the load.
group.coordinator.background.threads
    In Kafka, the number of threads for the coordinator's background work.
group.coordinator.cached.buffer.max.bytes
    The largest write buffer that the coordinator keeps for reuse.
group.coordinator.rebalance.protocols
    The group protocols that the coordinator serves.
group.coordinator.threads
    In Kafka, the number of threads of the coordinator.
group.initial.rebalance.delay.ms
    How long the first rebalance of an empty classic group waits for more members.
group.max.session.timeout.ms
    The maximum session timeout of a member of a classic group.
group.max.size
    How many members a classic group may have.
group.min.session.timeout.ms
    The minimum session timeout of a member of a classic group.
group.share.assignors
    The assignors for share groups.
group.share.initialize.retry.interval.ms
    How long the coordinator waits before it retries a failed initialization of a share group.
group.share.max.share.sessions
    How many share sessions the broker keeps.
group.share.max.size
    How many members a share group may have.
group.share.persister.class.name
    In Kafka, the Java class that stores the state of share groups.
group.streams.max.size
    How many members a streams group may have.
group.streams.max.standby.replicas
    The maximum of the group config streams.num.standby.replicas.
offset.metadata.max.bytes
    The maximum length of the metadata of a committed offset.
offsets.commit.timeout.ms
    How long an offset commit waits for all in-sync replicas.
offsets.load.buffer.size
    The size of a read when a partition of committed offsets is loaded. Ottla reads at most 1 MiB at once, so that
    other requests are not delayed.
offsets.retention.check.interval.ms
    How often the coordinator deletes expired offsets.
offsets.retention.minutes
    How long committed offsets are kept after their group has become empty.
offsets.topic.compression.codec
    The codec of the topic with committed offsets: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
offsets.topic.num.partitions
    The number of partitions of that topic. It must not change after the topic is created.
offsets.topic.replication.factor
    The replication factor of that topic. It is created when so many brokers are active. A single node that sets
    neither this config nor the controllers of a quorum creates it with one replica.
offsets.topic.segment.bytes
    segment.bytes of that topic. A small value makes loading and compaction fast.
share.coordinator.append.linger.ms
    How long the share coordinator collects records before it appends them; -1 adapts the time to the load.
share.coordinator.cached.buffer.max.bytes
    The largest write buffer that the share coordinator keeps for reuse.
share.coordinator.cold.partition.snapshot.interval.ms
    How often the state of unchanged share partitions is written again, so that old records can be deleted.
share.coordinator.load.buffer.size
    The size of a read when a partition of the share groups' state is loaded.
share.coordinator.snapshot.update.records.per.snapshot
    How many updates are written between two snapshots of a share partition's state.
share.coordinator.state.topic.compression.codec
    The codec of the topic with the share groups' state: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
share.coordinator.state.topic.min.isr
    min.insync.replicas of that topic.
share.coordinator.state.topic.num.partitions
    The number of partitions of that topic. It must not change after the topic is created.
share.coordinator.state.topic.prune.interval.ms
    How often the coordinator deletes records of that topic that no share group needs.
share.coordinator.state.topic.replication.factor
    The replication factor of that topic. A single node creates it with one replica instead.
share.coordinator.state.topic.segment.bytes
    segment.bytes of that topic.
share.coordinator.threads
    In Kafka, the number of threads of the share coordinator.
share.coordinator.write.timeout.ms
    How long a write of the share coordinator waits for all in-sync replicas.
share.fetch.purgatory.purge.interval.requests
    The number of completed requests after which the purgatory of ShareFetch is purged.
"""
