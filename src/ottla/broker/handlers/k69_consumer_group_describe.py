"""ConsumerGroupDescribe, versions 0 and 1 (KIP-848). v1 has the protocol of each member (KIP-1099)."""

from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest
from kio.schema.consumer_group_describe.v1.response import (
    Assignment,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

from ottla.broker.authorized_operations import GROUP_OPERATIONS, NOT_REQUESTED
from ottla.broker.dispatch import RequestContext
from ottla.broker.group_requests import NO_THROTTLE, consumer_protocol_disabled, consumer_protocol_is_enabled
from ottla.broker.promise import Promise, completed
from ottla.broker.services import BrokerServices
from ottla.core.groups import commands
from ottla.model.errors import ErrorCode, KafkaError

Result = commands.DescribedConsumerGroup | KafkaError


def handle(
    services: BrokerServices, context: RequestContext, request: ConsumerGroupDescribeRequest
) -> Promise[ConsumerGroupDescribeResponse]:
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_REQUESTED

    def describe(group_id: str) -> Promise[DescribedGroup]:
        def respond(result: Result) -> DescribedGroup:
            if isinstance(result, KafkaError):
                return _error_response(group_id, result)
            return _description(result, operations)

        return _describe(services, group_id).then(respond)

    group_ids = tuple(dict.fromkeys(request.group_ids))  # a group that is named twice has one entry
    return services.scheduler.run(group_ids, describe).then(
        lambda groups: ConsumerGroupDescribeResponse(throttle_time=NO_THROTTLE, groups=tuple(groups))
    )


def _describe(services: BrokerServices, group_id: str) -> Promise[Result]:
    if not consumer_protocol_is_enabled(services):
        return completed(consumer_protocol_disabled())
    if not group_id:
        return completed(KafkaError(ErrorCode.invalid_group_id, "a group id must not be empty"))
    return services.groups.get().submit(group_id, commands.DescribeConsumerGroup(group_id=group_id))


def _error_response(group_id: str, error: KafkaError) -> DescribedGroup:
    return DescribedGroup(
        error_code=error.code,
        error_message=error.message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=(),
    )


def _description(group: commands.DescribedConsumerGroup, operations: int) -> DescribedGroup:
    return DescribedGroup(
        error_code=ErrorCode.none,
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor_name,
        members=tuple(_member(member) for member in group.members),
        authorized_operations=operations,
    )


def _member(member: commands.DescribedConsumer) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client.client_id,
        client_host=member.client.client_host,
        subscribed_topic_names=member.subscribed_topic_names,
        subscribed_topic_regex=member.subscribed_topic_regex
        or "",  # as in Kafka, an empty string means that there is none
        assignment=_assignment(member.assignment),
        target_assignment=_assignment(member.target_assignment),
        member_type=member.member_type,
    )


def _assignment(partitions: tuple[commands.ConsumerAssignment, ...]) -> Assignment:
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(topic_id=topic_id, topic_name=topic, partitions=indexes)
            for topic_id, topic, indexes in partitions
        )
    )
