"""Fetch, versions 4 to 18.

v4 isolation level; v7 sessions (KIP-227); v9 leader epochs (KIP-320); v11 racks (KIP-392); v12 divergence (KIP-595);
v13 topic ids (KIP-516); v16 the new leader's address (KIP-951). Records go out as regions of the log's files.
"""

from typing import TYPE_CHECKING

from ottla.broker.connection import Answer
from ottla.broker.dispatch import REQUEST_BYTES_ON_LOOP, RequestContext
from ottla.broker.fetching import PARTITIONS_PER_TURN, DelayedFetch, FetchRead, FetchReader, TimedFetch
from ottla.broker.pending import Pending
from ottla.core.fetch_session import FetchContext, FetchSession, SessionlessContext, prepare_full_fetch
from ottla.model.errors import KafkaError
from ottla.model.region import FileRegion
from ottla.protocol.fetch_codec import (
    TOPIC_IDS_FROM,
    FetchRequest,
    FetchResponse,
    decode_fetch_request,
    encode_fetch_response,
    encoded_size,
)
from ottla.protocol.framing import response_prefix

if TYPE_CHECKING:
    from ottla.broker.node import Broker

_FLEXIBLE_FROM = 12
_WARM_STEP_BYTES = 1 << 20

Prepared = FetchSession | SessionlessContext | None


def handle_body(broker: "Broker", context: RequestContext, body: memoryview) -> Answer | Pending[Answer]:
    version = context.header.api_version
    if len(body) > REQUEST_BYTES_ON_LOOP:
        decoded = broker.in_worker(lambda: _decode_and_prepare(body, version))
        return decoded.then(lambda read: _serve(broker, context, *read))
    return _serve(broker, context, decode_fetch_request(body, version))


def _decode_and_prepare(body: memoryview, version: int) -> tuple[FetchRequest, Prepared]:
    request = decode_fetch_request(body, version)
    return request, prepare_full_fetch(
        request.session_epoch,
        request.topics,
        uses_topic_ids=version >= TOPIC_IDS_FROM,
        is_follower=request.replica_id >= 0,
    )


def _serve(
    broker: "Broker", context: RequestContext, request: FetchRequest, prepared: Prepared = None
) -> Answer | Pending[Answer]:
    try:
        session = broker.fetch_sessions.resolve(
            session_id=request.session_id,
            session_epoch=request.session_epoch,
            topics=request.topics,
            forgotten=request.forgotten,
            uses_topic_ids=context.header.api_version >= TOPIC_IDS_FROM,
            is_follower=request.replica_id >= 0,
            now_ms=broker.env.clock.now_ms(),
            random_id=broker.env.random.getrandbits(31),
            prepared=prepared,
        )
    except KafkaError as error:
        return _encode(context, FetchResponse(0, int(error.code), 0, []))
    return _fetch(broker, context, request, session)


def _fetch(
    broker: "Broker", context: RequestContext, request: FetchRequest, session: FetchContext
) -> Answer | Pending[Answer]:
    max_bytes = min(request.max_bytes, broker.fetch_max_bytes)
    reader = FetchReader(broker.partitions, request, session, max_bytes, broker.env.clock)
    if reader.is_long:
        return _fetch_in_turns(broker, context, request, session, reader)
    read = reader.read()
    if read.size >= request.min_bytes or read.is_urgent or request.max_wait_ms <= 0 or not read.results:
        return _respond(broker, context, session, read)
    pending: Pending[Answer] = Pending(lambda: broker.waiting_room.cancel(operation))

    def finished(read: FetchRead) -> None:
        pending.resolve(_respond(broker, context, session, read))

    operation = DelayedFetch(pending, reader, request, finished)
    broker.waiting_room.wait(operation, operation.keys, request.max_wait_ms)
    return pending


def _fetch_in_turns(
    broker: "Broker",
    context: RequestContext,
    request: FetchRequest,
    session: FetchContext,
    reader: FetchReader,
) -> Pending[Answer]:
    """A fetch of very many partitions: read once at the beginning and, if that is too little, when its time is over."""

    def respond(read: FetchRead) -> Answer | Pending[Answer]:
        return _respond(broker, context, session, read)

    def answer(read: FetchRead) -> Answer | Pending[Answer]:
        if read.size >= request.min_bytes or read.is_urgent or request.max_wait_ms <= 0:
            return respond(read)
        pending: Pending[Answer] = Pending(lambda: broker.waiting_room.cancel(operation))
        operation = TimedFetch(
            pending, lambda: pending.resolve(reader.read_in_turns(broker.turns).then(respond))
        )
        broker.waiting_room.wait(operation, (), request.max_wait_ms)
        return pending

    return reader.read_in_turns(broker.turns).then(answer)


def _respond(
    broker: "Broker", context: RequestContext, session: FetchContext, read: FetchRead
) -> Answer | Pending[Answer]:
    try:
        answer = session.respond(read.results, broker.env.clock.now_ms())
    except KafkaError as error:
        return _encode(context, FetchResponse(0, int(error.code), 0, []))
    response = FetchResponse(0, 0, answer.session_id, answer.topics)
    cold = [region for region in read.doubtful if not region.file.is_cached(region.position, region.length)]
    if len(read.results) > PARTITIONS_PER_TURN:
        encoded = broker.in_worker(lambda: _encode(context, response))
        return encoded.then(lambda parts: _after_warming(broker, parts, cold) if cold else parts)
    parts = _encode(context, response)
    return _after_warming(broker, parts, cold) if cold else parts


def _encode(
    context: RequestContext, response: FetchResponse
) -> list[bytes | bytearray | memoryview | FileRegion]:
    version = context.header.api_version
    parts = encode_fetch_response(response, version)
    prefix = response_prefix(context.header.correlation_id, encoded_size(parts), version >= _FLEXIBLE_FROM)
    return [prefix, *parts]


def _after_warming(
    broker: "Broker", parts: list[bytes | bytearray | memoryview | FileRegion], cold: list[FileRegion]
) -> Pending[Answer]:
    """sendfile of bytes that are not in the page cache would stop the event loop: a worker reads them first.

    Where they cannot be read the connection closes: the length is promised by then.
    """

    def warm() -> None:
        for region in cold:
            for start in range(region.position, region.position + region.length, _WARM_STEP_BYTES):
                region.file.read_at(start, min(_WARM_STEP_BYTES, region.position + region.length - start))

    async def run() -> Answer:
        await broker.env.workers.run(warm)
        return parts

    return broker.answer_later(run())
