"""Restarts the nodes of a cluster one after the other, so that no partition loses its in-sync replicas.

A node is restarted only while every partition has all its replicas in its ISR and every voter has the whole metadata
log. Nodes without the controller role come first, and the leader of the quorum last: so there is one election.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack
from typing import NamedTuple

from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import DescribeConfigsResponse
from kio.schema.metadata.v12.request import MetadataRequest
from kio.schema.metadata.v12.response import MetadataResponse
from kio.static.primitive import i8

from ottla.admin.brokers import FENCED, BrokerListing, list_brokers
from ottla.admin.cluster import Cluster, ClusterError
from ottla.admin.node_process import NodeProcess
from ottla.admin.nodes import Node, call, call_any
from ottla.admin.quorum import QuorumDescription, QuorumReplica, describe_quorum
from ottla.model.ids import TopicPartition
from ottla.rpc import Address

MIN_INSYNC_REPLICAS = "min.insync.replicas"
_TOPIC = i8(2)
_POLL_S = 0.2
# A voter fetches at least twice a second; before the first restart, this is recent enough.
_RECENT_MS = 5_000
_NAMED_MAX = 3


class RestartError(ClusterError):
    """The restart was refused, or stopped: the nodes that were not reached run on."""


class RestartNode(NamedTuple):
    """`host` is None if the cluster does not know where a controller listens. `others` restart together with it."""

    id: int
    host: str | None
    is_broker: bool
    is_voter: bool
    others: tuple[int, ...] = ()

    @property
    def ids(self) -> tuple[int, ...]:
        return (self.id, *self.others)

    def __str__(self) -> str:
        return f"nodes {', '.join(map(str, self.ids))}" if self.others else f"node {self.id}"


class PartitionReplicas(NamedTuple):
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class RollingRestart:
    """`restart` ends the process of a node and starts it again; it may return before the old process has ended. With
    `by_host` it does so with all nodes of a host, for instance with all workers of `ottla serve --workers`.

    `failure` says why a node cannot come back, if that is known. `timeout_s` bounds the wait for one node.
    """

    def __init__(
        self,
        bootstrap: str,
        restart: Callable[[RestartNode], None],
        *,
        failure: Callable[[RestartNode], str | None] = lambda node: None,
        by_host: bool = False,
        timeout_s: float = 300.0,
    ) -> None:
        self._by_host = by_host
        self._cluster = Cluster(bootstrap)
        self._restart = restart
        self._failure = failure
        self._timeout_s = timeout_s
        self._addresses: dict[int, Address] = {}
        self._broker_ids: set[int] = set()

    def prepare(self, *, force: bool = False) -> list[RestartNode]:
        """The nodes to restart. Raises RestartError, and nothing is restarted, if that would take partitions down."""
        brokers = list_brokers(self._cluster, None)
        quorum = describe_quorum(self._cluster)
        # Later requests are answered by any node that runs, also if the user named only one.
        addresses = [f"{broker.host}:{broker.port}" for broker in brokers]
        self._cluster.bootstrap = ",".join(dict.fromkeys([*self._cluster.bootstrap.split(","), *addresses]))
        if problem := self._problem(_RECENT_MS):
            raise RestartError(
                f"no node was restarted: {problem}. Fix that first, so that every partition has a replica to spare"
            )
        nodes = nodes_of(brokers, quorum)
        self._addresses = addresses_of(brokers, quorum)
        self._broker_ids = {broker.id for broker in brokers}
        if self._by_host:
            nodes = together(nodes)
        if not force:
            self._check_min_isr(brokers[0].node, nodes)
        return nodes

    def restart_one_after_the_other(
        self, nodes: Iterable[RestartNode], on_restarted: Callable[[RestartNode, float], None]
    ) -> None:
        """Calls `on_restarted` with the seconds that each took. Raises RestartError if a node does not come back."""
        left = list(nodes)
        while left:
            node = next_node(left, describe_quorum(self._cluster).leader_id)
            began_s = time.monotonic()
            with ExitStack() as stack:
                old = [stack.enter_context(process) for process in self._processes(node)]
                self._restart(node)
                self._wait_until_ended(old, node, left)
            self._wait_until_back(node, left)
            left.remove(node)
            on_restarted(node, time.monotonic() - began_s)

    def _processes(self, node: RestartNode) -> Iterator[NodeProcess]:
        """Without those of controllers that cannot be reached from here."""
        for node_id in node.ids:
            address = self._addresses.get(node_id)
            if address is None:
                continue
            try:
                yield NodeProcess(address)
            except OSError as error:
                if node_id in self._broker_ids:
                    raise RestartError(
                        f"{node} was not restarted: broker {node_id} does not respond at {address} ({error})"
                    ) from None

    def _wait_until_ended(
        self, processes: Iterable[NodeProcess], node: RestartNode, left: Collection[RestartNode]
    ) -> None:
        """Until then the old process answers, as if the node were back."""
        began_s = time.monotonic()
        running = list(processes)
        while running := [process for process in running if not process.has_ended()]:
            if time.monotonic() - began_s >= self._timeout_s:
                raise self._stopped(
                    node,
                    left,
                    f"was not restarted: its old process still runs {self._timeout_s:g} s after the command for its "
                    "restart. Check the command",
                )
            time.sleep(_POLL_S)

    def _wait_until_back(self, node: RestartNode, left: Collection[RestartNode]) -> None:
        began_s = time.monotonic()
        while True:
            reason = self._failure(node)
            if reason is None:
                passed_s = time.monotonic() - began_s
                reason = self._problem(passed_s * 1000)
                if reason is None:
                    return
                if passed_s < self._timeout_s:
                    time.sleep(_POLL_S)
                    continue
                reason = f"{reason}, {self._timeout_s:g} s after its restart"
            raise self._stopped(node, left, f"{'are' if node.others else 'is'} not back: {reason}")

    def _stopped(self, node: RestartNode, left: Collection[RestartNode], reason: str) -> RestartError:
        others = ", ".join(str(each) for other in left if other is not node for each in other.ids)
        rest = f"; nodes that were not restarted: {others}" if others else ""
        return RestartError(f"{node} {reason}. The restart stops here{rest}")

    def _problem(self, within_ms: float) -> str | None:
        """Why the cluster can spare no node; None if it can. Voters must have caught up during the last `within_ms`."""
        try:
            quorum = describe_quorum(self._cluster)
            brokers = list_brokers(self._cluster, None)
            fenced = [broker.id for broker in brokers if broker.state == FENCED]
            if fenced:
                return f"broker {fenced[0]} is not active"
            if (problem := _problem_of_quorum(quorum, within_ms)) is not None:
                return problem
            # Each broker's own view: that of one which has just started is as new as its registration.
            for broker in brokers:
                if (problem := out_of_sync(read_partitions(broker.node))) is not None:
                    return problem
        except ClusterError as error:
            return str(error)
        return None

    def _check_min_isr(self, broker: Node, nodes: Collection[RestartNode]) -> None:
        partitions = read_partitions(broker)
        minima = self._min_insync_replicas({partition.topic for partition in partitions})
        tight = [
            partition
            for partition, state in sorted(partitions.items())
            if len(state.isr) - _most_at_once(state, nodes) < minima.get(partition.topic, 1)
        ]
        if tight:
            named = ", ".join(map(str, tight[:_NAMED_MAX])) + (", ..." if len(tight) > _NAMED_MAX else "")
            raise RestartError(
                f"no node was restarted: {len(tight)} partitions have no replica to spare ({named}): each would be "
                f"below its {MIN_INSYNC_REPLICAS} while one of its brokers is down. Add replicas with `ottla reassign "
                "generate -r`, or restart with --force: producers with acks=all wait until that broker is back"
            )

    def _min_insync_replicas(self, topics: Collection[str]) -> dict[str, int]:
        if not topics:
            return {}
        what = "The configs of topics cannot be read"
        request = DescribeConfigsRequest(
            resources=tuple(
                DescribeConfigsResource(
                    resource_type=_TOPIC, resource_name=topic, configuration_keys=(MIN_INSYNC_REPLICAS,)
                )
                for topic in sorted(topics)
            )
        )
        response = call_any(self._cluster, request, DescribeConfigsResponse, what)
        return {
            result.resource_name: int(config.value)
            for result in response.results
            for config in result.configs
            if config.value is not None
        }


def nodes_of(brokers: Iterable[BrokerListing], quorum: QuorumDescription) -> list[RestartNode]:
    """Brokers and voters, sorted by id."""
    voters = {voter.node_id: voter for voter in quorum.voters}
    found = {
        broker.id: RestartNode(broker.id, broker.host, is_broker=True, is_voter=broker.id in voters)
        for broker in brokers
    }
    for voter in quorum.voters:
        if voter.node_id not in found:
            found[voter.node_id] = RestartNode(voter.node_id, _host(voter), is_broker=False, is_voter=True)
    return [found[node_id] for node_id in sorted(found)]


def addresses_of(brokers: Iterable[BrokerListing], quorum: QuorumDescription) -> dict[int, Address]:
    """Where the nodes listen, by id. It is not known of every controller."""
    controllers = {voter.node_id: _address(voter) for voter in quorum.voters}
    return {node_id: address for node_id, address in controllers.items() if address is not None} | {
        broker.id: Address(broker.host, broker.port) for broker in brokers
    }


def together(nodes: Iterable[RestartNode]) -> list[RestartNode]:
    """One entry for each host. A node whose host is not known is alone."""
    hosts: dict[str, RestartNode] = {}
    for node in nodes:
        key = node.host or f"node {node.id}"
        first = hosts.get(key)
        if first is not None:
            node = first._replace(
                others=(*first.others, node.id),
                is_broker=first.is_broker or node.is_broker,
                is_voter=first.is_voter or node.is_voter,
            )
        hosts[key] = node
    return list(hosts.values())


def next_node(left: Collection[RestartNode], leader_id: int | None) -> RestartNode:
    """Brokers that do not vote come first, the leader of the quorum last."""
    return min(left, key=lambda node: (leader_id in node.ids, node.is_voter, node.id))


def read_partitions(broker: Node) -> dict[TopicPartition, PartitionReplicas]:
    """Of all topics, as this broker knows them."""
    request = MetadataRequest(
        topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )
    response = call(broker, request, MetadataResponse, f"Broker {broker.id} does not serve")
    return {
        TopicPartition(topic.name or "", int(partition.partition_index)): PartitionReplicas(
            tuple(map(int, partition.replica_nodes)), tuple(map(int, partition.isr_nodes))
        )
        for topic in response.topics
        for partition in topic.partitions
    }


def out_of_sync(partitions: dict[TopicPartition, PartitionReplicas]) -> str | None:
    for partition, state in partitions.items():
        if missing := set(state.replicas) - set(state.isr):
            return f"broker {min(missing)} is not in the ISR of {partition}"
    return None


def _most_at_once(state: PartitionReplicas, nodes: Iterable[RestartNode]) -> int:
    """How many of the in-sync replicas are down at the same time, at most."""
    return max(len(set(state.isr).intersection(node.ids)) for node in nodes)


def _problem_of_quorum(quorum: QuorumDescription, within_ms: float) -> str | None:
    if quorum.leader_id is None:
        return "the quorum has no leader"
    for voter in quorum.voters:
        caught_up_ms = voter.since_caught_up_ms
        if caught_up_ms is None or (voter.node_id != quorum.leader_id and caught_up_ms > within_ms):
            return f"voter {voter.node_id} has not caught up with the metadata log"
    return None


def _host(voter: QuorumReplica) -> str | None:
    for end_point in voter.end_points:
        host = end_point.partition("://")[2].rpartition(":")[0]
        if host:
            return host
    return None


def _address(voter: QuorumReplica) -> Address | None:
    for end_point in voter.end_points:
        host, _, port = end_point.partition("://")[2].rpartition(":")
        if host:
            return Address(host.strip("[]"), int(port))
    return None
