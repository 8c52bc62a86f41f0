"""The requests of transactional producers in transaction versions 0 and 2 (KIP-890): kio messages over a `SimClient`.

A missing response counts as REQUEST_TIMED_OUT: whether the broker has processed the request is not known.
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
from ottla.sim.client import SimClient, error_of
from ottla.sim.group_client import Identity, Topic

_TIMEOUT = timedelta(seconds=5)


class ProducerIdentity(NamedTuple):
    producer_id: int = -1
    producer_epoch: int = -1


class TransactionClient:
    """`is_v2`: transaction version 2, in which Produce adds the partition to the transaction."""

    def __init__(self, client: SimClient, transactional_id: str, *, is_v2: bool) -> None:
        self._client = client
        self.transactional_id = transactional_id
        self.is_v2 = is_v2

    async def find_coordinator(self) -> ErrorCode:
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=(self.transactional_id,))
        response = await self._client.try_request(request)
        return error_of(response.coordinators[0] if response is not None else None)

    async def init(self, timeout_s: float) -> tuple[ErrorCode, ProducerIdentity]:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout=timedelta(seconds=timeout_s)
        )
        response = await self._client.try_request(request)
        if response is None:
            return ErrorCode.request_timed_out, ProducerIdentity()
        return response.error_code, ProducerIdentity(response.producer_id, response.producer_epoch)

    async def add_partition(self, producer: ProducerIdentity, topic: Topic, partition: int) -> ErrorCode:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=(AddPartitionsToTxnTopic(name=topic.name, partitions=(partition,)),),
        )
        response = await self._client.try_request(request)
        if response is None:
            return ErrorCode.request_timed_out
        code: ErrorCode = (
            response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        )
        return code

    async def produce(self, topic: Topic, partition: int, batch: bytes) -> tuple[ErrorCode, int]:
        """Returns the error and the offset of the first record."""
        schema: Any = produce_v13 if self.is_v2 else produce_v11
        topic_field = {"topic_id": topic.topic_id} if self.is_v2 else {"name": topic.name}
        data = schema.PartitionProduceData(index=partition, records=batch)
        request = schema.ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout=_TIMEOUT,
            topic_data=(schema.TopicProduceData(**topic_field, partition_data=(data,)),),
        )
        response = await self._client.try_request(request)
        if response is None:
            return ErrorCode.request_timed_out, -1
        partition_response = response.responses[0].partition_responses[0]
        return partition_response.error_code, partition_response.base_offset

    async def add_offsets(self, producer: ProducerIdentity, group_id: str) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            group_id=group_id,
        )
        return error_of(await self._client.try_request(request))

    async def commit_offset(
        self,
        producer: ProducerIdentity,
        group_id: str,
        member: Identity,
        topic: Topic,
        partition: int,
        offset: int,
    ) -> ErrorCode:
        schema: Any = offsets_v5 if self.is_v2 else offsets_v4
        committed = schema.TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=None
        )
        request = schema.TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            topics=(schema.TxnOffsetCommitRequestTopic(name=topic.name, partitions=(committed,)),),
        )
        response = await self._client.try_request(request)
        return error_of(response.topics[0].partitions[0] if response is not None else None)

    async def end(self, producer: ProducerIdentity, *, commit: bool) -> tuple[ErrorCode, ProducerIdentity]:
        """Returns the error and the producer id and epoch for the next transaction."""
        schema: Any = end_v5 if self.is_v2 else end_v4
        request = schema.EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            committed=commit,
        )
        response = await self._client.try_request(request)
        if response is None or response.error_code != ErrorCode.none or not self.is_v2:
            return error_of(response), producer
        return ErrorCode.none, ProducerIdentity(response.producer_id, response.producer_epoch)


async def list_transactions(client: SimClient, *states: str) -> list[str] | None:
    """The transactional ids in these states; None if the coordinator could not answer."""
    response = await client.try_request(ListTransactionsRequest(state_filters=states, producer_id_filters=()))
    if response is None or response.error_code != ErrorCode.none:
        return None
    return [transaction.transactional_id for transaction in response.transaction_states]
