"""DeleteGroups, versions 0 to 2 (KIP-229). v2 flexible."""

from typing import TYPE_CHECKING

from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
from kio.schema.delete_groups.v2.response import DeletableGroupResult, DeleteGroupsResponse

from ottla.broker.dispatch import RequestContext
from ottla.broker.group_requests import NO_THROTTLE
from ottla.broker.pending import Pending, gather
from ottla.core.groups.commands import DeleteGroup
from ottla.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.node import Broker


def handle(
    broker: "Broker", context: RequestContext, request: DeleteGroupsRequest
) -> Pending[DeleteGroupsResponse]:
    group_ids = tuple(dict.fromkeys(request.groups_names))  # one that is named twice is deleted once

    def answer(results: list[KafkaError | None]) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(
            throttle_time=NO_THROTTLE,
            results=tuple(
                DeletableGroupResult(
                    group_id=group_id, error_code=ErrorCode.none if refused is None else refused.code
                )
                for group_id, refused in zip(group_ids, results, strict=True)
            ),
        )

    return gather(
        [broker.groups.submit(group_id, DeleteGroup(group_id=group_id)) for group_id in group_ids]
    ).then(answer)
