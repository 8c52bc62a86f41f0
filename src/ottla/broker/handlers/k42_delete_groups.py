"""DeleteGroups, versions 0 to 2 (KIP-229). v2 flexible."""

from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
from kio.schema.delete_groups.v2.response import DeletableGroupResult, DeleteGroupsResponse

from ottla.broker.dispatch import RequestContext
from ottla.broker.group_requests import NO_THROTTLE
from ottla.broker.promise import Promise
from ottla.broker.services import BrokerServices
from ottla.core.groups.commands import DeleteGroup
from ottla.model.errors import ErrorCode, KafkaError


def handle(
    services: BrokerServices, context: RequestContext, request: DeleteGroupsRequest
) -> Promise[DeleteGroupsResponse]:
    group_ids = tuple(dict.fromkeys(request.groups_names))  # a group that is named twice has one entry

    def delete(group_id: str) -> Promise[DeletableGroupResult]:
        def respond(error: KafkaError | None) -> DeletableGroupResult:
            code = ErrorCode.none if error is None else error.code
            return DeletableGroupResult(group_id=group_id, error_code=code)

        return services.groups.get().submit(group_id, DeleteGroup(group_id=group_id)).then(respond)

    return services.scheduler.run(group_ids, delete).then(
        lambda results: DeleteGroupsResponse(throttle_time=NO_THROTTLE, results=tuple(results))
    )
