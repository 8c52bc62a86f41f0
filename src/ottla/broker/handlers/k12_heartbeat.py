"""Heartbeat, versions 0 to 4. v3 static members (KIP-345); v4 flexible."""

from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.heartbeat.v4.response import HeartbeatResponse

from ottla.broker.dispatch import RequestContext
from ottla.broker.group_requests import NO_THROTTLE
from ottla.broker.promise import Promise
from ottla.broker.services import BrokerServices
from ottla.core.groups.commands import Heartbeat
from ottla.model.errors import ErrorCode, KafkaError


def handle(
    services: BrokerServices, context: RequestContext, request: HeartbeatRequest
) -> Promise[HeartbeatResponse]:
    command = Heartbeat(
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
    )
    return services.groups.get().submit(request.group_id, command).then(_response)


def _response(error: KafkaError | None) -> HeartbeatResponse:
    code = ErrorCode.none if error is None else error.code
    if code is ErrorCode.coordinator_load_in_progress:
        # As in Kafka: no session expires before the group is loaded, so the member needs no error.
        code = ErrorCode.none
    return HeartbeatResponse(throttle_time=NO_THROTTLE, error_code=code)
