"""BrokerHeartbeat, versions 0 to 2 (KIP-631). v1 offline directories (KIP-858); v2 cordoned directories (KIP-1066)."""

from datetime import timedelta
from uuid import UUID

from kio.schema.broker_heartbeat.v2.request import BrokerHeartbeatRequest
from kio.schema.broker_heartbeat.v2.response import BrokerHeartbeatResponse

from ottla.broker.dispatch import RequestContext
from ottla.broker.services import NodeServices
from ottla.core.controller.commands import BrokerDisconnected, BrokerHeartbeat
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import ZERO_UUID


async def handle(
    services: NodeServices, context: RequestContext, request: BrokerHeartbeatRequest
) -> BrokerHeartbeatResponse:
    command = BrokerHeartbeat(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        current_metadata_offset=request.current_metadata_offset,
        want_fence=request.want_fence,
        want_shut_down=request.want_shut_down,
        offline_log_dirs=tuple(directory for directory in request.offline_log_dirs if directory is not None),
        cordoned_log_dirs=_directories(request.cordoned_log_dirs),
        connection=context.connection,
    )
    # Before the heartbeat is decided: the broker may die meanwhile.
    context.connection.on_disconnect = lambda: _disconnected(services, command)
    try:
        reply = await services.quorum.submit(command)
    except KafkaError as error:
        return BrokerHeartbeatResponse(
            throttle_time=timedelta(), error_code=error.code, should_shut_down=False
        )
    return BrokerHeartbeatResponse(
        throttle_time=timedelta(),
        error_code=ErrorCode.none,
        is_caught_up=reply.is_caught_up,
        is_fenced=reply.is_fenced,
        should_shut_down=reply.should_shut_down,
    )


def _directories(ids: tuple[UUID | None, ...] | None) -> tuple[UUID, ...] | None:
    return None if ids is None else tuple(directory or ZERO_UUID for directory in ids)


def _disconnected(services: NodeServices, heartbeat: BrokerHeartbeat) -> None:
    """A broker that is alive sends a heartbeat on another connection at once."""

    async def report() -> None:
        if services.quorum.is_active:
            try:
                await services.quorum.submit(
                    BrokerDisconnected(heartbeat.broker_id, heartbeat.broker_epoch, heartbeat.connection)
                )
            except KafkaError:
                pass  # it has registered again, or this node is no longer the controller

    services.tasks.start(report())
