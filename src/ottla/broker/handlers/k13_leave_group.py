"""LeaveGroup, versions 0 to 5. v3 many members, static ones too (KIP-345); v4 flexible; v5 reason (KIP-800)."""

from collections.abc import Iterable, Sequence
from typing import Any

from kio.schema.leave_group.v5.request import LeaveGroupRequest, MemberIdentity
from kio.schema.leave_group.v5.response import LeaveGroupResponse, MemberResponse

from ottla.broker.dispatch import RequestContext
from ottla.broker.group_requests import NO_THROTTLE
from ottla.broker.long_requests import ELEMENTS_PER_SLICE, prepare, submit_in_slices
from ottla.broker.promise import Promise, completed
from ottla.broker.services import BrokerServices
from ottla.core.groups.commands import LeaveGroup, LeavingMember, MemberLeft
from ottla.model.errors import ErrorCode, KafkaError

FIRST_WITH_MANY_MEMBERS = 3

Left = tuple[MemberLeft, ...] | KafkaError


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
    in_thread = len(request.members) > ELEMENTS_PER_SLICE
    groups, group_id = services.groups.get(), request.group_id

    def leave(members: list[LeavingMember]) -> Promise[Left]:
        return submit_in_slices(services, members, leave_together)

    def leave_together(members: Sequence[LeavingMember]) -> Promise[Left]:
        command = LeaveGroup(group_id=group_id, members=tuple(members))
        return groups.submit(group_id, command).then(lambda left: _unless_unknown(members, left))

    def respond(left: Left) -> Promise[LeaveGroupResponse]:
        if isinstance(left, KafkaError):
            return completed(_response(left.code, ()))
        return prepare(services, lambda: _response(ErrorCode.none, left), in_thread=in_thread)

    leaving = prepare(services, lambda: _leaving(request), in_thread=in_thread)
    all_left: Promise[Left] = leaving.then(leave)
    return all_left.then(respond)


def _leaving(request: LeaveGroupRequest) -> list[LeavingMember]:
    return [
        LeavingMember(member.member_id, member.group_instance_id, member.reason) for member in request.members
    ]


def _unless_unknown(members: Sequence[LeavingMember], left: Left) -> Left:
    """If the group does not exist, no member is known."""
    if isinstance(left, KafkaError) and left.code is ErrorCode.unknown_member_id:
        return tuple([MemberLeft(member_id, instance, left.code) for member_id, instance, _ in members])
    return left


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
