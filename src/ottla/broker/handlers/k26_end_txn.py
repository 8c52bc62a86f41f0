"""EndTxn, versions 0 to 5.

v2 PRODUCER_FENCED (KIP-588); v3 flexible; v4 TRANSACTION_ABORTABLE; v5 an epoch for each transaction: the response has
the producer's next id and epoch (KIP-890).
"""

from ottla.broker.connection import ResponseParts
from ottla.broker.dispatch import RequestContext
from ottla.broker.promise import Promise
from ottla.broker.services import BrokerServices
from ottla.broker.transaction_requests import error_code_for_version
from ottla.core.transactions.commands import EndTransaction, ProducerIdAndEpoch
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ottla.protocol.transaction_codec import decode_end_txn_request, encode_end_txn_response

FIRST_WITH_FENCED = 2
FIRST_OF_TRANSACTION_VERSION_2 = 5


def handle_body(
    services: BrokerServices, context: RequestContext, body: memoryview
) -> ResponseParts | Promise[ResponseParts]:
    version = context.version
    transactional_id, producer_id, producer_epoch, commit = decode_end_txn_request(body, version)
    command = EndTransaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        commit=commit,
        new_producer_id=NO_PRODUCER_ID,
        transaction_version=2 if version >= FIRST_OF_TRANSACTION_VERSION_2 else 0,
    )

    def respond(ended: ProducerIdAndEpoch | KafkaError) -> ResponseParts:
        if isinstance(ended, KafkaError):
            code, next_producer = (
                error_code_for_version(ended, version, FIRST_WITH_FENCED),
                (NO_PRODUCER_ID, NO_PRODUCER_EPOCH),
            )
        else:
            code, next_producer = ErrorCode.none, ended
        return context.respond(encode_end_txn_response(code, *next_producer, version))

    ended = services.transactions.get().submit_with_producer_id(command)
    return respond(ended.value) if ended.done else ended.then(respond)
