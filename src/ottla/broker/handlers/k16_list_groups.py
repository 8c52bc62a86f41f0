"""ListGroups, versions 0 to 5. v3 flexible; v4 states and a filter by them (KIP-518); v5 types and theirs (KIP-848)."""

from typing import TYPE_CHECKING

from kio.schema.list_groups.v5.request import ListGroupsRequest
from kio.schema.list_groups.v5.response import ListedGroup, ListGroupsResponse

from ottla.broker.dispatch import RequestContext
from ottla.broker.group_requests import NO_THROTTLE
from ottla.broker.pending import Pending
from ottla.core.groups import commands
from ottla.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.node import Broker


def handle(
    broker: "Broker", context: RequestContext, request: ListGroupsRequest
) -> Pending[ListGroupsResponse]:
    command = commands.ListGroups(
        states=frozenset(state.lower() for state in request.states_filter),
        types=frozenset(group_type.lower() for group_type in request.types_filter),
    )
    return broker.groups.list_groups(command).then(_response)


def _response(listed: tuple[commands.ListedGroup, ...] | KafkaError) -> ListGroupsResponse:
    if isinstance(listed, KafkaError):
        return ListGroupsResponse(throttle_time=NO_THROTTLE, error_code=listed.code, groups=())
    return ListGroupsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        groups=tuple(
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.group_type,
            )
            for group in listed
        ),
    )
