"""DescribeGroups, versions 0 to 6: groups of the classic protocol.

v3 authorized operations (KIP-430); v4 static members (KIP-345); v5 flexible; v6 has an error for a group that does not
exist (KIP-1043); older versions get a group in the state Dead.
"""

from kio.schema.describe_groups.v6.request import DescribeGroupsRequest
from kio.schema.describe_groups.v6.response import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)

from ottla.broker.authorized_operations import GROUP_OPERATIONS, NOT_REQUESTED
from ottla.broker.dispatch import RequestContext
from ottla.broker.group_requests import NO_THROTTLE
from ottla.broker.promise import Promise
from ottla.broker.services import BrokerServices
from ottla.core.groups import commands
from ottla.model.errors import ErrorCode, KafkaError

FIRST_WITH_NOT_FOUND = 6
DEAD = "Dead"


def handle(
    services: BrokerServices, context: RequestContext, request: DescribeGroupsRequest
) -> Promise[DescribeGroupsResponse]:
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_REQUESTED

    def describe(group_id: str) -> Promise[DescribedGroup]:
        def respond(result: commands.DescribedGroup | KafkaError) -> DescribedGroup:
            if isinstance(result, KafkaError):
                return _error_response(group_id, result, context.version, operations)
            return _description(result, operations)

        return services.groups.get().submit(group_id, commands.DescribeGroup(group_id=group_id)).then(respond)

    group_ids = tuple(dict.fromkeys(request.groups))  # a group that is named twice has one entry
    return services.scheduler.run(group_ids, describe).then(
        lambda groups: DescribeGroupsResponse(throttle_time=NO_THROTTLE, groups=tuple(groups))
    )


def _error_response(group_id: str, error: KafkaError, version: int, operations: int) -> DescribedGroup:
    not_found = error.code is ErrorCode.group_id_not_found
    as_dead = not_found and version < FIRST_WITH_NOT_FOUND
    return DescribedGroup(
        error_code=ErrorCode.none if as_dead else error.code,
        error_message=None if as_dead else error.message,
        group_id=group_id,
        group_state=DEAD if not_found else "",
        protocol_type="",
        protocol_data="",
        members=(),
        authorized_operations=operations if as_dead else NOT_REQUESTED,
    )


def _description(group: commands.DescribedGroup, operations: int) -> DescribedGroup:
    return DescribedGroup(
        error_code=ErrorCode.none,
        group_id=group.group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol_data,
        members=tuple(
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client.client_id,
                client_host=member.client.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in group.members
        ),
        authorized_operations=operations,
    )
