"""The brokers of a cluster: list, describe, unregister (KIP-631, KIP-919, KIP-1073)."""

from typing import Any, NamedTuple

from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_cluster.v2.response import DescribeClusterResponse
from kio.schema.describe_log_dirs.v4.request import DescribeLogDirsRequest
from kio.schema.describe_log_dirs.v4.response import DescribeLogDirsResponse
from kio.schema.types import BrokerId
from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest
from kio.schema.unregister_broker.v0.response import UnregisterBrokerResponse
from kio.static.primitive import i8

from ottla.admin.cluster import Cluster, ClusterError
from ottla.admin.configs import describe_configs
from ottla.admin.nodes import Node, call, call_any, check_error
from ottla.admin.quorum import QuorumDescription
from ottla.model.errors import ErrorCode

ACTIVE, FENCED = "active", "fenced"
LEADS, VOTES = "leader", "voter"
_BROKERS, _CONTROLLERS = i8(1), i8(2)


class BrokerListing(NamedTuple):
    """`state` is active or fenced; `controller` is leader or voter, or None if it does not vote in the quorum."""

    id: int
    host: str
    port: int
    rack: str | None
    state: str
    controller: str | None

    @property
    def node(self) -> Node:
        return Node(self.id, self.host, self.port)


class LogDirectory(NamedTuple):
    """`error` is None if it is online. The volume's bytes are None if the broker does not know them."""

    path: str
    error: str | None
    partitions: int
    size_bytes: int
    total_bytes: int | None
    usable_bytes: int | None


class PartitionCounts(NamedTuple):
    leaders: int
    replicas: int
    out_of_sync: int


class BrokerDetails(NamedTuple):
    """What only the broker itself knows."""

    end_points: list[str]
    directories: list[LogDirectory]


def cluster_id(cluster: Cluster) -> str:
    what = "The cluster cannot be described"
    response = _describe_cluster(cluster, _BROKERS, what)
    if response.error_code is ErrorCode.mismatched_endpoint_type:
        response = _describe_cluster(cluster, _CONTROLLERS, what)
    check_error(response, what)
    return response.cluster_id


def list_brokers(cluster: Cluster, quorum: QuorumDescription | None) -> list[BrokerListing]:
    """All registered brokers, sorted by id. Without `quorum` no broker is known as a controller."""
    what = "Brokers cannot be listed"
    response = _describe_cluster(cluster, _BROKERS, what)
    if response.error_code is ErrorCode.mismatched_endpoint_type:
        raise ClusterError(f"{what}: {cluster.bootstrap} is a controller. Set --bootstrap to a broker")
    check_error(response, what)
    voters = {voter.node_id for voter in quorum.voters} if quorum else set()
    roles = dict.fromkeys(voters, VOTES)
    if quorum is not None and quorum.leader_id is not None:
        roles[quorum.leader_id] = LEADS
    return [
        BrokerListing(
            int(broker.broker_id),
            broker.host,
            int(broker.port),
            broker.rack,
            FENCED if broker.is_fenced else ACTIVE,
            roles.get(broker.broker_id),
        )
        for broker in sorted(response.brokers, key=lambda broker: broker.broker_id)
    ]


def _describe_cluster(cluster: Cluster, endpoint_type: i8, what: str) -> DescribeClusterResponse:
    request = DescribeClusterRequest(
        include_cluster_authorized_operations=False,
        endpoint_type=endpoint_type,
        include_fenced_brokers=endpoint_type == _BROKERS,
    )
    return call_any(cluster, request, DescribeClusterResponse, what)


def find_broker(brokers: list[BrokerListing], broker_id: int) -> BrokerListing:
    for broker in brokers:
        if broker.id == broker_id:
            return broker
    known = ", ".join(str(broker.id) for broker in brokers) or "none"
    raise ClusterError(f"Broker {broker_id} is not registered. Registered brokers: {known}")


def count_partitions(cluster: Cluster, broker_id: int) -> PartitionCounts:
    partitions = [
        partition
        for topic in cluster.metadata().topics.values()
        for partition in topic.partitions.values()
        if broker_id in partition.replicas
    ]
    return PartitionCounts(
        leaders=sum(partition.leader == broker_id for partition in partitions),
        replicas=len(partitions),
        out_of_sync=sum(broker_id not in partition.isrs for partition in partitions),
    )


def describe_broker(cluster: Cluster, broker: BrokerListing) -> BrokerDetails:
    """Asks the broker itself. Raises UnreachableError if it does not respond."""
    what = f"Broker {broker.id} cannot be described"
    request = DescribeLogDirsRequest(topics=None)
    response = call(broker.node, request, DescribeLogDirsResponse, what)
    if response.error_code is not ErrorCode.none:
        raise ClusterError(f"{what}: {response.error_code.name.upper()}")
    directories = sorted(_log_directory(result) for result in response.results)
    configs = {line.name: line.value for line in describe_configs(cluster, "broker", str(broker.id))}
    listeners = configs.get("advertised.listeners") or configs.get("listeners") or ""
    return BrokerDetails([part.strip() for part in listeners.split(",") if part.strip()], directories)


def _log_directory(result: Any) -> LogDirectory:
    partitions = [partition for topic in result.topics for partition in topic.partitions]
    return LogDirectory(
        result.log_dir,
        None if result.error_code is ErrorCode.none else result.error_code.name.upper(),
        len(partitions),
        sum(int(partition.partition_size) for partition in partitions),
        None if result.total_bytes < 0 else int(result.total_bytes),
        None if result.usable_bytes < 0 else int(result.usable_bytes),
    )


def unregister_broker(cluster: Cluster, broker_id: int) -> None:
    """Removes the registration of a broker. Its replicas stay assigned to it."""
    what = f"Broker {broker_id} was not unregistered"
    request = UnregisterBrokerRequest(broker_id=BrokerId(broker_id))
    response = call_any(cluster, request, UnregisterBrokerResponse, what)
    if response.error_code is ErrorCode.broker_id_not_registered:
        raise ClusterError(f"{what}: it is not registered. See: ottla brokers list")
    check_error(response, what)
