"""Transactions as their coordinators know them: list and describe (KIP-664)."""

import time
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
from kio.schema.describe_transactions.v0.response import DescribeTransactionsResponse
from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v4.response import FindCoordinatorResponse
from kio.schema.list_transactions import v0, v1, v2
from kio.schema.types import ProducerId, TransactionalId
from kio.static.primitive import i8, i64

from ottla.admin.cluster import REQUEST_TIMEOUT_S, Cluster, ClusterError
from ottla.admin.nodes import Node, call, list_nodes
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition

STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
)
_OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")
_TRANSACTION_KEY_TYPE = i8(1)
_RETRIABLE = (
    ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.not_coordinator,
)
_RETRY_S = 0.1


class TransactionListing(NamedTuple):
    transactional_id: str
    state: str
    producer_id: int
    coordinator: int


class TransactionDescription(NamedTuple):
    transactional_id: str
    state: str
    coordinator: Node
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    # None if no transaction has begun.
    start_ms: int | None
    # The partitions that were written to; once the outcome is decided, those that have no marker yet.
    partitions: list[TopicPartition]


def list_transactions(
    cluster: Cluster,
    *,
    states: Collection[str] = (),
    longer_than_ms: int | None = None,
    pattern: str | None = None,
    producer_ids: Iterable[int] = (),
) -> list[TransactionListing]:
    """Sorted by transactional id. Filters are combined with AND.

    For brokers an id without a transaction has one that began in 1970, so a filter by duration asks for open ones only.
    """
    if longer_than_ms is not None and not states:
        states = _OPEN_STATES
    request = _list_request(states, longer_than_ms, pattern, producer_ids)
    return sorted(
        TransactionListing(line.transactional_id, line.transaction_state, line.producer_id, node.id)
        for node in list_nodes(cluster)
        for line in _list(node, *request).transaction_states
    )


def _list(node: Node, request: Any, response_type: Any) -> Any:
    what = "Transactions cannot be listed"
    deadline = time.monotonic() + REQUEST_TIMEOUT_S
    while True:
        response = call(node, request, response_type, what)
        if response.error_code is ErrorCode.none:
            return response
        if response.error_code is ErrorCode.invalid_regular_expression:
            raise ClusterError(
                f"{what}: {request.transactional_id_pattern!r} is not a regular expression of RE2. Fix the pattern"
            )
        if response.error_code not in _RETRIABLE or time.monotonic() > deadline:
            raise ClusterError(
                f"{what}: broker {node} responded {response.error_code.name.upper()}. Try again"
            )
        time.sleep(_RETRY_S)


def _list_request(
    states: Collection[str], longer_than_ms: int | None, pattern: str | None, producer_ids: Iterable[int]
) -> tuple[Any, Any]:
    """In the oldest version that has these filters, for older brokers (KIP-994, KIP-1152)."""
    filters: dict[str, Any] = {
        "state_filters": tuple(states),
        "producer_id_filters": tuple(map(ProducerId, producer_ids)),
    }
    if longer_than_ms is not None:
        filters["duration_filter"] = i64(longer_than_ms)
    if pattern is not None:
        filters["transactional_id_pattern"] = pattern
        return v2.request.ListTransactionsRequest(**filters), v2.response.ListTransactionsResponse
    if longer_than_ms is not None:
        return v1.request.ListTransactionsRequest(**filters), v1.response.ListTransactionsResponse
    return v0.request.ListTransactionsRequest(**filters), v0.response.ListTransactionsResponse


def describe_transactions(cluster: Cluster, transactional_ids: Sequence[str]) -> list[TransactionDescription]:
    """Raises ClusterError if a coordinator does not know one of them."""
    return [_describe(cluster, transactional_id) for transactional_id in dict.fromkeys(transactional_ids)]


def _describe(cluster: Cluster, transactional_id: str) -> TransactionDescription:
    what = f"Transactional id {transactional_id}"
    deadline = time.monotonic() + REQUEST_TIMEOUT_S
    request = DescribeTransactionsRequest(transactional_ids=(TransactionalId(transactional_id),))
    while True:
        coordinator, error = _find_coordinator(cluster, transactional_id)
        if coordinator is not None:
            (found,) = call(coordinator, request, DescribeTransactionsResponse, what).transaction_states
            if found.error_code is ErrorCode.none:
                return _description(found, coordinator)
            error = found.error_code
        if error is ErrorCode.transactional_id_not_found:
            raise ClusterError(f"{what}: its coordinator does not know it. See: ottla transactions list")
        if error not in _RETRIABLE or time.monotonic() > deadline:
            raise ClusterError(f"{what}: the cluster responded {error.name.upper()}. Try again")
        time.sleep(_RETRY_S)


def _find_coordinator(cluster: Cluster, transactional_id: str) -> tuple[Node | None, ErrorCode]:
    request = FindCoordinatorRequest(key_type=_TRANSACTION_KEY_TYPE, coordinator_keys=(transactional_id,))
    what = f"The coordinator of transactional id {transactional_id}"
    (found,) = call(list_nodes(cluster)[0], request, FindCoordinatorResponse, what).coordinators
    if found.error_code is not ErrorCode.none:
        return None, found.error_code
    return Node(found.node_id, found.host, found.port), ErrorCode.none


def _description(found: Any, coordinator: Node) -> TransactionDescription:
    start = found.transaction_start_time
    return TransactionDescription(
        found.transactional_id,
        found.transaction_state,
        coordinator,
        found.producer_id,
        found.producer_epoch,
        round(found.transaction_timeout.total_seconds() * 1000),
        None if start is None else round(start.timestamp() * 1000),
        sorted(TopicPartition(topic.topic, number) for topic in found.topics for number in topic.partitions),
    )
