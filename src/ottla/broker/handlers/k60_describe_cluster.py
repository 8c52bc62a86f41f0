"""DescribeCluster, versions 0 to 2. v1 brokers or controllers (KIP-919); v2 fenced brokers on request (KIP-1073)."""

from datetime import timedelta

from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_cluster.v2.response import DescribeClusterBroker, DescribeClusterResponse

from ottla.broker.authorized_operations import CLUSTER_OPERATIONS, NOT_REQUESTED
from ottla.broker.client_view import (
    Node,
    controller_id_for_clients,
    controllers_for_client,
    nodes_for_client,
)
from ottla.broker.dispatch import RequestContext
from ottla.broker.services import NodeServices
from ottla.model.errors import ErrorCode
from ottla.protocol.api_keys import ListenerKind

_BROKERS = 1
_CONTROLLERS = 2


def handle(
    services: NodeServices, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    error, message = ErrorCode.none, None
    served = _CONTROLLERS if context.listener_kind is ListenerKind.CONTROLLER else _BROKERS
    nodes: list[Node] = []
    if request.endpoint_type not in (_BROKERS, _CONTROLLERS):
        error = ErrorCode.unsupported_endpoint_type
        message = f"endpoint type {request.endpoint_type} is neither 1 (brokers) nor 2 (controllers)"
    elif request.endpoint_type != served:
        error = ErrorCode.mismatched_endpoint_type
        here, there = ("controller", "broker") if served == _CONTROLLERS else ("broker", "controller")
        message = f"this is a {here}'s listener: connect to a {there}'s listener to describe {there}s"
    elif served == _CONTROLLERS:
        nodes = controllers_for_client(services, context.connection)
    else:
        nodes = nodes_for_client(services, context.connection, with_fenced=request.include_fenced_brokers)
    return DescribeClusterResponse(
        throttle_time=timedelta(),
        error_code=error,
        error_message=message,
        endpoint_type=request.endpoint_type,
        cluster_id=services.cluster_id,
        controller_id=(
            services.quorum.leader_id if served == _CONTROLLERS else controller_id_for_clients(services)
        ),
        brokers=tuple(
            DescribeClusterBroker(
                broker_id=node.node_id,
                host=node.host,
                port=node.port,
                rack=node.rack,
                is_fenced=node.is_fenced,
            )
            for node in nodes
        ),
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_REQUESTED
        ),
    )
