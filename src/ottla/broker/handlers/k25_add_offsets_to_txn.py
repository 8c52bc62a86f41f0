"""AddOffsetsToTxn, versions 0 to 4: adds the partition of a group's offsets to a transaction.

v2 PRODUCER_FENCED (KIP-588); v3 flexible; v4 TRANSACTION_ABORTABLE (KIP-890). Clients of transaction version 2 do not
send it.
"""

from kio.schema.add_offsets_to_txn.v4.request import AddOffsetsToTxnRequest
from kio.schema.add_offsets_to_txn.v4.response import AddOffsetsToTxnResponse

from ottla.broker.coordinators.internal_topics import CONSUMER_OFFSETS
from ottla.broker.dispatch import RequestContext
from ottla.broker.group_requests import NO_THROTTLE
from ottla.broker.promise import Promise
from ottla.broker.services import BrokerServices
from ottla.broker.transaction_requests import error_code_for_version
from ottla.core.transactions.commands import AddPartitions
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition

FIRST_WITH_FENCED = 2


def handle(
    services: BrokerServices, context: RequestContext, request: AddOffsetsToTxnRequest
) -> Promise[AddOffsetsToTxnResponse]:
    def respond(error: KafkaError | None) -> AddOffsetsToTxnResponse:
        code = ErrorCode.none
        if error is not None:
            code = error_code_for_version(error, context.version, FIRST_WITH_FENCED)
        return AddOffsetsToTxnResponse(throttle_time=NO_THROTTLE, error_code=code)

    def add(partition: int) -> Promise[KafkaError | None]:
        command = AddPartitions(
            transactional_id=request.transactional_id,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            partitions=(TopicPartition(CONSUMER_OFFSETS, partition),),
        )
        return services.transactions.get().submit(request.transactional_id, command)

    async def create_topic_and_add() -> KafkaError | Promise[KafkaError | None] | None:
        # The producer looks for the group coordinator, which would create the topic, only after this request.
        found = await groups.find_coordinator(request.group_id)
        partition = groups.runtimes.partition_of(request.group_id)
        if isinstance(found, KafkaError) or partition is None:
            return KafkaError(ErrorCode.coordinator_not_available, f"there is no {CONSUMER_OFFSETS}")
        return add(partition)

    groups = services.groups.get()
    partition = groups.runtimes.partition_of(request.group_id)
    added = services.tasks.run(create_topic_and_add()) if partition is None else add(partition)
    return added.then(respond)
