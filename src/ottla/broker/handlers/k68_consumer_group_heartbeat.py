"""ConsumerGroupHeartbeat, versions 0 and 1 (KIP-848). v1 regular expressions, client-generated ids (KIP-1082)."""

from datetime import timedelta

from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest
from kio.schema.consumer_group_heartbeat.v1.response import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

from ottla.broker.dispatch import RequestContext
from ottla.broker.group_requests import (
    NO_THROTTLE,
    client_of,
    consumer_protocol_disabled,
    consumer_protocol_is_enabled,
    milliseconds,
)
from ottla.broker.promise import Promise, completed
from ottla.broker.random_uuid import random_uuid
from ottla.broker.services import BrokerServices
from ottla.core.groups import commands
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import ZERO_UUID, uuid_to_string

FIRST_WITH_CLIENT_GENERATED_IDS = 1
JOINING_EPOCH = 0


def handle(
    services: BrokerServices, context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> Promise[ConsumerGroupHeartbeatResponse]:
    if not consumer_protocol_is_enabled(services):
        return completed(_response(consumer_protocol_disabled()))
    member_id = request.member_id
    if (
        context.version < FIRST_WITH_CLIENT_GENERATED_IDS
        and not member_id
        and request.member_epoch == JOINING_EPOCH
    ):
        member_id = uuid_to_string(random_uuid(services.env))
    command = commands.ConsumerGroupHeartbeat(
        group_id=request.group_id,
        member_id=member_id,
        member_epoch=request.member_epoch,
        client=client_of(context),
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=milliseconds(request.rebalance_timeout),
        subscribed_topic_names=request.subscribed_topic_names,
        subscribed_topic_regex=request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        topic_partitions=None
        if request.topic_partitions is None
        else tuple(
            [
                commands.TopicIdPartitions(owned.topic_id or ZERO_UUID, owned.partitions)
                for owned in request.topic_partitions
            ]
        ),
    )
    return services.groups.get().submit(request.group_id, command).then(_response)


def _response(
    result: commands.ConsumerGroupHeartbeatResponse | KafkaError,
) -> ConsumerGroupHeartbeatResponse:
    if isinstance(result, KafkaError):
        return ConsumerGroupHeartbeatResponse(
            throttle_time=NO_THROTTLE,
            error_code=result.code,
            error_message=result.message,
            member_epoch=0,
            heartbeat_interval=NO_THROTTLE,
        )
    return ConsumerGroupHeartbeatResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval=timedelta(milliseconds=result.heartbeat_interval_ms),
        assignment=None
        if result.assignment is None
        else Assignment(
            topic_partitions=tuple(
                [
                    TopicPartitions(topic_id=topic_id, partitions=partitions)
                    for topic_id, partitions in result.assignment
                ]
            )
        ),
    )
