"""Texts for topic configs."""

TEXT = """
cleanup.policy
    What happens to old segments: "delete" removes them by age and size, "compact" keeps the last record of each key.
    Both may be given; empty keeps everything.
compression.gzip.level
    How hard gzip works where compression.type is gzip; -1 is the codec's own default.
compression.lz4.level
    How hard lz4 works where compression.type is lz4.
compression.type
    The codec that batches have on disk. "producer" keeps what the producer sent; any other value recompresses what
    differs from it, "uncompressed" into no compression.
compression.zstd.level
    How hard zstd works where compression.type is zstd.
delete.retention.ms
    How long a tombstone (a record with a null value) outlives compaction, so that a consumer that reads from the
    beginning within this time sees the deletion.
file.delete.delay.ms
    How long the files of a deleted segment stay on disk, renamed, so that reads under way can finish.
flush.messages
    After how many records the log is forced to disk. The default leaves it to the operating system: replication, not
    fsync, is what protects records.
flush.ms
    After how much time what was written is forced to disk. The default leaves it to the operating system.
follower.replication.throttled.replicas
    Whose replication traffic is throttled on the follower's side: pairs partition:broker, or * for all.
index.interval.bytes
    How many bytes of log one entry of the offset index covers. Smaller finds offsets with less scanning, and costs
    larger indexes.
internal.segment.bytes
    As segment.bytes, but without a lower limit: for tests.
leader.replication.throttled.replicas
    Whose replication traffic is throttled on the leader's side: pairs partition:broker, or * for all.
local.retention.bytes
    With tiered storage, how many bytes of a partition stay on local disk; -2 takes retention.bytes.
local.retention.ms
    With tiered storage, how long segments stay on local disk; -2 takes retention.ms.
max.compaction.lag.ms
    The longest a record may stay uncompacted in a compacted topic; then its segment is closed and cleaned.
max.message.bytes
    The largest batch that the topic accepts, as sent (compressed, where it is).
message.timestamp.after.max.ms
    How far a create time may lie ahead of the broker's clock. Ignored with LogAppendTime.
message.timestamp.before.max.ms
    How far a create time may lie behind the broker's clock. Ignored with LogAppendTime.
message.timestamp.type
    Whose clock stamps the records: the producer's (CreateTime) or the broker's at append (LogAppendTime).
min.cleanable.dirty.ratio
    What share of the log must be dirty (written since the last cleaning) before compaction runs. Lower wastes less
    space, and cleans more often.
min.compaction.lag.ms
    How long a record is safe from compaction after it was written.
min.insync.replicas
    How many replicas, the leader among them, must be in sync for a write with acks=all; with fewer it is refused.
ottla.record.validation
    How much of a produced batch is checked beyond its header. "quick" reads the first records of an uncompressed batch
    (all of a small one) and the first bytes of a compressed one; "full" unpacks every batch and checks every record, as
    Kafka does. Compacted topics, and those with a compression.type or message.timestamp.before.max.ms of their own,
    always check what they unpack in full.
preallocate
    Whether a new segment's file is given its full size at once. It is cut to what it holds when the segment is rolled
    and when the broker stops.
remote.log.copy.disable
    With tiered storage, makes the remote part read-only: nothing more is uploaded.
remote.log.delete.on.disable
    Whether the remote part is deleted when tiered storage is turned off for the topic.
remote.storage.enable
    Whether the topic's closed segments go to tiered storage.
retention.bytes
    How large a partition may grow before its oldest segments are deleted; -1 sets no limit.
retention.ms
    How long records are kept before their segment is deleted; -1 keeps them for ever.
segment.bytes
    The size at which a segment is closed and a new one begun. Retention and compaction work on closed segments.
segment.index.bytes
    The size at which an offset index is full, which closes its segment.
segment.jitter.ms
    The most that is subtracted at random from segment.ms, so that partitions do not all roll at once.
segment.ms
    The age at which a segment is closed even when it is not full, so that retention can reach it.
unclean.leader.election.enable
    Whether a replica that is not in sync may become leader when no other is left: available again, but records that
    it lacks are lost.
"""
