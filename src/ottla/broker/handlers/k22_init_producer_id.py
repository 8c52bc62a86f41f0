"""InitProducerId, versions 0 to 6.

v3 a producer may name its present id and epoch (KIP-360); v5 transactions version 2 (KIP-890); v6 two-phase commit
(KIP-939). Here: ids for idempotent producers. A transactional id needs a transaction coordinator.
"""

from datetime import timedelta
from typing import TYPE_CHECKING

from kio.schema.init_producer_id.v6.request import InitProducerIdRequest
from kio.schema.init_producer_id.v6.response import InitProducerIdResponse

from ottla.broker.dispatch import RequestContext
from ottla.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.node import Broker


async def handle(
    broker: "Broker", context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        known = ErrorCode.coordinator_not_available if request.transactional_id else ErrorCode.invalid_request
        return _refused(known)
    try:
        producer_id = await broker.producer_ids.next()
    except KafkaError as error:
        return _refused(error.code)
    return InitProducerIdResponse(
        throttle_time=timedelta(), error_code=ErrorCode.none, producer_id=producer_id, producer_epoch=0
    )


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time=timedelta(), error_code=code, producer_id=-1, producer_epoch=-1
    )
