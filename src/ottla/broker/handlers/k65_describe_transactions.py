"""DescribeTransactions, version 0 (KIP-664)."""

from datetime import UTC, datetime, timedelta

from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
from kio.schema.describe_transactions.v0.response import (
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

from ottla.broker.dispatch import RequestContext
from ottla.broker.group_requests import NO_THROTTLE
from ottla.broker.promise import Promise
from ottla.broker.services import BrokerServices
from ottla.core.transactions.commands import DescribedTransaction, DescribeTransaction
from ottla.model.errors import ErrorCode, KafkaError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def handle(
    services: BrokerServices, context: RequestContext, request: DescribeTransactionsRequest
) -> Promise[DescribeTransactionsResponse]:
    def describe(transactional_id: str) -> Promise[TransactionState]:
        command = DescribeTransaction(transactional_id=transactional_id)
        described = services.transactions.get().submit(transactional_id, command)
        return described.then(lambda result: _state(transactional_id, result))

    transactional_ids = tuple(
        dict.fromkeys(request.transactional_ids)
    )  # an id that is named twice has one entry
    return services.scheduler.run(transactional_ids, describe).then(
        lambda states: DescribeTransactionsResponse(
            throttle_time=NO_THROTTLE, transaction_states=tuple(states)
        )
    )


def _state(transactional_id: str, described: DescribedTransaction | KafkaError) -> TransactionState:
    code = ErrorCode.none
    if isinstance(described, KafkaError):
        code, described = described.code, DescribedTransaction(transactional_id, "", 0, 0, 0, 0, ())
    topics: dict[str, list[int]] = {}
    for topic, partition in described.partitions:
        topics.setdefault(topic, []).append(partition)
    return TransactionState(
        error_code=code,
        transactional_id=transactional_id,
        transaction_state=described.state,
        transaction_timeout=timedelta(milliseconds=described.timeout_ms),
        transaction_start_time=_EPOCH + timedelta(milliseconds=described.start_ms),
        producer_id=described.producer_id,
        producer_epoch=described.producer_epoch,
        topics=tuple(
            TopicData(topic=topic, partitions=tuple(partitions)) for topic, partitions in topics.items()
        ),
    )
