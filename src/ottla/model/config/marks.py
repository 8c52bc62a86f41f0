"""Which configs do nothing here, and why; and which are refused, because they promise what is not built.

A config is used by the code, or marked here: a test holds that. A refused config may be set to its default only. A
config without effect is accepted and reported, so that a file written for Apache Kafka works as it is.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ottla.model.config.definition import ConfigDef, ResourceType
from ottla.model.config.definitions import definition_of, without_listener_prefix

_BROKER, _TOPIC, _GROUP = ResourceType.BROKER, ResourceType.TOPIC, ResourceType.GROUP


class Mark(NamedTuple):
    is_refused: bool
    reason: (
        str  # what is not built, or why it has no effect: continues the sentence "NAME has no effect: ..."
    )
    remedy: str = ""  # what to do instead, for a refusal


def _refused(reason: str, remedy: str) -> Mark:
    return Mark(True, reason, remedy)


def _no_effect(reason: str) -> Mark:
    return Mark(False, reason)


_NO_TLS = _refused(
    "TLS is not built", "Remove it, and let only trusted hosts reach the port or put a TLS proxy before it"
)
_NO_SASL = _refused(
    "SASL authentication is not built", "Remove it, and let only trusted hosts reach the port"
)
_NO_TOKENS = _refused("delegation tokens are not built", "Remove it")
_NO_AUTHORIZER = _refused(
    "authorization is not built: every client may do everything",
    "Remove it, and let only trusted clients reach the port",
)
_NO_POLICY = _refused(
    "policy classes are Java classes and are not run", "Remove it, and check requests before they are sent"
)
_NO_PROVIDERS = _refused(
    "config providers are not built: a value is taken as it is written",
    "Remove it, and write the values into the file or pass them with --set",
)
_NO_TIERED_STORAGE = _refused("tiered storage is not built", "Remove it; all segments stay on local disks")
_STATIC_LISTENERS = "listeners are opened at the start only"

_ONE_NODE = _no_effect("a cluster is one node in this version, and has no other to talk to")
_ONE_REPLICA = _no_effect("a partition has one replica in this version")
_NO_THREADS = _no_effect("one event loop does this work; there is no such pool of threads")
_NO_SHARE_GROUPS = _no_effect("share groups are not built; their requests are refused")
_NO_STREAMS_GROUPS = _no_effect("streams groups are not built; their requests are refused")
_TIERED_ONLY = _no_effect("only tiered storage uses it, and that is not built")
_NO_CLIENT_QUOTAS = _no_effect("client quotas are not built; their requests are refused")
_NO_JVM_METRICS = _no_effect("it configures the metrics of a Java process")
_NO_PURGATORY_SWEEP = _no_effect("a completed request leaves the purgatory at once")
_APPENDED_AT_ONCE = _no_effect("a coordinator appends each decision at once")

# A name that ends with a dot stands for all names that begin with it, unless they have an entry of their own.
_MARKS: Mapping[ResourceType, Mapping[str, Mark]] = {
    _BROKER: {
        "ssl.": _NO_TLS,
        "sasl.": _NO_SASL,
        "security.inter.broker.protocol": _NO_TLS,
        "security.providers": _NO_TLS,
        "principal.builder.class": _NO_SASL,
        "connections.max.reauth.ms": _NO_SASL,
        "delegation.token.": _NO_TOKENS,
        "authorizer.class.name": _NO_AUTHORIZER,
        "super.users": _NO_AUTHORIZER,
        "allow.everyone.if.no.acl.found": _NO_AUTHORIZER,
        "alter.config.policy.class.name": _NO_POLICY,
        "create.topic.policy.class.name": _NO_POLICY,
        "client.quota.callback.class": _refused("client quotas are not built", "Remove it"),
        "config.providers": _NO_PROVIDERS,
        "config.providers.": _NO_PROVIDERS,
        "remote.log.storage.system.enable": _NO_TIERED_STORAGE,
        "remote.log.storage.manager.class.name": _NO_TIERED_STORAGE,
        "remote.log.storage.manager.class.path": _NO_TIERED_STORAGE,
        "remote.log.metadata.manager.class.name": _NO_TIERED_STORAGE,
        "remote.log.metadata.manager.class.path": _NO_TIERED_STORAGE,
        "rsm.config.": _NO_TIERED_STORAGE,
        "rlmm.config.": _NO_TIERED_STORAGE,
        "controller.quorum.auto.join.enable": _refused(
            "a quorum of several voters (KIP-853) is not built", "Remove it; this node is its own quorum"
        ),
        "cordoned.log.dirs": _refused(
            "cordoned log directories (KIP-1066) are not built", "Remove the directory from log.dirs instead"
        ),
        "group.share.persister.class.name": _refused("share groups are not built", "Remove it"),
        "background.threads": _NO_THREADS,
        "num.io.threads": _NO_THREADS,
        "num.network.threads": _NO_THREADS,
        "group.coordinator.threads": _NO_THREADS,
        "group.coordinator.background.threads": _NO_THREADS,
        "num.replica.alter.log.dirs.threads": _no_effect("replicas move between directories one at a time"),
        "queued.max.requests": _no_effect(
            "a connection has one request at work and the broker no queue of requests; "
            "queued.max.request.bytes limits the memory"
        ),
        "connection.failed.authentication.delay.ms": _no_effect("nobody authenticates"),
        "early.start.listeners": _no_effect("there is no authorizer that a listener would wait for"),
        "delete.records.purgatory.purge.interval.requests": _NO_PURGATORY_SWEEP,
        "fetch.purgatory.purge.interval.requests": _NO_PURGATORY_SWEEP,
        "producer.purgatory.purge.interval.requests": _NO_PURGATORY_SWEEP,
        "inter.broker.listener.name": _ONE_NODE,
        "socket.connection.setup.timeout.max.ms": _ONE_NODE,
        "socket.connection.setup.timeout.ms": _ONE_NODE,
        "broker.heartbeat.interval.ms": _ONE_NODE,
        "broker.session.timeout.ms": _ONE_NODE,
        "initial.broker.registration.timeout.ms": _ONE_NODE,
        "controller.quorum.append.linger.ms": _ONE_NODE,
        "controller.quorum.election.backoff.max.ms": _ONE_NODE,
        "controller.quorum.election.timeout.ms": _ONE_NODE,
        "controller.quorum.fetch.max.bytes": _ONE_NODE,
        "controller.quorum.fetch.snapshot.max.bytes": _ONE_NODE,
        "controller.quorum.fetch.timeout.ms": _ONE_NODE,
        "controller.quorum.request.timeout.ms": _ONE_NODE,
        "controller.quorum.retry.backoff.ms": _ONE_NODE,
        "controller.socket.timeout.ms": _ONE_NODE,
        "controller.quota.": _NO_CLIENT_QUOTAS,
        "controller.performance.": _no_effect("the controller keeps no such statistics"),
        "metadata.max.idle.interval.ms": _no_effect(
            "no other node follows the metadata log, so it needs no records that show the leader alive"
        ),
        "internal.metadata.max.batch.size.in.bytes": _no_effect("a decision is one batch of any size"),
        "server.max.startup.time.ms": _no_effect("a start takes the time that recovery needs"),
        "unstable.feature.": _no_effect("no unstable version of a feature is built"),
        "log.dir.failure.timeout.ms": _no_effect(
            "the node is its own controller, and knows of a failed directory at once"
        ),
        "alter.log.dirs.replication.quota.": _no_effect(
            "the throttle of moves counts every copied segment, not samples"
        ),
        "auto.leader.rebalance.enable": _ONE_REPLICA,
        "leader.imbalance.check.interval.seconds": _ONE_REPLICA,
        "controlled.shutdown.enable": _ONE_REPLICA,
        "num.replica.fetchers": _ONE_REPLICA,
        "replica.fetch.": _ONE_REPLICA,
        "replica.selector.class": _ONE_REPLICA,
        "replica.socket.": _ONE_REPLICA,
        "replication.quota.": _ONE_REPLICA,
        "follower.replication.throttled.rate": _ONE_REPLICA,
        "leader.replication.throttled.rate": _ONE_REPLICA,
        "unclean.leader.election.enable": _ONE_REPLICA,
        "unclean.leader.election.interval.ms": _ONE_REPLICA,
        "group.coordinator.append.linger.ms": _APPENDED_AT_ONCE,
        "group.coordinator.cached.buffer.max.bytes": _APPENDED_AT_ONCE,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": _no_effect(
            "every transaction has a timer of its own and is aborted when that ends"
        ),
        "group.share.": _NO_SHARE_GROUPS,
        "share.": _NO_SHARE_GROUPS,
        "group.streams.": _NO_STREAMS_GROUPS,
        "follower.fetch.last.tiered.offset.enable": _TIERED_ONLY,
        "log.local.retention.": _TIERED_ONLY,
        "remote.": _TIERED_ONLY,
        "kafka.metrics.": _NO_JVM_METRICS,
        "metric.reporters": _NO_JVM_METRICS,
        "metrics.": _NO_JVM_METRICS,
    },
    _TOPIC: {
        "remote.storage.enable": _NO_TIERED_STORAGE,
        "remote.log.copy.disable": _NO_TIERED_STORAGE,
        "remote.log.delete.on.disable": _NO_TIERED_STORAGE,
        "local.retention.": _TIERED_ONLY,
        "follower.replication.throttled.replicas": _ONE_REPLICA,
        "leader.replication.throttled.replicas": _ONE_REPLICA,
        "unclean.leader.election.enable": _ONE_REPLICA,
    },
    _GROUP: {"share.": _NO_SHARE_GROUPS, "streams.": _NO_STREAMS_GROUPS},
}

# Read at the start; a change while the broker runs is refused, though Kafka would take it.
_FIXED_WHILE_RUNNING: Mapping[str, str] = {
    "listeners": _STATIC_LISTENERS,
    "listener.security.protocol.map": _STATIC_LISTENERS,
}


def mark_of(resource_type: int, name: str) -> Mark | None:
    """None for a config that takes effect, or that nobody knows."""
    marks = _MARKS.get(ResourceType(resource_type), {})
    if resource_type == _BROKER:
        name = without_listener_prefix(name)
    prefix = name
    while prefix:
        if prefix in marks and (prefix == name or prefix.endswith(".")):
            return marks[prefix]
        prefix = prefix[:-1].rpartition(".")[0] + "." if "." in prefix[:-1] else ""
    return None


def fixed_while_running(name: str) -> str | None:
    """Why a config that Kafka changes dynamically cannot be changed while this broker runs; else None."""
    return _FIXED_WHILE_RUNNING.get(name)


def marked_names(resource_type: ResourceType) -> tuple[str, ...]:
    """All names and prefixes with a mark."""
    return tuple(_MARKS.get(resource_type, ()))


def refusals(resource_type: int, configs: Mapping[str, str]) -> Iterator[str]:
    """A sentence for every config that is set to more than its default and promises what is not built."""
    for name, value in configs.items():
        mark = mark_of(resource_type, name)
        if mark is not None and mark.is_refused and not _is_default(resource_type, name, value):
            yield refusal(name, mark)


def refusal(name: str, mark: Mark) -> str:
    return f"{name} is set, but {mark.reason}. {mark.remedy}."


def _is_default(resource_type: int, name: str, value: str) -> bool:
    definition: ConfigDef | None = definition_of(resource_type, name)
    if definition is None:
        return False
    try:
        parsed = definition.parse(value)
    except ValueError:
        return False
    # An empty class name or path names nothing, as null does.
    return parsed == definition.default or (definition.default is None and parsed == "")
