"""Produce, versions 3 to 13.

v9 flexible; v10 tells the new leader (KIP-951); v12 no longer needs partitions added to a transaction first (KIP-890);
v13 names topics by id (KIP-516). acks: 0 no response at all, 1 the leader has it, -1 every in-sync replica has it.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.connection import Answer
from ottla.broker.delayed_produce import DelayedProduce
from ottla.broker.dispatch import RequestContext
from ottla.broker.hosted_partition import HostedPartition, LongExamination
from ottla.broker.housekeeping import flush
from ottla.broker.pending import Pending
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
    from ottla.broker.node import Broker
    from ottla.broker.transactional_produce import Admission

_ACKS = (-1, 0, 1)
_NO_RECORD_ERRORS: list[tuple[int, str]] = []
# Kafka's own admin client may write to internal topics; nobody else.
_ADMIN_CLIENT_ID = "__admin_client"


def handle_body(broker: "Broker", context: RequestContext, body: memoryview) -> Answer | Pending[Answer]:
    version = context.header.api_version
    request = decode_produce_request(body, version)
    if request.transactional_id is not None:
        return _admit()(broker, request, version, partial(_append_all, broker, context, request))
    return _append_all(broker, context, request, None)


@cache
def _admit() -> Callable[..., Answer | Pending[Answer]]:
    from ottla.broker.transactional_produce import admit  # with the first transaction, not with the start

    return admit


def _append_all(
    broker: "Broker", context: RequestContext, request: ProduceRequest, admission: "Admission | None"
) -> Answer | Pending[Answer]:
    """`admission` is what the coordinator of the producer's transactional id says, where it has one."""
    appended: list[tuple[HostedPartition, int]] = []
    later: list[_AppendLater] = []
    topics = []
    for topic in request.topics:
        results: list[ProducePartitionResponse] = []
        for data in topic.partitions:
            if later:  # in the order of the request, as it may name a partition twice
                later.append(_AppendLater(topic, data, results, None))
                continue
            try:
                results.append(_append(broker, context, request, topic, data, admission, appended))
            except LongExamination as examination:
                later.append(_AppendLater(topic, data, results, examination))
        topics.append(ProduceTopicResponse(topic.name, topic.topic_id, results))
    response = ProduceResponse(topics)
    if later:
        return _append_later(broker, context, request, response, admission, appended, later)
    return _appended(broker, context, request, response, appended)


def _appended(
    broker: "Broker",
    context: RequestContext,
    request: ProduceRequest,
    response: ProduceResponse,
    appended: list[tuple[HostedPartition, int]],
) -> Answer | Pending[Answer]:
    """The answer, or what waits for replicas or for the disk before it."""
    is_waiting = False
    for partition, end_offset in appended:
        if partition.leader.high_watermark < end_offset or partition.needs_flush:
            is_waiting = True
    broker.waiting_room.check_changed()
    if is_waiting and any(partition.needs_flush for partition, _ in appended):
        return _after_flush(broker, context, request, response, appended)
    return _answer(broker, context, request, response, appended if is_waiting else [])


class _AppendLater(NamedTuple):
    """A partition of a request that waits until the records of one before it, or its own, have been examined."""

    topic: ProduceTopic
    data: ProducePartition
    results: list[ProducePartitionResponse]
    examination: LongExamination | None


def _append_later(
    broker: "Broker",
    context: RequestContext,
    request: ProduceRequest,
    response: ProduceResponse,
    admission: "Admission | None",
    appended: list[tuple[HostedPartition, int]],
    later: list[_AppendLater],
) -> Pending[Answer]:
    """Examines records beside the event loop. The connection takes no other request meanwhile: the order stays."""

    async def append_rest() -> Answer | Pending[Answer]:
        for topic, data, results, examination in later:
            examined: _Examined | None = None
            while True:
                if examination is not None:
                    examined = await _examine(broker, examination)
                try:
                    results.append(
                        _append(broker, context, request, topic, data, admission, appended, examined)
                    )
                    break
                except LongExamination as found:
                    examination = found
        return _appended(broker, context, request, response, appended)

    return broker.answer_later(append_rest())


class _Examined(NamedTuple):
    partition: HostedPartition
    result: ExaminedBatch | KafkaError


async def _examine(broker: "Broker", examination: LongExamination) -> _Examined:
    try:
        return _Examined(examination.partition, await broker.record_work.run(examination.examine))
    except KafkaError as error:
        return _Examined(examination.partition, error)


def _answer(
    broker: "Broker",
    context: RequestContext,
    request: ProduceRequest,
    response: ProduceResponse,
    waiting: list[tuple[HostedPartition, int]],
) -> Answer | Pending[Answer]:
    if request.acks == 0:
        return _close_on_error(context, response)
    if request.acks == ACKS_ALL and waiting:
        return _wait(broker, context, request, response, waiting)
    return context.respond(encode_produce_response(response, context.header.api_version))


