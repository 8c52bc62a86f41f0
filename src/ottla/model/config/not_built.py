"""What a broker's configuration asks for that is not built: the start is refused, with every reason."""

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from ottla.model.config.definition import ResourceType
from ottla.model.config.marks import fixed_while_running, refusals

if TYPE_CHECKING:
    from ottla.model.config.broker import BrokerConfig


def not_built(config: "BrokerConfig") -> list[str]:
    """Empty when the broker can do all that the properties it was given ask for."""
    return [
        *refusals(ResourceType.BROKER, config.static),
        *_listener_problems(config),
        *_quorum_problems(config),
        *_assignor_problems(config),
    ]


def not_built_dynamically(
    resource_type: int, configs: Mapping[str, str], altered: Collection[str]
) -> str | None:
    """Why a change to `configs` is refused, or None. What was stored before, and is not altered, may stay."""
    if resource_type == ResourceType.BROKER:
        for name in altered:
            if name in configs and (reason := fixed_while_running(name)) is not None:
                return (
                    f"{name} cannot be changed while the broker runs: {reason}. Set it in the file or by --set, "
                    "and restart the broker."
                )
    changed = {name: value for name, value in configs.items() if name in altered}
    return next(refusals(resource_type, changed), None)


def _listener_problems(config: "BrokerConfig") -> Iterator[str]:
    for listener in config.listeners:
        if listener.security_protocol != "PLAINTEXT":
            yield (
                f"listener {listener} asks for {listener.security_protocol}, but TLS and SASL are not built. "
                f"Map {listener.name} to PLAINTEXT in listener.security.protocol.map, and let only trusted hosts "
                "reach the port."
            )


def _quorum_problems(config: "BrokerConfig") -> Iterator[str]:
    if set(config.get_list("process.roles")) != {"broker", "controller"}:
        yield (
            f"process.roles is {','.join(config.get_list('process.roles'))}, but a node with one role is not built: "
            "a cluster is one node in this version. Set process.roles=broker,controller."
        )
    voters = config.get_list("controller.quorum.voters")
    if len(voters) > 1:
        yield (
            f"controller.quorum.voters names {len(voters)} voters, but a quorum of several nodes is not built. "
            "Name this node only, or remove it."
        )
    for voter in voters[:1]:
        if voter.partition("@")[0] != str(config.node_id):
            yield (
                f"controller.quorum.voters names node {voter.partition('@')[0]}, and this is node {config.node_id}: "
                "a quorum on another node is not built. Name this node only, or remove it."
            )
    servers = config.get_list("controller.quorum.bootstrap.servers")
    own_ports = {str(listener.port) for listener in config.controller_listeners}
    if len(servers) > 1 or any(server.rpartition(":")[2] not in own_ports for server in servers):
        yield (
            f"controller.quorum.bootstrap.servers is {','.join(servers)}, but a quorum on another node is not "
            "built. Name this node's controller listener only, or remove it."
        )


def _assignor_problems(config: "BrokerConfig") -> Iterator[str]:
    known = ("uniform", "range")
    for name in config.get_list("group.consumer.assignors"):
        if name not in known:
            yield (
                f"group.consumer.assignors names {name}, but only {' and '.join(known)} are built: Java classes "
                "are not run. Remove it."
            )
