"""Sets and removes the throttles of a reassignment (KIP-73), with the configs that Kafka's tool uses too."""

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress

from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.incremental_alter_configs.v1.response import IncrementalAlterConfigsResponse
from kio.static.primitive import i8

from ottla.admin.cluster import Cluster, UnknownTopicError
from ottla.admin.configs import alter_configs, describe_configs
from ottla.admin.nodes import Node, call, check_error
from ottla.admin.reassignment_plan import ClusterState, Plan, added_replicas
from ottla.model.config import ResourceType

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
_ALL = "*"
_SET, _DELETE = i8(0), i8(1)


def throttled_replicas(plan: Plan, state: ClusterState) -> dict[str, dict[str, list[str]]]:
    """By topic and config, the replicas of a plan: those that may send, and those that are added."""
    found: dict[str, dict[str, list[str]]] = {}
    for partition, added in sorted(added_replicas(plan, state).items()):
        lists = found.setdefault(partition.topic, {LEADERS: [], FOLLOWERS: []})
        senders = [each for each in state.partitions[partition].replicas if each not in added]
        lists[LEADERS] += [f"{partition.partition}:{broker}" for broker in senders]
        lists[FOLLOWERS] += [f"{partition.partition}:{broker}" for broker in added]
    return found


def set_throttles(
    cluster: Cluster, nodes: Iterable[Node], replicas: Mapping[str, Mapping[str, list[str]]], rate: int
) -> None:
    """Adds `replicas` to those that are throttled already, and sets the rate on the brokers."""
    for topic, lists in replicas.items():
        present = {line.name: line.value or "" for line in describe_configs(cluster, "topic", topic)}
        changes = {name: _merge(present.get(name, ""), added) for name, added in lists.items() if added}
        alter_configs(cluster, "topic", topic, set=changes, unset=())
    for node in nodes:
        _alter_broker(node, dict.fromkeys(RATES, str(rate)))


def _merge(present: str, added: list[str]) -> str:
    before = [item for item in present.split(",") if item]
    if _ALL in before:
        return _ALL
    return ",".join(dict.fromkeys([*before, *added]))


def remove_throttles(cluster: Cluster, nodes: Iterable[Node], topics: Collection[str]) -> bool:
    """From the topics that still exist, and from the given brokers. Returns whether there were any."""
    removed = False
    for topic in topics:
        with suppress(UnknownTopicError):  # its throttles were deleted with it
            removed |= _remove_from_topic(cluster, topic)
    for node in nodes:
        lines = describe_configs(cluster, "broker", str(node.id))
        own = [line.name for line in lines if line.name in RATES and line.source == "DYNAMIC_BROKER_CONFIG"]
        if own:
            _alter_broker(node, dict.fromkeys(own))
            removed = True
    return removed


def _remove_from_topic(cluster: Cluster, topic: str) -> bool:
    lines = describe_configs(cluster, "topic", topic)
    names = [line.name for line in lines if line.name in (LEADERS, FOLLOWERS) and not line.is_default]
    if names:
        alter_configs(cluster, "topic", topic, set={}, unset=names)
    return bool(names)


def _alter_broker(node: Node, configs: Mapping[str, str | None]) -> None:
    """Only the broker itself accepts changes of its configs. None resets a config."""
    what = f"The throttle of broker {node} was not changed"
    changes = tuple(
        AlterableConfig(name=name, config_operation=_DELETE if value is None else _SET, value=value)
        for name, value in configs.items()
    )
    resource = AlterConfigsResource(
        resource_type=i8(ResourceType.BROKER), resource_name=str(node.id), configs=changes
    )
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    for result in call(node, request, IncrementalAlterConfigsResponse, what).responses:
        check_error(result, what)
