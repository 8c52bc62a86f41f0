"""OffsetDelete, version 0 (KIP-496)."""

from kio.schema.offset_delete.v0.request import OffsetDeleteRequest
from kio.schema.offset_delete.v0.response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

from ottla.broker.dispatch import RequestContext
from ottla.broker.group_requests import NO_THROTTLE
from ottla.broker.long_requests import is_long, prepare, submit_in_slices
from ottla.broker.promise import Promise
from ottla.broker.services import BrokerServices
from ottla.core.controller.image import MetadataImage
from ottla.core.groups.commands import OffsetDelete, PartitionError
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition

Deleted = tuple[PartitionError, ...] | KafkaError


def handle(
    services: BrokerServices, context: RequestContext, request: OffsetDeleteRequest
) -> Promise[OffsetDeleteResponse]:
    in_thread = is_long(topic.partitions for topic in request.topics)
    groups, image = services.groups.get(), services.metadata.image

    def delete(known: list[TopicPartition]) -> Promise[Deleted]:
        return submit_in_slices(
            services,
            known,
            lambda partitions: groups.submit(
                request.group_id, OffsetDelete(group_id=request.group_id, partitions=tuple(partitions))
            ),
        )

    def respond(deleted: Deleted) -> Promise[OffsetDeleteResponse]:
        return prepare(services, lambda: _response(request, deleted), in_thread=in_thread)

    known = prepare(services, lambda: _known(image, request), in_thread=in_thread)
    deleted: Promise[Deleted] = known.then(delete)
    return deleted.then(respond)


def _known(image: MetadataImage, request: OffsetDeleteRequest) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
        if image.partition(topic.name, partition.partition_index) is not None
    ]


def _response(request: OffsetDeleteRequest, deleted: Deleted) -> OffsetDeleteResponse:
    if isinstance(deleted, KafkaError):
        return OffsetDeleteResponse(error_code=deleted.code, throttle_time=NO_THROTTLE, topics=())
    codes = {(topic, index): code for topic, index, code in deleted}
    return OffsetDeleteResponse(
        error_code=ErrorCode.none,
        throttle_time=NO_THROTTLE,
        topics=tuple(
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=tuple(
                    OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=codes.get(
                            (topic.name, partition.partition_index), ErrorCode.unknown_topic_or_partition
                        ),
                    )
                    for partition in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )
