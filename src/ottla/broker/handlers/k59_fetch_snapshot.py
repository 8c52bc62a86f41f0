"""FetchSnapshot, versions 0 and 1 (KIP-630): a part of a metadata snapshot. v1 the leader's address (KIP-853)."""

from datetime import timedelta

from kio.schema.fetch_snapshot.v1.request import FetchSnapshotRequest
from kio.schema.fetch_snapshot.v1.response import FetchSnapshotResponse

from ottla.broker.dispatch import RequestContext
from ottla.broker.quorum.voters import voter_endpoint
from ottla.broker.quorum.wire_server import build_fetch_snapshot, read_fetch_snapshot, rejection
from ottla.broker.services import NodeServices
from ottla.core.raft.messages import FetchSnapshotResponse as Response
from ottla.model.errors import ErrorCode


async def handle(
    services: NodeServices, context: RequestContext, request: FetchSnapshotRequest
) -> FetchSnapshotResponse:
    driver = services.quorum.driver
    fetch = read_fetch_snapshot(request)
    error = rejection(services, request.cluster_id, fetch)
    if fetch is None or error is not ErrorCode.none:
        return FetchSnapshotResponse(throttle_time=timedelta(), error_code=error, topics=())
    max_bytes = min(request.max_bytes, services.config.get_int("controller.quorum.fetch.snapshot.max.bytes"))
    try:
        response = await driver.fetch_snapshot(fetch, max_bytes=max(max_bytes, 1))
    except FileNotFoundError:  # deleted in this moment
        node = driver.node
        response = Response(node.epoch, node.leader_id, error=ErrorCode.snapshot_not_found)
    except OSError:
        response = Response(driver.node.epoch, driver.node.leader_id, error=ErrorCode.kafka_storage_error)
    return build_fetch_snapshot(response, voter_endpoint(services, response.leader_id))
