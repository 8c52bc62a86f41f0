"""OffsetDelete, version 0 (KIP-496)."""

from kio.schema.offset_delete.v0.request import OffsetDeleteRequest
from kio.schema.offset_delete.v0.response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

from ottla.broker.dispatch import RequestContext
from ottla.broker.group_requests import NO_THROTTLE
from ottla.broker.promise import Promise
from ottla.broker.services import BrokerServices
from ottla.core.groups.commands import OffsetDelete, PartitionError
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition


def handle(
    services: BrokerServices, context: RequestContext, request: OffsetDeleteRequest
) -> Promise[OffsetDeleteResponse]:
    asked = [
        (topic.name, [partition.partition_index for partition in topic.partitions])
        for topic in request.topics
    ]
    known = tuple(
        TopicPartition(topic, index)
        for topic, indexes in asked
        for index in indexes
        if services.metadata.image.partition(topic, index) is not None
    )

    def respond(deleted: tuple[PartitionError, ...] | KafkaError) -> OffsetDeleteResponse:
        if isinstance(deleted, KafkaError):
            return OffsetDeleteResponse(error_code=deleted.code, throttle_time=NO_THROTTLE, topics=())
        codes = {(topic, index): code for topic, index, code in deleted}
        return OffsetDeleteResponse(
            error_code=ErrorCode.none,
            throttle_time=NO_THROTTLE,
            topics=tuple(
                OffsetDeleteResponseTopic(
                    name=topic,
                    partitions=tuple(
                        OffsetDeleteResponsePartition(
                            partition_index=index,
                            error_code=codes.get((topic, index), ErrorCode.unknown_topic_or_partition),
                        )
                        for index in indexes
                    ),
                )
                for topic, indexes in asked
            ),
        )

    command = OffsetDelete(group_id=request.group_id, partitions=known)
    return services.groups.get().submit(request.group_id, command).then(respond)
