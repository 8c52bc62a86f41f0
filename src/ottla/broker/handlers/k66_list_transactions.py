"""ListTransactions, versions 0 to 2 (KIP-664). v1 filter by duration (KIP-994); v2 filter by a pattern (KIP-1152)."""

from kio.schema.list_transactions.v2.request import ListTransactionsRequest
from kio.schema.list_transactions.v2.response import ListTransactionsResponse, TransactionState

from ottla.broker.dispatch import RequestContext
from ottla.broker.group_requests import NO_THROTTLE
from ottla.broker.promise import Promise
from ottla.broker.services import BrokerServices
from ottla.core.transactions import commands
from ottla.core.transactions.states import STATE_NAMES
from ottla.model.errors import ErrorCode, KafkaError


def handle(
    services: BrokerServices, context: RequestContext, request: ListTransactionsRequest
) -> Promise[ListTransactionsResponse]:
    command = commands.ListTransactions(
        producer_ids=frozenset(request.producer_id_filters),
        states=frozenset(request.state_filters),
        duration_ms=request.duration_filter,
        transactional_id_pattern=request.transactional_id_pattern,
    )
    known = set(STATE_NAMES.values())
    unknown = tuple(name for name in dict.fromkeys(request.state_filters) if name not in known)

    def respond(
        listed: tuple[commands.ListedTransaction, ...] | KafkaError,
    ) -> ListTransactionsResponse | Promise[ListTransactionsResponse]:
        if isinstance(listed, KafkaError):
            return ListTransactionsResponse(
                throttle_time=NO_THROTTLE, error_code=listed.code, transaction_states=()
            )
        return services.scheduler.run(listed, _state).then(
            lambda states: ListTransactionsResponse(
                throttle_time=NO_THROTTLE,
                error_code=ErrorCode.none,
                unknown_state_filters=unknown,
                transaction_states=tuple(states),
            )
        )

    return services.transactions.get().list_transactions(command).then(respond)


def _state(listed: commands.ListedTransaction) -> TransactionState:
    return TransactionState(
        transactional_id=listed.transactional_id,
        producer_id=listed.producer_id,
        transaction_state=listed.state,
    )
