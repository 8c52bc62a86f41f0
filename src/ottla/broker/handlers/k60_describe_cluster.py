"""DescribeCluster, versions 0 to 2. v1 brokers or controllers (KIP-919); v2 fenced brokers on request (KIP-1073)."""

from datetime import timedelta

from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_cluster.v2.response import DescribeClusterBroker, DescribeClusterResponse

from ottla.broker.authorized_operations import CLUSTER_OPERATIONS, NOT_REQUESTED
from ottla.broker.client_view import controller_id_for_clients, nodes_for_client
from ottla.broker.dispatch import RequestContext
from ottla.broker.services import NodeServices
from ottla.model.errors import ErrorCode

_BROKERS = 1
_CONTROLLERS = 2


def handle(
    services: NodeServices, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    error, message = ErrorCode.none, None
    if request.endpoint_type == _CONTROLLERS:
        error = ErrorCode.mismatched_endpoint_type
        message = "this is a broker's listener: connect to a controller's listener to describe controllers"
    elif request.endpoint_type != _BROKERS:
        error = ErrorCode.unsupported_endpoint_type
        message = f"endpoint type {request.endpoint_type} is neither 1 (brokers) nor 2 (controllers)"
    nodes = nodes_for_client(services, context.connection.stream) if error is ErrorCode.none else []
    return DescribeClusterResponse(
        throttle_time=timedelta(),
        error_code=error,
        error_message=message,
        endpoint_type=request.endpoint_type,
        cluster_id=services.cluster_id,
        controller_id=controller_id_for_clients(services),
        brokers=tuple(
            DescribeClusterBroker(
                broker_id=node.node_id, host=node.host, port=node.port, rack=node.rack, is_fenced=False
            )
            for node in nodes
        ),
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_REQUESTED
        ),
    )
