"""LeaveGroup, versions 0 to 5. v3 many members, static ones too (KIP-345); v4 flexible; v5 reason (KIP-800)."""

from collections.abc import Iterable
from typing import Any

from kio.schema.leave_group.v5.request import LeaveGroupRequest, MemberIdentity
from kio.schema.leave_group.v5.response import LeaveGroupResponse, MemberResponse

from ottla.broker.dispatch import RequestContext
from ottla.broker.group_requests import NO_THROTTLE
from ottla.broker.promise import Promise
from ottla.broker.services import BrokerServices
from ottla.core.groups.commands import LeaveGroup, LeavingMember, MemberLeft
from ottla.model.errors import ErrorCode, KafkaError

FIRST_WITH_MANY_MEMBERS = 3


def lift(request: LeaveGroupRequest, as_sent: Any, version: int) -> LeaveGroupRequest:
    if version >= FIRST_WITH_MANY_MEMBERS:
        return request
    return LeaveGroupRequest(
        group_id=request.group_id, members=(MemberIdentity(member_id=as_sent.member_id),)
    )


def lower(response: LeaveGroupResponse, version: int) -> LeaveGroupResponse:
    if version >= FIRST_WITH_MANY_MEMBERS or response.error_code is not ErrorCode.none:
        return response
    (member,) = response.members
    return _response(member.error_code, ())


def handle(
    services: BrokerServices, context: RequestContext, request: LeaveGroupRequest
) -> Promise[LeaveGroupResponse]:
    leaving = tuple(
        [
            LeavingMember(member.member_id, member.group_instance_id, member.reason)
            for member in request.members
        ]
    )

    def respond(left: tuple[MemberLeft, ...] | KafkaError) -> LeaveGroupResponse:
        if not isinstance(left, KafkaError):
            return _response(ErrorCode.none, left)
        if left.code is ErrorCode.unknown_member_id:  # the group does not exist: no member is known
            return _response(
                ErrorCode.none,
                [MemberLeft(member_id, instance, left.code) for member_id, instance, _ in leaving],
            )
        return _response(left.code, ())

    command = LeaveGroup(group_id=request.group_id, members=leaving)
    return services.groups.get().submit(request.group_id, command).then(respond)


def _response(code: ErrorCode, left: Iterable[MemberLeft]) -> LeaveGroupResponse:
    return LeaveGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=code,
        members=tuple(
            MemberResponse(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=member.error_code,
            )
            for member in left
        ),
    )
