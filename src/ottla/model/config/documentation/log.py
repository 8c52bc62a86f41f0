"""Descriptions of broker configs of the log that are not defaults of a topic config."""

TEXT = """
cordoned.log.dirs
    Log directories that get no new partitions but keep serving those that they have; * cordons all, and the broker
    gets no new partitions then. Needs metadata.version 4.3-IV0 (KIP-1066).
log.cleaner.backoff.ms
    How long the cleaner sleeps if no log needs compaction.
log.cleaner.dedupe.buffer.size
    The memory for the maps from key to last offset, of all cleaners together. A larger map cleans more of a log in
    one pass.
log.cleaner.enable
    Whether compaction runs. Without it compacted internal topics grow forever.
log.cleaner.io.buffer.load.factor
    How full the cleaner's map may get, from 0 to 1.
log.cleaner.io.buffer.size
    The memory for reads and writes of compaction, of all cleaners together.
log.cleaner.io.max.bytes.per.second
    The maximum rate at which all cleaners together read and write, which leaves disk bandwidth to others. A change
    also applies to running cleanings; 0 or less stops them until the value is changed again.
log.cleaner.threads
    How many logs are compacted at the same time.
log.dir
    The log directory if log.dirs is not set.
log.dir.failure.timeout.ms
    How long the broker tries to report a failed log directory to the controller before it stops.
log.dirs
    The log directories. A new partition goes to the directory with the fewest partitions. A directory whose disk
    fails or is full goes offline with its partitions until a restart. The broker stops if it was the last directory
    or has the metadata log.
log.flush.offset.checkpoint.interval.ms
    How often the recovery point of each log is written. After a crash only the part after it is scanned.
log.flush.scheduler.interval.ms
    How often the broker checks whether a log must be flushed to disk.
log.flush.start.offset.checkpoint.interval.ms
    How often the start offset of each log is written, so that deleted records do not come back after a crash.
log.initial.task.delay.ms
    How long after startup retention, flushing and checkpoints run for the first time; for tests.
log.retention.check.interval.ms
    How often the broker checks whether segments have passed their retention.
log.retention.hours
    As log.retention.minutes, in hours. Used if neither log.retention.ms nor log.retention.minutes is set.
log.retention.minutes
    As log.retention.ms, in minutes. Used if that is not set.
log.roll.hours
    As log.roll.ms, in hours. Used if that is not set.
log.roll.jitter.hours
    As log.roll.jitter.ms, in hours. Used if that is not set.
num.partitions
    The number of partitions of a topic that is created without one, including automatically created topics.
num.recovery.threads.per.data.dir
    How many threads per log directory check the logs at startup after an unclean shutdown. A change applies to the
    next startup.
"""
