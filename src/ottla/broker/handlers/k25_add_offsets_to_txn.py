"""AddOffsetsToTxn, versions 0 to 4: the partition of a group's offsets comes into a transaction.

v2 PRODUCER_FENCED (KIP-588); v3 flexible; v4 TRANSACTION_ABORTABLE (KIP-890). Clients of transactions version 2 do not
send it.
"""

from kio.schema.add_offsets_to_txn.v4.request import AddOffsetsToTxnRequest
from kio.schema.add_offsets_to_txn.v4.response import AddOffsetsToTxnResponse

from ottla.broker.coordinators.internal_topics import CONSUMER_OFFSETS
from ottla.broker.dispatch import RequestContext
from ottla.broker.group_requests import NO_THROTTLE
from ottla.broker.promise import Promise
from ottla.broker.services import BrokerServices
from ottla.broker.transaction_requests import told_by_version
from ottla.core.transactions.commands import AddPartitions
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition

FIRST_WITH_FENCED = 2


def handle(
    services: BrokerServices, context: RequestContext, request: AddOffsetsToTxnRequest
) -> Promise[AddOffsetsToTxnResponse]:
    def answer(error: KafkaError | None) -> AddOffsetsToTxnResponse:
        code = ErrorCode.none
        if error is not None:
            code = told_by_version(error, context.version, FIRST_WITH_FENCED)
        return AddOffsetsToTxnResponse(throttle_time=NO_THROTTLE, error_code=code)

    def add(index: int) -> Promise[KafkaError | None]:
        command = AddPartitions(
            transactional_id=request.transactional_id,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            partitions=(TopicPartition(CONSUMER_OFFSETS, index),),
        )
        return services.transactions.get().submit(request.transactional_id, command)

    async def make_topic_and_add() -> KafkaError | Promise[KafkaError | None] | None:
        # The producer asks for the coordinator of the group only after this.
        found = await services.groups.get().find(request.group_id)
        index = services.groups.get().shards.index_of(request.group_id)
        if isinstance(found, KafkaError) or index is None:
            return KafkaError(ErrorCode.coordinator_not_available, f"there is no {CONSUMER_OFFSETS}")
        return add(index)

    index = services.groups.get().shards.index_of(request.group_id)
    added = services.tasks.run(make_topic_and_add()) if index is None else add(index)
    return added.then(answer)
