"""ListGroups, versions 0 to 5. v3 flexible; v4 states, with a filter (KIP-518); v5 types, with a filter (KIP-848)."""

from collections.abc import Iterable

from kio.schema.list_groups.v5.request import ListGroupsRequest
from kio.schema.list_groups.v5.response import ListedGroup, ListGroupsResponse

from ottla.broker.dispatch import RequestContext
from ottla.broker.group_requests import NO_THROTTLE
from ottla.broker.promise import Promise
from ottla.broker.services import BrokerServices
from ottla.core.groups import commands
from ottla.model.errors import ErrorCode, KafkaError


def handle(
    services: BrokerServices, context: RequestContext, request: ListGroupsRequest
) -> Promise[ListGroupsResponse]:
    command = commands.ListGroups(
        states=frozenset(state.lower() for state in request.states_filter),
        types=frozenset(group_type.lower() for group_type in request.types_filter),
    )

    def respond(
        listed: tuple[commands.ListedGroup, ...] | KafkaError,
    ) -> ListGroupsResponse | Promise[ListGroupsResponse]:
        if isinstance(listed, KafkaError):
            return _response(listed.code, ())
        return services.scheduler.run(listed, _group).then(lambda groups: _response(ErrorCode.none, groups))

    return services.groups.get().list_groups(command).then(respond)


def _response(code: ErrorCode, groups: Iterable[ListedGroup]) -> ListGroupsResponse:
    return ListGroupsResponse(throttle_time=NO_THROTTLE, error_code=code, groups=tuple(groups))


def _group(group: commands.ListedGroup) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type,
        group_state=group.state,
        group_type=group.group_type,
    )
