"""AllocateProducerIds, version 0 (KIP-730): a block of producer ids for a broker."""

from datetime import timedelta

from kio.schema.allocate_producer_ids.v0.request import AllocateProducerIdsRequest
from kio.schema.allocate_producer_ids.v0.response import AllocateProducerIdsResponse

from ottla.broker.dispatch import RequestContext
from ottla.broker.services import NodeServices
from ottla.core.controller.commands import AllocateProducerIds, ProducerIdBlock
from ottla.model.errors import ErrorCode, KafkaError


async def handle(
    services: NodeServices, context: RequestContext, request: AllocateProducerIdsRequest
) -> AllocateProducerIdsResponse:
    code, block = ErrorCode.none, ProducerIdBlock(0, 0)
    try:
        block = await services.quorum.submit(AllocateProducerIds(request.broker_id, request.broker_epoch))
    except KafkaError as error:
        code = error.code
    return AllocateProducerIdsResponse(
        throttle_time=timedelta(),
        error_code=code,
        producer_id_start=block.first,
        producer_id_len=block.size,
    )
