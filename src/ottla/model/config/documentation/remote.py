"""Texts for broker configs of tiered storage."""

TEXT = """
follower.fetch.last.tiered.offset.enable
    Whether an empty follower starts after what is tiered already, rather than at the first offset (KIP-1023).
remote.fetch.max.wait.ms
    How long a fetch waits for data from remote storage.
remote.list.offsets.request.timeout.ms
    How long ListOffsets waits for remote storage.
remote.log.index.file.cache.total.size.bytes
    How much local disk is used to cache indexes of remote segments.
remote.log.index.file.cache.ttl.ms
    How long an unused entry of that cache is kept.
remote.log.manager.copier.thread.pool.size
    How many threads upload segments.
remote.log.manager.copy.max.bytes.per.second
    How many bytes a second are uploaded at most.
remote.log.manager.copy.quota.window.num
    Over how many samples that rate is measured.
remote.log.manager.copy.quota.window.size.seconds
    How long each of these samples is.
remote.log.manager.expiration.thread.pool.size
    How many threads delete remote segments that have passed their retention.
remote.log.manager.fetch.max.bytes.per.second
    How many bytes a second are read from remote storage at most.
remote.log.manager.fetch.quota.window.num
    Over how many samples that rate is measured.
remote.log.manager.fetch.quota.window.size.seconds
    How long each of these samples is.
remote.log.manager.follower.thread.pool.size
    How many threads learn for followers how far the upload has come.
remote.log.manager.task.interval.ms
    How often each partition is checked for segments to upload or delete.
remote.log.manager.task.retry.backoff.max.ms
    The most that the wait before another attempt of such a task grows to.
remote.log.manager.task.retry.backoff.ms
    The first wait before another attempt of such a task.
remote.log.manager.task.retry.jitter
    What share of that wait is random.
remote.log.manager.thread.pool.size
    The older name of remote.log.manager.follower.thread.pool.size.
remote.log.metadata.custom.metadata.max.bytes
    How much metadata of its own a storage plug-in may attach to a segment.
remote.log.metadata.manager.class.name
    The Java class that keeps the metadata of remote segments in Kafka. Ottla loads no Java classes.
remote.log.metadata.manager.class.path
    Where that class is found.
remote.log.metadata.manager.impl.prefix
    The prefix of that class's own configs.
remote.log.metadata.manager.listener.name
    The listener by which that class reaches the cluster.
remote.log.reader.max.pending.tasks
    How many reads from remote storage may wait before more are refused.
remote.log.reader.threads
    How many threads read from remote storage.
remote.log.storage.manager.class.name
    The Java class that stores remote segments in Kafka. Ottla loads no Java classes.
remote.log.storage.manager.class.path
    Where that class is found.
remote.log.storage.manager.impl.prefix
    The prefix of that class's own configs.
remote.log.storage.system.enable
    Whether tiered storage is on in this broker at all; topics then choose by remote.storage.enable.
"""
