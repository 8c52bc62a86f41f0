"""Texts for broker configs of the log that no topic config stands for."""

TEXT = """
cordoned.log.dirs
    Log directories that take no new partitions, while they go on serving those they have; * cordons all.
log.cleaner.backoff.ms
    How long the cleaner sleeps when no log needs compaction.
log.cleaner.dedupe.buffer.size
    The memory for the map from key to last offset that compaction builds, over all cleaner threads. A larger one
    cleans more of a log in one pass.
log.cleaner.enable
    Whether compaction runs at all. Compacted internal topics grow for ever without it.
log.cleaner.io.buffer.load.factor
    How full the cleaner's map may get, from 0 to 1.
log.cleaner.io.buffer.size
    The memory for reading and writing in compaction, over all cleaner threads.
log.cleaner.io.max.bytes.per.second
    The most that compaction reads and writes a second, all its threads together, so that it leaves the disk to others.
    A change holds for cleanings that are under way; 0 or less halts them until it is changed again.
log.cleaner.threads
    How many logs are compacted at the same time.
log.dir
    The directory of the log where log.dirs is not set.
log.dir.failure.timeout.ms
    How long the broker tries to tell the controller of a failed log directory before it stops itself.
log.dirs
    The directories of the log. A new partition goes where the fewest are. A directory whose disk fails or is full goes
    offline until a restart, with its partitions; the broker stops when it was the last one, or holds the metadata log.
log.flush.offset.checkpoint.interval.ms
    How often the recovery point of each log is written down: what lies before it needs no scan after a crash.
log.flush.scheduler.interval.ms
    How often it is checked whether a log is due to be forced to disk.
log.flush.start.offset.checkpoint.interval.ms
    How often the start offset of each log is written down, so that deleted records do not come back after a crash.
log.initial.task.delay.ms
    How long after the start retention, flushing and checkpoints run for the first time: for tests.
log.retention.check.interval.ms
    How often it is checked whether segments have passed their retention.
log.retention.hours
    As log.retention.minutes, in hours. Used where neither of the others is set.
log.retention.minutes
    As log.retention.ms, in minutes. Used where that is not set.
log.roll.hours
    As log.roll.ms, in hours. Used where that is not set.
log.roll.jitter.hours
    As log.roll.jitter.ms, in hours. Used where that is not set.
num.partitions
    How many partitions a topic gets that is created without a number, by auto-creation too.
num.recovery.threads.per.data.dir
    How many threads per log directory check the logs at a start after an unclean stop. A change holds for the next
    start.
"""
