"""InitProducerId, versions 0 to 5, and with `unstable.api.versions.enable` 6.

v2 flexible; v3 the producer's current id and epoch (KIP-360); v4 PRODUCER_FENCED (KIP-588); v5 TRANSACTION_ABORTABLE
(KIP-890); v6 two-phase commit (KIP-939), which is rejected.
"""

from kio.schema.init_producer_id.v6.request import InitProducerIdRequest
from kio.schema.init_producer_id.v6.response import InitProducerIdResponse

from ottla.broker.dispatch import RequestContext
from ottla.broker.group_requests import NO_THROTTLE, milliseconds
from ottla.broker.promise import Promise, completed
from ottla.broker.services import BrokerServices
from ottla.broker.transaction_requests import error_code_for_version
from ottla.core.transactions.commands import InitProducerId, ProducerIdAndEpoch
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

FIRST_WITH_FENCED = 4


def handle(
    services: BrokerServices, context: RequestContext, request: InitProducerIdRequest
) -> Promise[InitProducerIdResponse]:
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return completed(_error_response(ErrorCode.invalid_request))
    if request.transactional_id is None:
        return _new_producer_id(services)
    expected = None
    if request.producer_id != NO_PRODUCER_ID:
        expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    command = InitProducerId(
        transactional_id=request.transactional_id,
        timeout_ms=milliseconds(request.transaction_timeout),
        new_producer_id=NO_PRODUCER_ID,
        expected=expected,
        enable_two_phase_commit=request.enable2_pc,
        keep_prepared=request.keep_prepared_txn,
    )

    def respond(result: ProducerIdAndEpoch | KafkaError) -> InitProducerIdResponse:
        if isinstance(result, KafkaError):
            return _error_response(error_code_for_version(result, context.version, FIRST_WITH_FENCED))
        return _response(*result)

    return services.transactions.get().submit_with_producer_id(command).then(respond)


def _new_producer_id(services: BrokerServices) -> Promise[InitProducerIdResponse]:
    """For a producer that is idempotent but not transactional."""

    async def run() -> InitProducerIdResponse:
        try:
            return _response(await services.producer_ids.next(), 0)
        except KafkaError as error:
            return _error_response(error.code)

    return services.tasks.run(run())


def _response(producer_id: int, producer_epoch: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def _error_response(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time=NO_THROTTLE, error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=-1
    )
