"""Descriptions of topic configs."""

TEXT = """
cleanup.policy
    What happens to old segments: "delete" removes them by age and size, "compact" keeps the last record of each key.
    Both may be set; empty keeps everything.
compression.gzip.level
    The compression level if compression.type is gzip; -1 is the codec's default.
compression.lz4.level
    The compression level if compression.type is lz4.
compression.type
    The codec of batches on disk. "producer" keeps the producer's codec. With any other value the broker recompresses
    batches that have another codec; "uncompressed" means no compression.
compression.zstd.level
    The compression level if compression.type is zstd.
delete.retention.ms
    How long a tombstone (a record with a null value) is kept after compaction, so that a consumer that reads from the
    beginning within this time sees the deletion.
file.delete.delay.ms
    How long the files of a deleted segment stay on disk, renamed, so that running reads can finish.
flush.messages
    The number of records after which the log is flushed to disk. The default leaves it to the operating system,
    because replication, not fsync, protects records.
flush.ms
    The time after which the log is flushed to disk. The default leaves it to the operating system.
follower.replication.throttled.replicas
    The replicas whose replication is throttled on the follower: a list of partition:broker, or * for all.
index.interval.bytes
    How many bytes of the log one entry of the offset index covers. A smaller value finds offsets with less scanning
    but makes larger indexes.
internal.segment.bytes
    As segment.bytes, but without a lower limit; for tests.
leader.replication.throttled.replicas
    The replicas whose replication is throttled on the leader: a list of partition:broker, or * for all.
local.retention.bytes
    With tiered storage, how many bytes of a partition stay on the local disk; -2 means the value of retention.bytes.
local.retention.ms
    With tiered storage, how long segments stay on the local disk; -2 means the value of retention.ms.
max.compaction.lag.ms
    The longest time that a record of a compacted topic stays uncompacted. After it the segment is rolled and cleaned.
max.message.bytes
    The largest batch that the topic accepts, after compression.
message.timestamp.after.max.ms
    How far a create time may be ahead of the broker's clock. Ignored with LogAppendTime.
message.timestamp.before.max.ms
    How far a create time may be behind the broker's clock. Ignored with LogAppendTime.
message.timestamp.type
    Whose clock sets the timestamp: the producer's (CreateTime), or the broker's at append (LogAppendTime).
min.cleanable.dirty.ratio
    The share of the log that must be dirty (written since the last cleaning) before compaction runs. A lower value
    wastes less space but cleans more often.
min.compaction.lag.ms
    How long after its append a record is not compacted.
min.insync.replicas
    How many replicas, including the leader, must be in sync for a write with acks=all. With fewer the leader rejects
    it.
ottla.record.validation
    How much of a produced batch is checked beyond its header. "quick" reads the first records of an uncompressed
    batch (all of a small one) and the first bytes of a compressed one. "full" decompresses every batch and checks
    every record, as Kafka does. Topics that are compacted or that set compression.type or
    message.timestamp.before.max.ms always check every record of the batches that they decompress.
preallocate
    Whether the file of a new segment is allocated with its full size. It is truncated when the segment is rolled and
    when the broker stops.
remote.log.copy.disable
    With tiered storage, stops the upload of segments: the remote part becomes read-only.
remote.log.delete.on.disable
    Whether the remote part is deleted when tiered storage is disabled for the topic.
remote.storage.enable
    Whether closed segments of the topic are uploaded to tiered storage.
retention.bytes
    The size of a partition at which its oldest segments are deleted; -1 means no limit.
retention.ms
    How long records are kept before their segment is deleted; -1 means forever.
segment.bytes
    The size at which a segment is rolled. Retention and compaction work on closed segments.
segment.index.bytes
    The size at which an offset index is full and its segment is rolled.
segment.jitter.ms
    The maximum random time that is subtracted from segment.ms, so that partitions do not all roll at once.
segment.ms
    The age at which a segment is rolled even if it is not full, so that retention can delete it.
unclean.leader.election.enable
    Whether a replica that is not in sync may become the leader if there is no other. The partition is available
    again, but records that this replica does not have are lost.
"""
