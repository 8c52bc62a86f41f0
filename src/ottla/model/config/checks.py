"""Checks that involve several configs. Validators check single values."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.model.config.listeners import duplicate_errors
from ottla.model.config.metrics_address import metrics_errors
from ottla.model.config.topic import topic_default

if TYPE_CHECKING:
    from ottla.model.config.broker import BrokerConfig

_MIB = 1 << 20
_SESSION_TIMEOUTS = ("group", "group.consumer", "group.share", "group.streams")
_MODERN_GROUPS = ("group.consumer", "group.share", "group.streams")


def conflict_errors(config: "BrokerConfig") -> list[str]:
    """An error for each conflict between values."""
    return [
        *_log_errors(config),
        *_listener_errors(config),
        *_range_errors(config),
        *_node_errors(config),
        *_quorum_errors(config),
        *metrics_errors(config),
    ]


def _log_errors(config: "BrokerConfig") -> Iterator[str]:
    if _topic_ms(config, "segment.ms") < 1:
        yield "log.roll.ms must be greater than or equal to 1"
    if _topic_ms(config, "segment.jitter.ms") < 0:
        yield "log.roll.jitter.ms must be greater than or equal to 0"
    if _topic_ms(config, "retention.ms") == 0:
        yield "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"
    least = config.get_int("log.cleaner.min.compaction.lag.ms")
    most = config.get_int("log.cleaner.max.compaction.lag.ms")
    if least > most:
        yield (
            f"log.cleaner.min.compaction.lag.ms ({least}) must not be greater than "
            f"log.cleaner.max.compaction.lag.ms ({most})"
        )
    threads = config.get_int("log.cleaner.threads")
    if config.get_int("log.cleaner.dedupe.buffer.size") <= _MIB * threads:
        yield "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread."


def _topic_ms(config: "BrokerConfig", name: str) -> int:
    value = topic_default(name, config)
    return value if isinstance(value, int) else 0


def _listener_errors(config: "BrokerConfig") -> Iterator[str]:
    try:
        listeners, advertised = config.listeners, config.advertised_listeners
    except ValueError as error:
        yield str(error)
        return
    yield from duplicate_errors(listeners)
    names = {endpoint.name for endpoint in listeners}
    for endpoint in advertised:
        if endpoint.host in ("0.0.0.0", "::", ""):
            yield f"advertised.listeners has {endpoint}, an address that no client can connect to; set a host"
        if endpoint.name not in names:
            yield f"advertised.listeners has {endpoint}, but listeners has no {endpoint.name}; add it or remove this"
    if "broker" in config.get_list("process.roles") and not config.broker_listeners:
        yield "listeners has only controller listeners: a broker needs one for its clients, e.g. PLAINTEXT://:9092"
    inter_broker = config.get_str("inter.broker.listener.name").upper()
    if inter_broker and inter_broker not in names:
        yield f"inter.broker.listener.name is {inter_broker}, but listeners has no such name"


def _range_errors(config: "BrokerConfig") -> Iterator[str]:
    for low, high in _ordered_pairs():
        if config.get_int(low) > config.get_int(high):
            yield f"{low} ({config[low]}) must not be greater than {high} ({config[high]})"
    queued, request = config.get_int("queued.max.request.bytes"), config.get_int("socket.request.max.bytes")
    if 0 < queued < request:
        yield f"queued.max.request.bytes ({queued}) must be at least socket.request.max.bytes ({request}), or -1"
    idle = config.get_int("connections.max.idle.ms")
    if 0 <= idle <= config.get_int("connection.failed.authentication.delay.ms"):
        yield f"connection.failed.authentication.delay.ms must be less than connections.max.idle.ms ({idle})"
    for override in filter(None, config.get_str("max.connections.per.ip.overrides").split(",")):
        host, separator, count = override.strip().rpartition(":")
        if not host or not separator or not count.strip().isdigit():
            yield (
                f"Invalid value {override.strip()} for configuration max.connections.per.ip.overrides: "
                "expected HOST:COUNT"
            )


def _ordered_pairs() -> Iterator[tuple[str, str]]:
    yield "replica.fetch.wait.max.ms", "replica.socket.timeout.ms"
    yield "replica.fetch.wait.max.ms", "replica.lag.time.max.ms"
    for group in _SESSION_TIMEOUTS:
        yield f"{group}.min.session.timeout.ms", f"{group}.max.session.timeout.ms"
    for group in _MODERN_GROUPS:
        for setting in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms"):
            yield f"{group}.min.{setting}", f"{group}.{setting}"
            yield f"{group}.{setting}", f"{group}.max.{setting}"
    for setting in ("record.lock.duration.ms", "delivery.count.limit", "partition.max.record.locks"):
        yield f"group.share.min.{setting}", f"group.share.{setting}"
        yield f"group.share.{setting}", f"group.share.max.{setting}"


def _node_errors(config: "BrokerConfig") -> Iterator[str]:
    if config.get_int("broker.id") not in (-1, config.node_id):
        yield f"broker.id ({config['broker.id']}) and node.id ({config.node_id}) are set and differ; set node.id only"
    for name in ("offsets.topic.compression.codec", "share.coordinator.state.topic.compression.codec"):
        if not 0 <= config.get_int(name) <= 4:
            yield f"Invalid value {config[name]} for configuration {name}: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd"


def _quorum_errors(config: "BrokerConfig") -> Iterator[str]:
    """A controller must be a voter with an address; a node that is only a broker must know the voters."""
    roles = set(config.get_list("process.roles"))
    voters = {int(voter.partition("@")[0]) for voter in config.get_list("controller.quorum.voters")}
    known = ", ".join(map(str, sorted(voters)))
    if "controller" not in roles:
        if config.node_id in voters:
            yield (
                f"controller.quorum.voters has this node ({config.node_id}), but process.roles is broker. Add the role "
                "controller, or remove the node from controller.quorum.voters"
            )
        if not voters and not config.get_list("controller.quorum.bootstrap.servers"):
            yield (
                "process.roles is broker, but no controller is known. Set controller.quorum.voters, e.g. "
                "1@controller1:9093,2@controller2:9093,3@controller3:9093"
            )
        return
    if voters and config.node_id not in voters:
        yield (
            f"process.roles has controller, but controller.quorum.voters ({known}) does not have this node "
            f"({config.node_id}). Add it, or set process.roles=broker"
        )
    try:
        has_listener = bool(config.controller_listeners)
    except ValueError:
        return  # reported with the listeners
    has_found_voters = not voters and bool(config.get_list("controller.quorum.bootstrap.servers"))
    if not has_listener and (len(voters) > 1 or has_found_voters or "broker" not in roles):
        yield (
            "the other nodes of the quorum cannot reach this controller: listeners has none of "
            f"controller.listener.names ({', '.join(config.get_list('controller.listener.names'))}). Add one, e.g. "
            "CONTROLLER://:9093"
        )
