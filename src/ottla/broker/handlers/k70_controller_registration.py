"""ControllerRegistration, version 0 (KIP-919): the addresses and features of a controller."""

from datetime import timedelta

from kio.schema.controller_registration.v0.request import ControllerRegistrationRequest
from kio.schema.controller_registration.v0.response import ControllerRegistrationResponse

from ottla.broker.dispatch import RequestContext
from ottla.broker.registration import end_points, feature_ranges
from ottla.broker.services import NodeServices
from ottla.core.controller.commands import RegisterController
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import ZERO_UUID


async def handle(
    services: NodeServices, context: RequestContext, request: ControllerRegistrationRequest
) -> ControllerRegistrationResponse:
    command = RegisterController(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id or ZERO_UUID,
        end_points=end_points(request.listeners),
        features=feature_ranges(request.features),
    )
    code, message = ErrorCode.none, None
    try:
        await services.quorum.submit(command)
    except KafkaError as error:
        code, message = error.code, error.message
    return ControllerRegistrationResponse(throttle_time=timedelta(), error_code=code, error_message=message)
