"""SyncGroup, versions 0 to 5. v3 static members (KIP-345); v4 flexible; v5 protocol type and name (KIP-559)."""

from kio.schema.sync_group.v5.request import SyncGroupRequest
from kio.schema.sync_group.v5.response import SyncGroupResponse

from ottla.broker.dispatch import RequestContext
from ottla.broker.group_requests import NO_THROTTLE
from ottla.broker.promise import Promise, completed
from ottla.broker.services import BrokerServices
from ottla.core.groups import commands
from ottla.model.errors import ErrorCode, KafkaError

FIRST_WITH_PROTOCOL = 5


def handle(
    services: BrokerServices, context: RequestContext, request: SyncGroupRequest
) -> Promise[SyncGroupResponse]:
    if context.version >= FIRST_WITH_PROTOCOL and None in (request.protocol_type, request.protocol_name):
        message = f"SyncGroup v{context.version} of group {request.group_id!r} does not name its protocol"
        return completed(_response(KafkaError(ErrorCode.inconsistent_group_protocol, message)))
    command = commands.SyncGroup(
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments=tuple([(member.member_id, member.assignment) for member in request.assignments]),
    )
    return services.groups.get().submit(request.group_id, command).then(_response)


def _response(synced: commands.SyncGroupResponse | KafkaError) -> SyncGroupResponse:
    code = ErrorCode.none
    if isinstance(synced, KafkaError):
        code, synced = synced.code, commands.SyncGroupResponse(b"")
    return SyncGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=code,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol_name,
        assignment=synced.assignment,
    )