def _append(
    broker: "Broker",
    context: RequestContext,
    request: ProduceRequest,
    topic: ProduceTopic,
    data: ProducePartition,
    admission: "Admission | None",
    appended: list[tuple[HostedPartition, int]],
    examined: _Examined | None = None,
) -> ProducePartitionResponse:
    """Raises LongExamination, unless `examined` is what came of it."""
    try:
        hosted = broker.partitions.find(topic.name, topic.topic_id, data.index)
        if request.acks not in _ACKS or hosted.is_internal:
            _check_request(context, request, hosted)
        if data.records is None:
            raise KafkaError(ErrorCode.invalid_record, f"no records were sent for {hosted.topic_partition}")
        if examined is not None:
            plan = _append_examined(broker, request, hosted, examined, admission)
        elif admission is None:
            plan = hosted.append(data.records, broker.env.clock.now_ms(), required_acks=request.acks)
        else:
            plan = admission.append(hosted, data.records, broker.env.clock.now_ms(), request.acks)
    except KafkaError as error:
        record_errors = error.record_errors if isinstance(error, InvalidRecords) else []
        return ProducePartitionResponse(
            data.index, int(error.code), -1, -1, -1, record_errors, error.message, None
        )
    appended.append((hosted, plan.last_offset + 1))
    _, first_offset, _, log_append_time_ms, _ = plan
    log_start_offset = hosted.leader.log_start_offset
    return new_tuple(
        ProducePartitionResponse,
        (data.index, 0, first_offset, log_append_time_ms, log_start_offset, _NO_RECORD_ERRORS, None, None),
    )


def _append_examined(
    broker: "Broker",
    request: ProduceRequest,
    hosted: HostedPartition,
    examined: _Examined,
    admission: "Admission | None",
) -> AppendPlan:
    """What was examined for a partition is not for another of the same name, which may ask more of its records."""
    if hosted is not examined.partition:
        raise KafkaError(
            ErrorCode.unknown_topic_or_partition,
            f"{hosted.topic_partition} was deleted, and created again, while its records were checked",
        )
    verification = None if admission is None else admission.verification_of(hosted.topic_partition)
    if isinstance(examined.result, KafkaError):
        raise examined.result
    return hosted.append_examined(
        examined.result, broker.env.clock.now_ms(), required_acks=request.acks, verification=verification
    )


def _check_request(context: RequestContext, request: ProduceRequest, hosted: HostedPartition) -> None:
    if request.acks not in _ACKS:
        raise KafkaError(ErrorCode.invalid_required_acks, f"acks={request.acks} is none of -1, 0 and 1")
    if hosted.is_internal and context.header.client_id != _ADMIN_CLIENT_ID:
        raise KafkaError(
            ErrorCode.invalid_topic_exception,
            f"clients may not write to the internal topic {hosted.topic_partition.topic}",
        )


def _wait(
    broker: "Broker",
    context: RequestContext,
    request: ProduceRequest,
    response: ProduceResponse,
    appended: list[tuple[HostedPartition, int]],
) -> Pending[Answer]:
    waiting = [item for item in appended if item[0].leader.high_watermark < item[1]]
    pending: Pending[Answer] = Pending()

    def finished(failed: dict[HostedPartition, KafkaError]) -> None:
        final = _with_failures(response, failed)
        pending.complete(context.respond(encode_produce_response(final, context.header.api_version)))

    broker.waiting_room.wait(
        DelayedProduce(pending, waiting, finished),
        [partition.topic_partition for partition, _ in waiting],
        request.timeout_ms,
    )
    return pending


def _after_flush(
    broker: "Broker",
    context: RequestContext,
    request: ProduceRequest,
    response: ProduceResponse,
    appended: list[tuple[HostedPartition, int]],
) -> Pending[Answer]:
    """`flush.messages` is reached: the answer, and every consumer, waits for the disk."""

    async def run() -> Answer | Pending[Answer]:
        for partition, _ in appended:
            if partition.needs_flush:
                await flush(broker.env, partition)
        failed = {partition: partition.failure for partition, _ in appended if partition.failure is not None}
        waiting = [
            item for item in appended if item[0].leader.high_watermark < item[1] and item[0] not in failed
        ]
        return _answer(broker, context, request, _with_failures(response, failed), waiting)

    return broker.answer_later(run())


def _with_failures(response: ProduceResponse, failed: dict[HostedPartition, KafkaError]) -> ProduceResponse:
    """The response with the errors of those partitions whose records were not acknowledged in the end."""
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

    return response._replace(
        topics=[
            topic._replace(partitions=[replaced(topic, result) for result in topic.partitions])
            for topic in response.topics
        ]
    )


def _close_on_error(context: RequestContext, response: ProduceResponse) -> Answer:
    # With acks=0 nobody reads an error. As Kafka does, the connection closes, so that the producer looks again
    # for the leader instead of sending into the void.
    if any(result.error_code for topic in response.topics for result in topic.partitions):
        context.connection.close()
    return None
