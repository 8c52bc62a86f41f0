"""AlterPartition, versions 2 and 3 (KIP-497): a leader changes the ISR. v2 topic ids; v3 broker epochs (KIP-903)."""

from datetime import timedelta
from itertools import groupby
from typing import Any
from uuid import UUID

from kio.schema.alter_partition.v3.request import (
    AlterPartitionRequest,
    BrokerState,
)
from kio.schema.alter_partition.v3.request import PartitionData as RequestPartition
from kio.schema.alter_partition.v3.request import TopicData as RequestTopic
from kio.schema.alter_partition.v3.response import AlterPartitionResponse, PartitionData, TopicData

from ottla.broker.dispatch import RequestContext
from ottla.broker.services import NodeServices
from ottla.core.controller.commands import (
    AlteredPartition,
    AlterPartition,
    AlterPartitionResult,
    AlterPartitionTopic,
)
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import ZERO_UUID

_UNKNOWN_EPOCH = -1


def lift(request: AlterPartitionRequest, as_sent: Any, version: int) -> AlterPartitionRequest:
    if version >= 3:
        return request
    return AlterPartitionRequest(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        topics=tuple(
            RequestTopic(
                topic_id=topic.topic_id, partitions=tuple(_lift(partition) for partition in topic.partitions)
            )
            for topic in as_sent.topics
        ),
    )


def _lift(partition: Any) -> RequestPartition:
    return RequestPartition(
        partition_index=partition.partition_index,
        leader_epoch=partition.leader_epoch,
        new_isr_with_epochs=tuple(
            BrokerState(broker_id=broker_id, broker_epoch=_UNKNOWN_EPOCH) for broker_id in partition.new_isr
        ),
        leader_recovery_state=partition.leader_recovery_state,
        partition_epoch=partition.partition_epoch,
    )


async def handle(
    services: NodeServices, context: RequestContext, request: AlterPartitionRequest
) -> AlterPartitionResponse:
    try:
        results = await services.quorum.submit(_command(request))
    except KafkaError as error:
        return AlterPartitionResponse(throttle_time=timedelta(), error_code=error.code, topics=())
    return AlterPartitionResponse(
        throttle_time=timedelta(),
        error_code=ErrorCode.none,
        topics=tuple(
            TopicData(topic_id=topic_id, partitions=tuple(_result(result) for result in of_topic))
            for topic_id, of_topic in groupby(results, _topic_id)
        ),
    )


def _command(request: AlterPartitionRequest) -> AlterPartition:
    return AlterPartition(
        request.broker_id,
        request.broker_epoch,
        tuple(
            AlterPartitionTopic(
                topic.topic_id or ZERO_UUID,
                tuple(
                    AlteredPartition(
                        partition.partition_index,
                        partition.leader_epoch,
                        tuple(
                            (replica.broker_id, replica.broker_epoch)
                            for replica in partition.new_isr_with_epochs
                        ),
                        partition.leader_recovery_state,
                        partition.partition_epoch,
                    )
                    for partition in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


def _topic_id(result: AlterPartitionResult) -> UUID:
    return result.topic_id


def _result(result: AlterPartitionResult) -> PartitionData:
    return PartitionData(
        partition_index=result.index,
        error_code=result.error,
        leader_id=result.leader,
        leader_epoch=result.leader_epoch,
        isr=result.isr,
        leader_recovery_state=result.leader_recovery_state,
        partition_epoch=result.partition_epoch,
    )
