"""Texts for broker configs of groups, of committed offsets and of the share coordinator."""

TEXT = """
group.consumer.assignors
    The assignors that the broker offers to consumer groups, the first being the default: uniform, range.
group.consumer.max.size
    How many members a consumer group may have.
group.consumer.migration.policy
    Which way a group may move between the classic and the consumer protocol: upgrade, downgrade, both or neither.
group.consumer.regex.refresh.interval.ms
    How often subscriptions by regular expression are resolved again.
group.coordinator.append.linger.ms
    How long the coordinator collects records before it writes them; -1 lets it choose by load.
group.coordinator.background.threads
    How many threads do the coordinator's background work in Kafka.
group.coordinator.cached.buffer.max.bytes
    The largest write buffer that the coordinator keeps for reuse.
group.coordinator.rebalance.protocols
    Which kinds of groups the coordinator serves.
group.coordinator.threads
    How many threads run the coordinator in Kafka.
group.initial.rebalance.delay.ms
    How long the first rebalance of an empty classic group waits for more members.
group.max.session.timeout.ms
    The longest session timeout that a member of a classic group may ask for.
group.max.size
    How many members a classic group may have.
group.min.session.timeout.ms
    The shortest session timeout that a member of a classic group may ask for.
group.share.assignors
    The assignors that the broker offers to share groups.
group.share.initialize.retry.interval.ms
    How long to wait before the state of a share group is initialized again after a failure.
group.share.max.share.sessions
    How many share sessions the broker keeps.
group.share.max.size
    How many members a share group may have.
group.share.persister.class.name
    The Java class that keeps the state of share groups in Kafka.
group.streams.max.size
    How many members a streams group may have.
group.streams.max.standby.replicas
    The most that a group may set streams.num.standby.replicas to.
offset.metadata.max.bytes
    How long the metadata string of a committed offset may be.
offsets.commit.timeout.ms
    How long an offset commit waits for all in-sync replicas.
offsets.load.buffer.size
    How much is read at once when a partition of the committed offsets is loaded; at most 1 MiB, so that
    other requests go on.
offsets.retention.check.interval.ms
    How often committed offsets that have expired are looked for.
offsets.retention.minutes
    How long committed offsets are kept after their group has become empty.
offsets.topic.compression.codec
    The codec of the topic of committed offsets: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
offsets.topic.num.partitions
    How many partitions that topic is created with; it must not change afterwards.
offsets.topic.replication.factor
    How many replicas that topic is created with. A single node creates it with one all the same.
offsets.topic.segment.bytes
    segment.bytes of that topic; small, so that it loads and compacts fast.
share.coordinator.append.linger.ms
    How long the share coordinator collects records before it writes them; -1 lets it choose by load.
share.coordinator.cached.buffer.max.bytes
    The largest write buffer that the share coordinator keeps for reuse.
share.coordinator.cold.partition.snapshot.interval.ms
    How often the state of share partitions that do not change is written again, so that old records can go.
share.coordinator.load.buffer.size
    How much is read at once when a partition of the share groups' state is loaded.
share.coordinator.snapshot.update.records.per.snapshot
    How many updates are written between two snapshots of a share partition's state.
share.coordinator.state.topic.compression.codec
    The codec of the topic of the share groups' state: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
share.coordinator.state.topic.min.isr
    min.insync.replicas of that topic.
share.coordinator.state.topic.num.partitions
    How many partitions that topic is created with; it must not change afterwards.
share.coordinator.state.topic.prune.interval.ms
    How often records of that topic are deleted that no share group needs any more.
share.coordinator.state.topic.replication.factor
    How many replicas that topic is created with. A single node creates it with one all the same.
share.coordinator.state.topic.segment.bytes
    segment.bytes of that topic.
share.coordinator.threads
    How many threads run the share coordinator in Kafka.
share.coordinator.write.timeout.ms
    How long a write of the share coordinator waits for all in-sync replicas.
share.fetch.purgatory.purge.interval.requests
    After how many completed requests the purgatory of ShareFetch is swept.
"""
