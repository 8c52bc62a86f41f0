"""Produce, versions 3 to 13.

v9 flexible; v10 the new leader's address (KIP-951); v12 the broker adds partitions to a transaction (KIP-890); v13
topic ids (KIP-516). acks: 0 there is no response, 1 the leader has the records, -1 every in-sync replica has them.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.connection import ResponseParts
from ottla.broker.delayed_produce import DelayedProduce
from ottla.broker.dispatch import RequestContext
from ottla.broker.hosted_partition import Appended, HostedPartition, LongExamination
from ottla.broker.leader_hints import with_leader_hints
from ottla.broker.partition_flush import flush_partition
from ottla.broker.promise import Promise
from ottla.broker.services import BrokerServices
from ottla.core.partition.leader import ACKS_ALL, AppendPlan
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.tuples import new_tuple
from ottla.protocol.produce_codec import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    ProduceTopicResponse,
    decode_produce_request,
    encode_produce_response,
)
from ottla.records.validate import ExaminedBatch, InvalidRecords

if TYPE_CHECKING:
    from ottla.broker.transactional_produce import VerifiedRequest

_ACKS = (-1, 0, 1)
_NO_RECORD_ERRORS: list[tuple[int, str]] = []
# Among clients, only Kafka's admin client may write to internal topics.
_ADMIN_CLIENT_ID = "__admin_client"


def handle_body(
    services: BrokerServices, context: RequestContext, body: memoryview
) -> ResponseParts | Promise[ResponseParts]:
    version = context.header.api_version
    request = decode_produce_request(body, version)
    if request.transactional_id is not None:
        append = partial(_append_all, services, context, request)
        return _verify_and_append()(services, request, version, append)
    return _append_all(services, context, request, None)


@cache
def _verify_and_append() -> Callable[..., ResponseParts | Promise[ResponseParts]]:
    from ottla.broker.transactional_produce import verify_and_append  # with the first transaction

    return verify_and_append


def _append_all(
    services: BrokerServices,
    context: RequestContext,
    request: ProduceRequest,
    verified: "VerifiedRequest | None",
) -> ResponseParts | Promise[ResponseParts]:
    """`verified` is the result of the transaction coordinator if the producer has a transactional id."""
    appended: list[Appended] = []
    later: list[_AppendLater] = []
    topics = []
    for topic in request.topics:
        results: list[ProducePartitionResponse] = []
        for data in topic.partitions:
            if later:  # keeps the order of the request, which may name a partition twice
                later.append(_AppendLater(topic, data, results, None))
                continue
            try:
                results.append(_append(services, context, request, topic, data, verified, appended))
            except LongExamination as examination:
                later.append(_AppendLater(topic, data, results, examination))
        topics.append(new_tuple(ProduceTopicResponse, (topic.name, topic.topic_id, results)))
    response = ProduceResponse(topics)
    if later:
        return _append_later(services, context, request, response, verified, appended, later)
    return _finish(services, context, request, response, appended)


def _finish(
    services: BrokerServices,
    context: RequestContext,
    request: ProduceRequest,
    response: ProduceResponse,
    appended: list[Appended],
) -> ResponseParts | Promise[ResponseParts]:
    """The response, at once or after replication or a flush."""
    count = 0
    for topic in response.topics:
        count += len(topic.partitions)
    if count != len(appended):  # some have errors
        response = with_leader_hints(services, context, response)
    is_waiting = False
    for _, leader, end_offset in appended:
        # Records that wait for a flush are not committed before it.
        if leader.high_watermark < end_offset:
            is_waiting = True
    services.delayed_operations.check_changed()
    if is_waiting and any(item.hosted.needs_flush for item in appended):
        return _respond_after_flush(services, context, request, response, appended)
    return _respond(services, context, request, response, appended if is_waiting else [])


class _AppendLater(NamedTuple):
    """A partition whose append waits until its own records, or those of a partition before it, are examined."""

    topic: ProduceTopic
    data: ProducePartition
    results: list[ProducePartitionResponse]
    examination: LongExamination | None


def _append_later(
    services: BrokerServices,
    context: RequestContext,
    request: ProduceRequest,
    response: ProduceResponse,
    verified: "VerifiedRequest | None",
    appended: list[Appended],
    later: list[_AppendLater],
) -> Promise[ResponseParts]:
    """Examines records in a thread. The connection serves no other request meanwhile, so the order is kept."""

    async def append_rest() -> ResponseParts | Promise[ResponseParts]:
        for topic, data, results, examination in later:
            examined: _Examined | None = None
            while True:
                if examination is not None:
                    examined = await _examine(services, examination)
                try:
                    results.append(
                        _append(services, context, request, topic, data, verified, appended, examined)
                    )
                    break
                except LongExamination as found:
                    examination = found
        return _finish(services, context, request, response, appended)

    return services.tasks.run(append_rest())


class _Examined(NamedTuple):
    partition: HostedPartition
    result: ExaminedBatch | KafkaError


async def _examine(services: BrokerServices, examination: LongExamination) -> _Examined:
    try:
        return _Examined(examination.partition, await services.record_thread.run(examination.examine))
    except KafkaError as error:
        return _Examined(examination.partition, error)


def _respond(
    services: BrokerServices,
    context: RequestContext,
    request: ProduceRequest,
    response: ProduceResponse,
    waiting: list[Appended],
) -> ResponseParts | Promise[ResponseParts]:
    if request.acks == 0:
        return _close_on_error(context, response)
    if request.acks == ACKS_ALL and waiting:
        return _wait(services, context, request, response, waiting)
    return context.respond(encode_produce_response(response, context.header.api_version))


def _append(
    services: BrokerServices,
    context: RequestContext,
    request: ProduceRequest,
    topic: ProduceTopic,
    data: ProducePartition,
    verified: "VerifiedRequest | None",
    appended: list[Appended],
    examined: _Examined | None = None,
) -> ProducePartitionResponse:
    """Raises LongExamination if `examined`, its result, is missing."""
    hosted: HostedPartition | None = None
    try:
        hosted = services.partitions.find_leader(topic.name, topic.topic_id, data.index)
        if request.acks not in _ACKS or hosted.is_internal:
            _check_request(context, request, hosted)
        if data.records is None:
            raise KafkaError(ErrorCode.invalid_record, f"no records were sent for {hosted.topic_partition}")
        if examined is not None:
            plan = _append_examined(services, request, hosted, examined, verified)
        elif verified is None:
            plan = hosted.append(data.records, services.env.clock.now_ms(), required_acks=request.acks)
        else:
            plan = verified.append(hosted, data.records, services.env.clock.now_ms(), request.acks)
    except KafkaError as error:
        if hosted is not None:
            hosted.counters.produce_requests += 1
            hosted.counters.failed_produce_requests += 1
        record_errors = error.record_errors if isinstance(error, InvalidRecords) else []
        return ProducePartitionResponse(
            data.index, int(error.code), -1, -1, -1, record_errors, error.message, None
        )
    _, first_offset, last_offset, log_append_time_ms, _ = plan
    hosted.counters.produce_requests += 1
    appended.append(new_tuple(Appended, (hosted, hosted.role, last_offset + 1)))
    log_start_offset = hosted.log.offsets.start
    return new_tuple(
        ProducePartitionResponse,
        (data.index, 0, first_offset, log_append_time_ms, log_start_offset, _NO_RECORD_ERRORS, None, None),
    )


def _append_examined(
    services: BrokerServices,
    request: ProduceRequest,
    hosted: HostedPartition,
    examined: _Examined,
    verified: "VerifiedRequest | None",
) -> AppendPlan:
    """Records that were examined for a deleted topic are not valid for a new one of the same name."""
    if hosted is not examined.partition:
        raise KafkaError(
            ErrorCode.unknown_topic_or_partition,
            f"{hosted.topic_partition} was deleted and created again while its records were checked",
        )
    verification = None if verified is None else verified.verification_of(hosted.topic_partition)
    if isinstance(examined.result, KafkaError):
        raise examined.result
    return hosted.append_examined(
        examined.result, services.env.clock.now_ms(), required_acks=request.acks, verification=verification
    )


def _check_request(context: RequestContext, request: ProduceRequest, hosted: HostedPartition) -> None:
    if request.acks not in _ACKS:
        raise KafkaError(ErrorCode.invalid_required_acks, f"acks={request.acks} is invalid: use -1, 0 or 1")
    if hosted.is_internal and context.header.client_id != _ADMIN_CLIENT_ID:
        raise KafkaError(
            ErrorCode.invalid_topic_exception,
            f"clients may not write to the internal topic {hosted.topic_partition.topic}",
        )


def _wait(
    services: BrokerServices,
    context: RequestContext,
    request: ProduceRequest,
    response: ProduceResponse,
    appended: list[Appended],
) -> Promise[ResponseParts]:
    waiting = [item for item in appended if not item.is_committed]
    promise: Promise[ResponseParts] = Promise()

    def finish(failed: dict[HostedPartition, KafkaError]) -> None:
        final = _with_failures(services, context, response, failed)
        promise.complete(context.respond(encode_produce_response(final, context.header.api_version)))

    operation = DelayedProduce(promise, waiting, finish)
    # Records that were appended before others were examined may have lost their leadership, which nobody watched.
    if not operation.try_complete(0):
        services.delayed_operations.watch(
            operation, [item.hosted.topic_partition for item in waiting], request.timeout_ms
        )
    return promise


def _respond_after_flush(
    services: BrokerServices,
    context: RequestContext,
    request: ProduceRequest,
    response: ProduceResponse,
    appended: list[Appended],
) -> Promise[ResponseParts]:
    """`flush.messages` is reached: the response, and every consumer, waits for the flush."""

    async def run() -> ResponseParts | Promise[ResponseParts]:
        for item in appended:
            if item.hosted.needs_flush:
                await flush_partition(services.env, item.hosted)
        failed = {item.hosted: error for item in appended if (error := item.error) is not None}
        waiting = [item for item in appended if not item.is_committed and item.hosted not in failed]
        final = _with_failures(services, context, response, failed)
        return _respond(services, context, request, final, waiting)

    return services.tasks.run(run())


def _with_failures(
    services: BrokerServices,
    context: RequestContext,
    response: ProduceResponse,
    failed: dict[HostedPartition, KafkaError],
) -> ProduceResponse:
    """The response with errors for the partitions whose records were not acknowledged."""
    if not failed:
        return response
    errors = {(p.topic_partition.topic, p.topic_partition.partition): error for p, error in failed.items()}
    by_id = {(p.topic_id, p.topic_partition.partition): error for p, error in failed.items()}

    def replaced(topic: ProduceTopicResponse, result: ProducePartitionResponse) -> ProducePartitionResponse:
        error = errors.get((topic.name or "", result.index)) or (
            by_id.get((topic.topic_id, result.index)) if topic.topic_id is not None else None
        )
        if error is None:
            return result
        return result._replace(error_code=int(error.code), error_message=error.message)

    topics = [
        topic._replace(partitions=[replaced(topic, result) for result in topic.partitions])
        for topic in response.topics
    ]
    return with_leader_hints(services, context, response._replace(topics=topics))


def _close_on_error(context: RequestContext, response: ProduceResponse) -> ResponseParts:
    # With acks=0 there is no response that could have an error. As in Kafka, the connection closes, so that the
    # producer fetches new metadata and finds the leader.
    if any(result.error_code for topic in response.topics for result in topic.partitions):
        context.connection.close()
    return None
