"""Texts for broker configs of topic administration, metrics, quotas, plug-ins, and Ottla's own."""

TEXT = """
alter.config.policy.class.name
    A Java class that approves config changes in Kafka. Ottla loads no Java classes.
auto.create.topics.enable
    Whether a topic is created when a client that allows it asks for its metadata.
client.quota.callback.class
    A Java class that decides client quotas in Kafka. Ottla loads no Java classes.
config.providers
    Aliases of Java classes that resolve variables in configs in Kafka. Ottla loads no Java classes.
controller.quota.window.num
    Over how many samples the quota of controller mutations is measured.
controller.quota.window.size.seconds
    How long each of these samples is.
create.topic.policy.class.name
    A Java class that approves new topics in Kafka. Ottla loads no Java classes.
delete.topic.enable
    Whether topics can be deleted.
kafka.metrics.polling.interval.secs
    How often the reporters in kafka.metrics.reporters poll.
kafka.metrics.reporters
    Java classes that report Kafka's older metrics. Ottla loads no Java classes.
metric.reporters
    Java classes that report metrics. Ottla loads no Java classes.
metrics.num.samples
    Over how many samples a metric is computed.
metrics.recording.level
    Which metrics are recorded: INFO, DEBUG or TRACE.
metrics.sample.window.ms
    How long each of these samples is.
quota.window.num
    Over how many samples a rate is measured: here that of max.connection.creation.rate, which may be exceeded for
    as long as the average over all samples but the last keeps to it.
quota.window.size.seconds
    How long each of these samples is.
telemetry.max.bytes
    The largest payload of client metrics that is accepted, before compression (KIP-714).
ottla.log.format
    How the broker logs: text for people, or json, one object per line.
ottla.log.level
    The least severity that is logged: debug, info, warning or error.
ottla.loop.turn.warn.ms
    A turn of the event loop that takes this long is logged with the code that held it: every client waited for it. 0
    logs none.
"""
