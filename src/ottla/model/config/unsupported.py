"""Configs of Kafka that Ottla does not support: they are rejected, or have no effect.

Each config is used by the code or listed here; a test checks that. A rejected config may only be set to its default. A
config without effect is accepted and reported, so that a file for Apache Kafka works as it is.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ottla.model.config.definition import ConfigDef, ResourceType
from ottla.model.config.definitions import definition_of, without_listener_prefix

if TYPE_CHECKING:
    from ottla.model.config.broker import BrokerConfig

_BROKER, _TOPIC, _GROUP = ResourceType.BROKER, ResourceType.TOPIC, ResourceType.GROUP


class Unsupported(NamedTuple):
    """`reason` continues the sentence "NAME is set, but ..." or "NAME has no effect: ..."; `remedy` is for
    rejections.
    """

    is_rejected: bool
    reason: str
    remedy: str = ""


def _rejected(reason: str, remedy: str) -> Unsupported:
    return Unsupported(True, reason, remedy)


def _no_effect(reason: str) -> Unsupported:
    return Unsupported(False, reason)


_NO_TLS = _rejected(
    "TLS is not supported",
    "Remove it, and let only trusted hosts reach the port, or put a TLS proxy in front of it",
)
_NO_SASL = _rejected(
    "SASL authentication is not supported", "Remove it, and let only trusted hosts reach the port"
)
_NO_TOKENS = _rejected("delegation tokens are not supported", "Remove it")
_NO_AUTHORIZER = _rejected(
    "authorization is not supported: every client may do everything",
    "Remove it, and let only trusted clients reach the port",
)
_NO_POLICY = _rejected(
    "policy classes are Java classes, which are not run", "Remove it, and check requests before they are sent"
)
_NO_PROVIDERS = _rejected(
    "config providers are not supported: values are used literally",
    "Remove it, and write the values into the file or pass them with --set",
)
_NO_TIERED_STORAGE = _rejected(
    "tiered storage is not supported", "Remove it; all segments stay on local disks"
)
_STATIC_LISTENERS = "listeners are opened only at startup"

_NO_THREADS = _no_effect("one event loop does this work; there is no such thread pool")
_NO_SHARE_GROUPS = _no_effect("share groups are not supported; their requests are rejected")
_NO_STREAMS_GROUPS = _no_effect("streams groups are not supported; their requests are rejected")
_TIERED_ONLY = _no_effect("only tiered storage uses it, and that is not supported")
_NO_CLIENT_QUOTAS = _no_effect("client quotas are not supported; their requests are rejected")
_NO_JVM_METRICS = _no_effect("it configures the metrics of a Java process")
_NO_PURGATORY_PURGE = _no_effect("completed requests are removed from the purgatory at once")
_APPENDED_AT_ONCE = _no_effect("a coordinator appends the records of each request at once")

# A name that ends with a dot is a prefix of names that have no entry of their own.
_UNSUPPORTED: Mapping[ResourceType, Mapping[str, Unsupported]] = {
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
        "client.quota.callback.class": _rejected("client quotas are not supported", "Remove it"),
        "config.providers": _NO_PROVIDERS,
        "config.providers.": _NO_PROVIDERS,
        "remote.log.storage.system.enable": _NO_TIERED_STORAGE,
        "remote.log.storage.manager.class.name": _NO_TIERED_STORAGE,
        "remote.log.storage.manager.class.path": _NO_TIERED_STORAGE,
        "remote.log.metadata.manager.class.name": _NO_TIERED_STORAGE,
        "remote.log.metadata.manager.class.path": _NO_TIERED_STORAGE,
        "rsm.config.": _NO_TIERED_STORAGE,
        "rlmm.config.": _NO_TIERED_STORAGE,
        "group.share.persister.class.name": _rejected("share groups are not supported", "Remove it"),
        "background.threads": _NO_THREADS,
        "num.io.threads": _NO_THREADS,
        "num.network.threads": _NO_THREADS,
        "group.coordinator.threads": _NO_THREADS,
        "group.coordinator.background.threads": _NO_THREADS,
        "num.replica.alter.log.dirs.threads": _no_effect("replicas move between directories one at a time"),
        "queued.max.requests": _no_effect(
            "the broker processes one request per connection at a time and has no request queue; "
            "queued.max.request.bytes limits the memory"
        ),
        "connection.failed.authentication.delay.ms": _no_effect("authentication is not supported"),
        "early.start.listeners": _no_effect("there is no authorizer to wait for"),
        "delete.records.purgatory.purge.interval.requests": _NO_PURGATORY_PURGE,
        "fetch.purgatory.purge.interval.requests": _NO_PURGATORY_PURGE,
        "producer.purgatory.purge.interval.requests": _NO_PURGATORY_PURGE,
        "socket.connection.setup.timeout.": _no_effect(
            "the timeout of a request includes that of its connection"
        ),
        "controller.quorum.append.linger.ms": _no_effect(
            "all changes that are decided while the disk is busy are written together"
        ),
        "controller.quota.": _NO_CLIENT_QUOTAS,
        "controller.performance.": _no_effect("the controller keeps no such statistics"),
        "internal.metadata.max.batch.size.in.bytes": _no_effect("each change is one batch of any size"),
        "server.max.startup.time.ms": _no_effect("startup takes as long as recovery needs"),
        "unstable.feature.": _no_effect("no unstable feature version is supported"),
        "log.dir.failure.timeout.ms": _no_effect(
            "the node is its own controller and notices a failed directory at once"
        ),
        "alter.log.dirs.replication.quota.": _no_effect(
            "the throttle between log directories measures each copied segment, not samples"
        ),
        "replica.socket.receive.buffer.bytes": _no_effect(
            "the kernel tunes the buffers of connections between brokers"
        ),
        "group.coordinator.append.linger.ms": _APPENDED_AT_ONCE,
        "group.coordinator.cached.buffer.max.bytes": _APPENDED_AT_ONCE,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": _no_effect(
            "each transaction has its own timer and is aborted when that expires"
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
    },
    _GROUP: {"share.": _NO_SHARE_GROUPS, "streams.": _NO_STREAMS_GROUPS},
}

# Read only at startup. A change while the broker runs is rejected, though Kafka accepts it.
_STATIC_CONFIGS: Mapping[str, str] = {
    "listeners": _STATIC_LISTENERS,
    "listener.security.protocol.map": _STATIC_LISTENERS,
}


def unsupported_config(resource_type: int, name: str) -> Unsupported | None:
    """None if the config is supported or unknown."""
    configs = _UNSUPPORTED.get(ResourceType(resource_type), {})
    if resource_type == _BROKER:
        name = without_listener_prefix(name)
    prefix = name
    while prefix:
        if prefix in configs and (prefix == name or prefix.endswith(".")):
            return configs[prefix]
        prefix = prefix[:-1].rpartition(".")[0] + "." if "." in prefix[:-1] else ""
    return None


def _static_reason(name: str) -> str | None:
    """Why a config that is dynamic in Kafka cannot be changed while this broker runs; else None."""
    return _STATIC_CONFIGS.get(name)


def unsupported_names(resource_type: ResourceType) -> tuple[str, ...]:
    """All names and prefixes of unsupported configs."""
    return tuple(_UNSUPPORTED.get(resource_type, ()))


def rejection_errors(resource_type: int, configs: Mapping[str, str]) -> Iterator[str]:
    """An error for each rejected config that is not set to its default."""
    for name, value in configs.items():
        unsupported = unsupported_config(resource_type, name)
        if (
            unsupported is not None
            and unsupported.is_rejected
            and not _is_default(resource_type, name, value)
        ):
            yield rejection_error(name, unsupported)


def rejection_error(name: str, unsupported: Unsupported) -> str:
    return f"{name} is set, but {unsupported.reason}. {unsupported.remedy}."


def _is_default(resource_type: int, name: str, value: str) -> bool:
    definition: ConfigDef | None = definition_of(resource_type, name)
    if definition is None:
        return False
    try:
        parsed = definition.parse(value)
    except ValueError:
        return False
    # An empty class name or path is the same as null.
    return parsed == definition.default or (definition.default is None and parsed == "")


def unsupported_errors(config: "BrokerConfig") -> list[str]:
    """An error for each property that prevents the broker from starting, because it is not supported."""
    return [
        *rejection_errors(ResourceType.BROKER, config.static),
        *_listener_errors(config),
        *_selector_errors(config),
        *_assignor_errors(config),
    ]


def unsupported_change_error(
    resource_type: int, configs: Mapping[str, str], altered: Collection[str]
) -> str | None:
    """The error for a change to `configs`, or None. Ignores values that are not in `altered`: they are stored
    already.
    """
    if resource_type == ResourceType.BROKER:
        for name in altered:
            if name in configs and (reason := _static_reason(name)) is not None:
                return (
                    f"{name} cannot be changed while the broker runs: {reason}. Set it in the file or by --set, "
                    "and restart the broker."
                )
    changed = {name: value for name, value in configs.items() if name in altered}
    return next(rejection_errors(resource_type, changed), None)


def _listener_errors(config: "BrokerConfig") -> Iterator[str]:
    for listener in config.listeners:
        if listener.security_protocol != "PLAINTEXT":
            yield (
                f"listener {listener} asks for {listener.security_protocol}, but TLS and SASL are not supported. "
                f"Map {listener.name} to PLAINTEXT in listener.security.protocol.map, and let only trusted hosts "
                "reach the port."
            )


def _selector_errors(config: "BrokerConfig") -> Iterator[str]:
    selector = config.get_str("replica.selector.class")
    known = ("RackAwareReplicaSelector", "LeaderSelector")
    if selector and selector not in [f"org.apache.kafka.common.replica.{name}" for name in known]:
        yield (
            f"replica.selector.class is {selector}, but only {' and '.join(known)} of org.apache.kafka.common.replica "
            "are supported: Ottla does not run Java classes. Remove it."
        )


def _assignor_errors(config: "BrokerConfig") -> Iterator[str]:
    known = ("uniform", "range")
    for name in config.get_list("group.consumer.assignors"):
        if name not in known:
            yield (
                f"group.consumer.assignors has {name}, but only {' and '.join(known)} are supported: Ottla does not "
                "run Java classes. Remove it."
            )
