"""Descriptions of broker configs of tiered storage."""

TEXT = """
follower.fetch.last.tiered.offset.enable
    Whether an empty follower starts after the tiered segments instead of at the first offset (KIP-1023).
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
    The maximum upload rate.
remote.log.manager.copy.quota.window.num
    The number of samples over which that rate is measured.
remote.log.manager.copy.quota.window.size.seconds
    The length of each sample.
remote.log.manager.expiration.thread.pool.size
    How many threads delete remote segments that have passed their retention.
remote.log.manager.fetch.max.bytes.per.second
    The maximum rate of reads from remote storage.
remote.log.manager.fetch.quota.window.num
    The number of samples over which that rate is measured.
remote.log.manager.fetch.quota.window.size.seconds
    The length of each sample.
remote.log.manager.follower.thread.pool.size
    How many threads follow the progress of uploads for follower partitions.
remote.log.manager.task.interval.ms
    How often each partition is checked for segments to upload or delete.
remote.log.manager.task.retry.backoff.max.ms
    The maximum time before such a task is retried.
remote.log.manager.task.retry.backoff.ms
    The time before such a task is retried for the first time.
remote.log.manager.task.retry.jitter
    The share of that time that is random.
remote.log.manager.thread.pool.size
    The older name of remote.log.manager.follower.thread.pool.size.
remote.log.metadata.custom.metadata.max.bytes
    The maximum size of the metadata that a storage plug-in adds to a segment.
remote.log.metadata.manager.class.name
    In Kafka, the Java class that stores the metadata of remote segments. Ottla loads no Java classes.
remote.log.metadata.manager.class.path
    The class path of that class.
remote.log.metadata.manager.impl.prefix
    The prefix of that class's own configs.
remote.log.metadata.manager.listener.name
    The listener through which that class connects to the cluster.
remote.log.reader.max.pending.tasks
    How many reads from remote storage may wait; more are rejected.
remote.log.reader.threads
    How many threads read from remote storage.
remote.log.storage.manager.class.name
    In Kafka, the Java class that stores remote segments. Ottla loads no Java classes.
remote.log.storage.manager.class.path
    The class path of that class.
remote.log.storage.manager.impl.prefix
    The prefix of that class's own configs.
remote.log.storage.system.enable
    Whether tiered storage is enabled on this broker; topics enable it with remote.storage.enable.
"""
