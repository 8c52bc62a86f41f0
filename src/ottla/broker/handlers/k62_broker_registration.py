"""BrokerRegistration, versions 0 to 4 (KIP-631). v2 directory ids (KIP-858); v3 the previous epoch (KIP-966)."""

from datetime import timedelta

from kio.schema.broker_registration.v4.request import BrokerRegistrationRequest
from kio.schema.broker_registration.v4.response import BrokerRegistrationResponse

from ottla.broker.dispatch import RequestContext
from ottla.broker.registration import end_points, feature_ranges
from ottla.broker.services import NodeServices
from ottla.core.controller.commands import RegisterBroker
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import ZERO_UUID


async def handle(
    services: NodeServices, context: RequestContext, request: BrokerRegistrationRequest
) -> BrokerRegistrationResponse:
    if request.cluster_id != services.cluster_id:
        return _response(ErrorCode.inconsistent_cluster_id)
    try:
        epoch = await services.quorum.submit(_command(request))
    except KafkaError as error:
        return _response(error.code)
    return _response(ErrorCode.none, epoch)


def _command(request: BrokerRegistrationRequest) -> RegisterBroker:
    return RegisterBroker(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id or ZERO_UUID,
        end_points=end_points(request.listeners),
        features=feature_ranges(request.features),
        log_dirs=tuple(directory or ZERO_UUID for directory in request.log_dirs),
        rack=request.rack,
        previous_broker_epoch=request.previous_broker_epoch,
    )


def _response(error: ErrorCode, broker_epoch: int = -1) -> BrokerRegistrationResponse:
    return BrokerRegistrationResponse(throttle_time=timedelta(), error_code=error, broker_epoch=broker_epoch)
