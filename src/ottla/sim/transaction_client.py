"""What transactional producers say in transactions version 0 and 2 (KIP-890): kio's messages over a `SimClient`.

An answer that does not come counts as REQUEST_TIMED_OUT: whether the broker did it, nobody knows.
"""

from datetime import timedelta
from typing import Any, NamedTuple

from kio.schema.add_offsets_to_txn.v4.request import AddOffsetsToTxnRequest
from kio.schema.add_partitions_to_txn.v3.request import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kio.schema.end_txn.v4 import request as end_v4
from kio.schema.end_txn.v5 import request as end_v5
from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.init_producer_id.v5.request import InitProducerIdRequest
from kio.schema.list_transactions.v2.request import ListTransactionsRequest
from kio.schema.produce.v11 import request as produce_v11
from kio.schema.produce.v13 import request as produce_v13
from kio.schema.txn_offset_commit.v4 import request as offsets_v4
from kio.schema.txn_offset_commit.v5 import request as offsets_v5

from ottla.model.errors import ErrorCode
from ottla.sim.client import SimClient
from ottla.sim.group_client import Identity, Topic

_TIMEOUT = timedelta(seconds=5)


class Producer(NamedTuple):
    producer_id: int = -1
    producer_epoch: int = -1


class TransactionClient:
    """`adds_itself`: version 2, in which partitions come into the transaction with their first records."""

    def __init__(self, client: SimClient, transactional_id: str, *, adds_itself: bool) -> None:
        self._client = client
        self.transactional_id = transactional_id
        self.adds_itself = adds_itself

    async def find_coordinator(self) -> ErrorCode:
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=(self.transactional_id,))
        response = await self._ask(request)
        return _code_of(response.coordinators[0] if response is not None else None)

    async def init(self, timeout_s: float) -> tuple[ErrorCode, Producer]:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout=timedelta(seconds=timeout_s)
        )
        response = await self._ask(request)
        if response is None:
            return ErrorCode.request_timed_out, Producer()
        return response.error_code, Producer(response.producer_id, response.producer_epoch)

    async def add_partition(self, who: Producer, topic: Topic, partition: int) -> ErrorCode:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=who.producer_id,
            v3_and_below_producer_epoch=who.producer_epoch,
            v3_and_below_topics=(AddPartitionsToTxnTopic(name=topic.name, partitions=(partition,)),),
        )
        response = await self._ask(request)
        if response is None:
            return ErrorCode.request_timed_out
        code: ErrorCode = (
            response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        )
        return code

    async def produce(self, topic: Topic, partition: int, batch: bytes) -> tuple[ErrorCode, int]:
        """Also the offset of the first record."""
        shape: Any = produce_v13 if self.adds_itself else produce_v11
        named = {"topic_id": topic.topic_id} if self.adds_itself else {"name": topic.name}
        data = shape.PartitionProduceData(index=partition, records=batch)
        request = shape.ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout=_TIMEOUT,
            topic_data=(shape.TopicProduceData(**named, partition_data=(data,)),),
        )
        response = await self._ask(request)
        if response is None:
            return ErrorCode.request_timed_out, -1
        answer = response.responses[0].partition_responses[0]
        return answer.error_code, answer.base_offset

    async def add_offsets(self, who: Producer, group_id: str) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=who.producer_id,
            producer_epoch=who.producer_epoch,
            group_id=group_id,
        )
        return _code_of(await self._ask(request))

    async def commit_offset(
        self, who: Producer, group_id: str, member: Identity, topic: Topic, partition: int, offset: int
    ) -> ErrorCode:
        shape: Any = offsets_v5 if self.adds_itself else offsets_v4
        committed = shape.TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=None
        )
        request = shape.TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group_id,
            producer_id=who.producer_id,
            producer_epoch=who.producer_epoch,
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            topics=(shape.TxnOffsetCommitRequestTopic(name=topic.name, partitions=(committed,)),),
        )
        response = await self._ask(request)
        return _code_of(response.topics[0].partitions[0] if response is not None else None)

    async def end(self, who: Producer, *, commit: bool) -> tuple[ErrorCode, Producer]:
        """Also as whom to go on."""
        shape: Any = end_v5 if self.adds_itself else end_v4
        request = shape.EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=who.producer_id,
            producer_epoch=who.producer_epoch,
            committed=commit,
        )
        response = await self._ask(request)
        if response is None or response.error_code != ErrorCode.none or not self.adds_itself:
            return _code_of(response), who
        return ErrorCode.none, Producer(response.producer_id, response.producer_epoch)

    async def _ask(self, request: Any) -> Any:
        return await ask(self._client, request)


async def list_transactions(client: SimClient, *states: str) -> list[str] | None:
    """The ids in these states; None where the coordinator could not say."""
    response = await ask(client, ListTransactionsRequest(state_filters=states, producer_id_filters=()))
    if response is None or response.error_code != ErrorCode.none:
        return None
    return [transaction.transactional_id for transaction in response.transaction_states]


async def ask(client: SimClient, request: Any) -> Any:
    try:
        return await client.request(request)
    except OSError:
        return None


def _code_of(answer: Any) -> ErrorCode:
    code: ErrorCode = ErrorCode.request_timed_out if answer is None else answer.error_code
    return code
