"""The configurations of the workers of `ottla serve --workers N`: several brokers on one host.

Worker 1 is the node that `ottla serve` would run without workers: it has the configured node.id, roles, ports and
folders. The others are brokers that differ in these only. So the number of workers may change later.
"""

import contextlib
import socket
from collections.abc import Iterable, Sequence

from ottla.model.config import BrokerConfig, ConfigError, Endpoint
from ottla.model.config.cordoned import ALL, CORDONED_LOG_DIRS

WORKERS_MAX = 64
# Ids and ports of worker K are those of worker 1 plus K - 1 times these.
ID_STEP = 1000
PORT_STEP = 10
FOLDER = "workers"
_CONTROLLER_PORTS = 10_000  # above the broker's port
_PORT_MAX = 65_535
_QUORUM = ("controller.quorum.voters", "controller.quorum.bootstrap.servers")
# Replicas on one host do not survive its loss. As on a single node, one is the default.
_ON_ONE_HOST = (
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "transaction.state.log.min.isr",
)


def plan_workers(config: BrokerConfig, count: int) -> list[BrokerConfig]:
    """Raises ConfigError if the configuration cannot have workers."""
    _check(config)
    shared = dict(config.static)
    shared.pop("broker.id", None)
    shared.pop("log.dir", None)
    shared |= {"node.id": str(config.node_id), "log.dirs": ",".join(config.log_dirs)}
    controllers = [str(each) for each in config.controller_listeners]
    if is_own_quorum(config):
        if not controllers:
            controllers = [f"CONTROLLER://127.0.0.1:{_controller_port(config)}"]
            shared["controller.listener.names"] = "CONTROLLER"
        address = controllers[0].partition("://")[2]
        if address.startswith(":"):
            address = f"127.0.0.1{address}"
        shared["controller.quorum.voters"] = f"{config.node_id}@{address}"
        shared |= {name: "1" for name in _ON_ONE_HOST if not config.is_set(name)}
    brokers = config.broker_listeners
    shared.setdefault("inter.broker.listener.name", brokers[0].name)
    first = shared | {"listeners": ",".join([*map(str, brokers), *controllers])}
    others = [shared | _differences(config, number) for number in range(2, count + 1)]
    return [BrokerConfig(properties) for properties in (first, *others)]


def is_own_quorum(config: BrokerConfig) -> bool:
    """Whether worker 1 is the only controller: no config names others."""
    return not any(map(config.is_set, _QUORUM))


def _check(config: BrokerConfig) -> None:
    if "broker" not in config.get_list("process.roles"):
        raise ConfigError(["--workers is for brokers, and process.roles is controller. Remove it"])
    if not 0 <= config.node_id < ID_STEP:
        raise ConfigError(
            [
                f"node.id={config.node_id}: with --workers it must be below {ID_STEP}, because the ids of the workers "
                f"are node.id, node.id + {ID_STEP}, node.id + {2 * ID_STEP}, ..."
            ]
        )


def _differences(config: BrokerConfig, number: int) -> dict[str, str]:
    """Of worker `number`, which is not the first, from what all share."""
    result = {
        "node.id": str(config.node_id + (number - 1) * ID_STEP),
        "process.roles": "broker",
        "listeners": _shifted(config.broker_listeners, number),
        "log.dirs": ",".join(worker_folder(path, number) for path in config.log_dirs),
    }
    names = {each.name for each in config.broker_listeners}
    if advertised := [each for each in config.advertised_listeners if each.name in names]:
        result["advertised.listeners"] = _shifted(advertised, number)
    if metadata := config.get_str("metadata.log.dir"):
        result["metadata.log.dir"] = worker_folder(metadata, number)
    if cordoned := config.get_list(CORDONED_LOG_DIRS):
        result[CORDONED_LOG_DIRS] = ",".join(
            path if path == ALL else worker_folder(path, number) for path in cordoned
        )
    host, separator, port = config.get_str("ottla.metrics.address").rpartition(":")
    if separator and port.isdecimal():
        result["ottla.metrics.address"] = f"{host}:{_port(int(port), number, 'ottla.metrics.address')}"
    return result


def worker_folder(path: str, number: int) -> str:
    """Inside the folder of worker 1, so that it is on the same disk."""
    return f"{path.rstrip('/')}/{FOLDER}/{number}"


def _shifted(endpoints: Iterable[Endpoint], number: int) -> str:
    return ",".join(
        str(each._replace(port=_port(each.port, number, f"listener {each.name}"))) for each in endpoints
    )


def _port(port: int, number: int, what: str) -> int:
    """Port 0 picks a free one for each worker."""
    shifted = port + (number - 1) * PORT_STEP if port else 0
    if shifted > _PORT_MAX:
        raise ConfigError(
            [f"{what}: worker {number} would have port {shifted}. Set a lower port or fewer workers"]
        )
    return shifted


def _controller_port(config: BrokerConfig) -> int:
    """Only the workers connect to it, so any port will do."""
    wanted = config.broker_listeners[0].port
    wanted = wanted + _CONTROLLER_PORTS if 0 < wanted <= _PORT_MAX - _CONTROLLER_PORTS else 0
    for port in (wanted, 0):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)) as probe:
            return int(probe.getsockname()[1])
    raise ConfigError(["no port is free for the controller on 127.0.0.1"])


def arguments_of(config: BrokerConfig) -> Sequence[str]:
    """The options of `ottla serve` that give a worker exactly this configuration."""
    return [part for name, value in config.static.items() for part in ("--set", f"{name}={value}")]
