"""FindCoordinator, versions 0 to 6. v1 transactions; v3 flexible; v4 many keys (KIP-699); v6 share groups (KIP-932)."""

from enum import IntEnum
from typing import Any
from uuid import UUID

from kio.schema.find_coordinator.v3.response import FindCoordinatorResponse as FindCoordinatorResponseV3
from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v6.response import Coordinator, FindCoordinatorResponse

from ottla.broker.client_view import nodes_for_client
from ottla.broker.dispatch import RequestContext
from ottla.broker.group_requests import NO_THROTTLE
from ottla.broker.promise import Promise
from ottla.broker.services import BrokerServices
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import uuid_from_string

FIRST_WITH_MANY_KEYS = 4
FIRST_WITH_SHARE_GROUPS = 6


class KeyType(IntEnum):
    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


def lift(request: FindCoordinatorRequest, as_sent: Any, version: int) -> FindCoordinatorRequest:
    if version >= FIRST_WITH_MANY_KEYS:
        return request
    return FindCoordinatorRequest(key_type=request.key_type, coordinator_keys=(as_sent.key,))


def lower(response: FindCoordinatorResponse, version: int) -> Any:
    if version >= FIRST_WITH_MANY_KEYS:
        return response
    (coordinator,) = response.coordinators
    return FindCoordinatorResponseV3(
        throttle_time=response.throttle_time,
        error_code=coordinator.error_code,
        error_message=coordinator.error_message,
        node_id=coordinator.node_id,
        host=coordinator.host,
        port=coordinator.port,
    )


async def handle(
    services: BrokerServices, context: RequestContext, request: FindCoordinatorRequest
) -> Promise[FindCoordinatorResponse]:
    nodes = {node.node_id: node for node in nodes_for_client(services, context.connection)}
    keys = tuple(dict.fromkeys(request.coordinator_keys))  # a key that is named twice has one entry
    topic_error = await _create_topic(services, request.key_type) if keys else None

    def find(key: str) -> Coordinator:
        found = topic_error or _find(services, context.version, request.key_type, key)
        if isinstance(found, KafkaError):
            return _error_response(key, found)
        if found not in nodes:
            message = f"the coordinator of {key!r} is broker {found}, which is not available"
            return _error_response(key, KafkaError(ErrorCode.coordinator_not_available, message))
        node = nodes[found]
        return Coordinator(
            key=key,
            node_id=node.node_id,
            host=node.host,
            port=node.port,
            error_code=ErrorCode.none,
            error_message="",
        )

    return services.scheduler.run(keys, find).then(
        lambda coordinators: FindCoordinatorResponse(
            throttle_time=NO_THROTTLE, coordinators=tuple(coordinators)
        )
    )


async def _create_topic(services: BrokerServices, key_type: int) -> KafkaError | None:
    """Creates the coordinator's topic if it does not exist. Returns an error for all keys."""
    match key_type:
        case KeyType.GROUP:
            return await services.groups.get().runtimes.create_topic()
        case KeyType.TRANSACTION:
            return await services.transactions.get().runtimes.create_topic()
    return None


def _find(services: BrokerServices, version: int, key_type: int, key: str) -> int | KafkaError:
    match key_type:
        case KeyType.GROUP:
            return services.groups.get().runtimes.leader_of(key)
        case KeyType.TRANSACTION:
            return services.transactions.get().runtimes.leader_of(key)
        case KeyType.SHARE if version >= FIRST_WITH_SHARE_GROUPS and _is_share_partition(key):
            return KafkaError(ErrorCode.coordinator_not_available, "this broker coordinates no share groups")
        case KeyType.SHARE:
            return KafkaError(
                ErrorCode.invalid_request,
                f"{key!r} is not a key of a share partition: use group:topic-id:partition",
            )
    return KafkaError(
        ErrorCode.invalid_request,
        f"there is no coordinator of type {key_type}: 0 is for groups, 1 for transactions, 2 for share groups",
    )


def _is_share_partition(key: str) -> bool:
    group, *rest = key.rsplit(":", 2)
    try:
        topic_id, partition = rest
        return bool(group) and isinstance(uuid_from_string(topic_id), UUID) and int(partition) >= 0
    except ValueError:
        return False


def _error_response(key: str, error: KafkaError) -> Coordinator:
    return Coordinator(
        key=key, node_id=-1, host="", port=-1, error_code=error.code, error_message=error.message
    )
