"""JoinGroup, versions 0 to 9.

v1 a rebalance timeout beside the session timeout (KIP-62); v4 a member gets its id before it joins (KIP-394); v5 static
members (KIP-345); v7 protocol type in the response (KIP-559); v8 reason (KIP-800); v9 a leader that rejoins may skip
the assignment (KIP-814).
"""

from kio.schema.join_group.v9.request import JoinGroupRequest
from kio.schema.join_group.v9.response import JoinGroupResponse, JoinGroupResponseMember

from ottla.broker.dispatch import RequestContext
from ottla.broker.group_requests import NO_THROTTLE, client_of, milliseconds, new_member_id
from ottla.broker.promise import Promise
from ottla.broker.random_uuid import random_uuid
from ottla.broker.services import BrokerServices
from ottla.core.groups import commands
from ottla.model.errors import KafkaError

FIRST_THAT_REQUIRES_KNOWN_MEMBERS = 4
FIRST_THAT_CAN_SKIP_ASSIGNMENT = 9


def handle(
    services: BrokerServices, context: RequestContext, request: JoinGroupRequest
) -> Promise[JoinGroupResponse]:
    version = context.version
    # Version 0 has no rebalance timeout: the session timeout was used for both.
    rebalance_timeout = request.rebalance_timeout if version >= 1 else request.session_timeout
    command = commands.JoinGroup(
        group_id=request.group_id,
        member_id=request.member_id,
        new_member_id=new_member_id(
            request.group_instance_id or context.client_id, random_uuid(services.env)
        ),
        client=client_of(context),
        session_timeout_ms=milliseconds(request.session_timeout),
        rebalance_timeout_ms=milliseconds(rebalance_timeout),
        protocol_type=request.protocol_type,
        protocols=tuple([(protocol.name, protocol.metadata) for protocol in request.protocols]),
        group_instance_id=request.group_instance_id,
        require_known_member_id=version >= FIRST_THAT_REQUIRES_KNOWN_MEMBERS,
        can_skip_assignment=version >= FIRST_THAT_CAN_SKIP_ASSIGNMENT,
        reason=request.reason,
    )

    def respond(joined: commands.JoinGroupResponse | KafkaError) -> JoinGroupResponse:
        if isinstance(joined, KafkaError):
            joined = commands.JoinGroupResponse(joined.code, request.member_id)
        return _response(joined)

    return services.groups.get().submit(request.group_id, command).then(respond)


def _response(joined: commands.JoinGroupResponse) -> JoinGroupResponse:
    return JoinGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=joined.error_code,
        generation_id=joined.generation_id,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol_name or None,
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=tuple(
            [
                JoinGroupResponseMember(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    metadata=member.metadata,
                )
                for member in joined.members
            ]
        ),
    )
