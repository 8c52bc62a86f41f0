"""The nodes of a local cluster: their ids, roles, ports, directories and server.properties."""

import contextlib
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import typer

from ottla.cli.output import CommandError
from ottla.model.config.properties import parse_properties

SERVER_PROPERTIES = "server.properties"
NODE_LOG = "node.log"
# Controllers without the broker role are numbered from here on, so that brokers can be added.
FIRST_CONTROLLER_ID = 101
NODES_MAX = FIRST_CONTROLLER_ID - 1
_CONTROLLER_PORTS = 10_000  # above those of the brokers
_PORT_MAX = 65_535
_HEADER = """\
# Written by `ottla cluster up`, and again each time it starts.
# Run this node by hand: ottla serve --config {path}
"""


class NodeLayout(NamedTuple):
    """The addresses are HOST:PORT; None if the node does not have the role."""

    node_id: int
    directory: Path
    broker_address: str | None
    controller_address: str | None

    @property
    def roles(self) -> str:
        roles = [("broker", self.broker_address), ("controller", self.controller_address)]
        return ",".join(role for role, address in roles if address is not None)

    @property
    def properties_path(self) -> Path:
        return self.directory / SERVER_PROPERTIES


def plan_nodes(data: Path, brokers: int, controllers: int, host: str, port: int) -> list[NodeLayout]:
    """Brokers have consecutive ports from `port` on; port 0 means any. Without `controllers`, every broker is one.

    Raises CommandError if a port of a broker is in use, and BadParameter if it would be too large.
    """
    if port + brokers - 1 > _PORT_MAX:
        raise typer.BadParameter(
            f"port {port} is too large for {brokers} brokers: the last would have port {port + brokers - 1}",
            param_hint="--listen",
        )
    broker_ids = list(range(1, brokers + 1))
    controller_ids = list(range(FIRST_CONTROLLER_ID, FIRST_CONTROLLER_ID + controllers)) or broker_ids
    with contextlib.ExitStack() as held:
        # All ports stay bound until the last one is chosen: otherwise two could be the same.
        addresses = {
            node_id: _bind(held, host, port + index if port else 0)
            for index, node_id in enumerate(broker_ids)
        }
        controller_addresses = {
            node_id: _bind_preferred(held, host, port + _CONTROLLER_PORTS + index if port else 0)
            for index, node_id in enumerate(controller_ids)
        }
    return [
        NodeLayout(
            node_id, data / f"node-{node_id}", addresses.get(node_id), controller_addresses.get(node_id)
        )
        for node_id in sorted({*broker_ids, *controller_ids})
    ]


def _bind(held: contextlib.ExitStack, host: str, port: int) -> str:
    try:
        probe = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise CommandError(
            f"no node can listen on {_address(host, port)}: {error.strerror or error}. Choose another address with "
            "--listen; port 0 picks free ports"
        ) from None
    held.enter_context(probe)
    return _address(host, probe.getsockname()[1])


def _bind_preferred(held: contextlib.ExitStack, host: str, port: int) -> str:
    """Any port if `port` is in use or too large: nobody but the nodes connects to it."""
    if 0 < port <= _PORT_MAX:
        with contextlib.suppress(CommandError):
            return _bind(held, host, port)
    return _bind(held, host, 0)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def properties_of(
    node: NodeLayout, nodes: Sequence[NodeLayout], settings: Mapping[str, str]
) -> dict[str, str]:
    """The server.properties of one node; `settings` are the user's."""
    listeners = {"PLAINTEXT": node.broker_address, "CONTROLLER": node.controller_address}
    properties = {
        "process.roles": node.roles,
        "node.id": str(node.node_id),
        "controller.quorum.voters": ",".join(
            f"{voter.node_id}@{voter.controller_address}" for voter in nodes if voter.controller_address
        ),
        "controller.listener.names": "CONTROLLER",
        "listeners": ",".join(f"{name}://{address}" for name, address in listeners.items() if address),
        "log.dirs": str(node.directory),
    }
    if node.broker_address is not None:
        properties["inter.broker.listener.name"] = "PLAINTEXT"
        properties |= _replication_properties(sum(1 for each in nodes if each.broker_address))
    for name in settings:
        if name in _OF_EACH_NODE:
            raise CommandError(
                f"--set {name}: `ottla cluster up` sets it itself, differently for each node. Remove it"
            )
    return properties | dict(settings)


def _replication_properties(brokers: int) -> dict[str, str]:
    """With three brokers, acknowledged records survive the loss of any one."""
    replicas = min(3, brokers)
    in_sync = max(replicas - 1, 1)
    return {
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(in_sync),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(in_sync),
    }


_OF_EACH_NODE = {
    "process.roles",
    "node.id",
    "broker.id",
    "controller.quorum.voters",
    "controller.quorum.bootstrap.servers",
    "controller.listener.names",
    "inter.broker.listener.name",
    "listeners",
    "advertised.listeners",
    "log.dir",
    "log.dirs",
    "metadata.log.dir",
}


def properties_text(node: NodeLayout, properties: Mapping[str, str]) -> str:
    lines = [f"{name}={_escape(value)}\n" for name, value in properties.items()]
    return _HEADER.format(path=node.properties_path) + "".join(lines)


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\")


def node_command(properties: Path) -> list[str]:
    """The command line of a node."""
    return [sys.executable, "-m", "ottla.cli.main", "serve", "--config", str(properties)]


def check_voters(data: Path, nodes: Sequence[NodeLayout]) -> None:
    """Raises CommandError if the cluster in `data` has other voters: static voters cannot be changed."""
    planned = {node.node_id for node in nodes if node.controller_address is not None}
    for path in sorted(data.glob(f"node-*/{SERVER_PROPERTIES}")):
        text = parse_properties(path.read_text(encoding="utf-8")).get("controller.quorum.voters", "")
        voters = {
            int(part) for part in (voter.partition("@")[0] for voter in text.split(",")) if part.isdigit()
        }
        if voters and voters != planned:
            raise CommandError(
                f"the cluster in {data} has the voters {_list(voters)}, and these options ask for {_list(planned)}. "
                "The voters of a cluster cannot be changed. Start it with the --nodes and --controllers that it was "
                "created with, or choose another folder with --data"
            )


def _list(ids: set[int]) -> str:
    return ", ".join(map(str, sorted(ids)))
