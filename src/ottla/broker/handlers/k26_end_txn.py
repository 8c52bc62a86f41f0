"""EndTxn, versions 0 to 5.

v2 PRODUCER_FENCED (KIP-588); v3 flexible; v4 TRANSACTION_ABORTABLE; v5 an epoch for each transaction: the answer says
with which id and epoch the producer goes on (KIP-890).
"""

from typing import TYPE_CHECKING

from kio.schema.end_txn.v5.request import EndTxnRequest
from kio.schema.end_txn.v5.response import EndTxnResponse

from ottla.broker.dispatch import RequestContext
from ottla.broker.group_requests import NO_THROTTLE
from ottla.broker.pending import Pending
from ottla.broker.transaction_requests import told_by_version
from ottla.core.transactions.commands import EndTransaction, ProducerIdAndEpoch
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_PRODUCER_ID

if TYPE_CHECKING:
    from ottla.broker.node import Broker

FIRST_WITH_FENCED = 2
FIRST_OF_TRANSACTIONS_VERSION_2 = 5


def handle(broker: "Broker", context: RequestContext, request: EndTxnRequest) -> Pending[EndTxnResponse]:
    command = EndTransaction(
        transactional_id=request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        commit=request.committed,
        new_producer_id=NO_PRODUCER_ID,
        transaction_version=2 if context.version >= FIRST_OF_TRANSACTIONS_VERSION_2 else 0,
    )

    def answer(ended: ProducerIdAndEpoch | KafkaError) -> EndTxnResponse:
        if isinstance(ended, KafkaError):
            code = told_by_version(ended, context.version, FIRST_WITH_FENCED)
            return EndTxnResponse(throttle_time=NO_THROTTLE, error_code=code)
        return EndTxnResponse(
            throttle_time=NO_THROTTLE,
            error_code=ErrorCode.none,
            producer_id=ended.producer_id,
            producer_epoch=ended.producer_epoch,
        )

    return broker.transactions.submit_with_producer_id(command).then(answer)
