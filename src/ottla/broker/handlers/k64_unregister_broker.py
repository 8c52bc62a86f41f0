"""UnregisterBroker, version 0 (KIP-631): removes a broker that is gone for good from the metadata."""

from datetime import timedelta

from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest
from kio.schema.unregister_broker.v0.response import UnregisterBrokerResponse

from ottla.broker.dispatch import RequestContext
from ottla.broker.services import NodeServices
from ottla.core.controller.commands import UnregisterBroker
from ottla.model.errors import ErrorCode, KafkaError


async def handle(
    services: NodeServices, context: RequestContext, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    code, message = ErrorCode.none, None
    try:
        await services.controller.submit(UnregisterBroker(request.broker_id))
    except KafkaError as error:
        code, message = error.code, error.message
    return UnregisterBrokerResponse(throttle_time=timedelta(), error_code=code, error_message=message)
