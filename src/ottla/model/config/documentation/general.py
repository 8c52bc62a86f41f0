"""Descriptions of broker configs of topic administration, metrics, quotas, plug-ins, and Ottla's own."""

TEXT = """
alter.config.policy.class.name
    In Kafka, a Java class that approves config changes. Ottla loads no Java classes.
auto.create.topics.enable
    Whether a topic is created when a client that allows it requests its metadata.
client.quota.callback.class
    In Kafka, a Java class that decides client quotas. Ottla loads no Java classes.
config.providers
    In Kafka, aliases of Java classes that resolve variables in configs. Ottla loads no Java classes.
controller.quota.window.num
    The number of samples over which the quota of controller mutations is measured.
controller.quota.window.size.seconds
    The length of each sample.
create.topic.policy.class.name
    In Kafka, a Java class that approves new topics. Ottla loads no Java classes.
delete.topic.enable
    Whether topics can be deleted.
kafka.metrics.polling.interval.secs
    How often the reporters in kafka.metrics.reporters poll.
kafka.metrics.reporters
    Java classes that report Kafka's older metrics. Ottla loads no Java classes.
metric.reporters
    Java classes that report metrics. Ottla loads no Java classes.
metrics.num.samples
    The number of samples over which a metric is computed.
metrics.recording.level
    Which metrics are recorded: INFO, DEBUG or TRACE.
metrics.sample.window.ms
    The length of each sample.
quota.window.num
    The number of samples over which a rate is measured. In Ottla this applies to max.connection.creation.rate: a
    burst is accepted as long as the average over all samples but the last does not exceed the rate.
quota.window.size.seconds
    The length of each sample.
telemetry.max.bytes
    The largest payload of client metrics that is accepted, before compression (KIP-714).
ottla.log.format
    The format of the broker's log messages: text, or json with one object per line.
ottla.log.level
    The lowest severity that is logged: debug, info, warning or error.
ottla.loop.turn.warn.ms
    If a turn of the event loop takes this long, the broker logs the code that ran, because all clients wait
    meanwhile. 0 disables it.
ottla.metrics.address
    HOST:PORT at which the broker serves its metrics over HTTP, at /metrics; port 0 takes a free one. Empty: nowhere.
ottla.metrics.remote
    Whether ottla.metrics.address may be one that other machines reach. They read the names of topics and groups there.
ottla.telemetry.otlp.url
    The URL of an OTLP/HTTP receiver, as in http://127.0.0.1:4318/v1/metrics, to which metrics that clients push are
    forwarded (KIP-714). Empty: nowhere.
"""
